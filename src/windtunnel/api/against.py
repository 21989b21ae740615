"""A captured job beside a job of our own graphs: calls, products and memory of the framework's code, and of what we write of it.
What a captured job beside a job of our own graphs shows: what the framework does and our graph does not, and the reverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from windtunnel.api.capture import Captured
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.base.units import show_size
from windtunnel.exports.chakra import JobGroups, StepNode, stage_of_ranks, step_nodes
from windtunnel.memory import StageMemory, memory_of
from windtunnel.memory.over_time import PARTS
from windtunnel.records.trace_graph import COLUMNS, AttentionShape, TaskKind
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Cell, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote
from windtunnel.spec import Job
from windtunnel.workload import build
from windtunnel.workload.blocks.core import visible

STATE = ("weights", "gradients", "optimizer")
SMALL = 4096
"""Bytes of a call up to which it is a number or a few, such as a loss or a norm."""


@dataclass(frozen=True)
class Beside:
    """A figure of one rank's step: as captured, and in our graph. `count`: calls or products."""

    rank: int
    what: str
    count: int
    size: float
    our_count: int
    our_size: float

    @property
    def differs(self) -> float:
        """Our size less the captured one, as a share of the larger."""
        most = max(self.size, self.our_size)
        return (self.our_size - self.size) / most if most else 0.0


@dataclass(frozen=True)
class Against:
    """A captured job beside a job of ours: a row for each kind of call and group, for kinds and shapes of products, and for memory.

    Sizes are bytes of calls, FLOPs of products, bytes of memory at the step's highest moment.
    """

    captured: Captured
    job: Job
    calls: tuple[Beside, ...]
    products: tuple[Beside, ...]
    shapes: tuple[Beside, ...]
    memory: tuple[Beside, ...]

    @cached_property
    def differences(self) -> tuple[Beside, ...]:
        """Rows of calls and products whose sizes differ by more than a thousandth, the largest first."""
        rows = [row for row in (*self.calls, *self.products) if abs(row.differs) > 1e-3]
        return tuple(sorted(rows, key=lambda row: -max(row.size, row.our_size)))

    def as_dict(self) -> dict[str, Any]:
        """JSON: stable keys, SI units."""
        parts = {name: [vars(row) for row in getattr(self, name)] for name in ("calls", "products", "shapes", "memory")}
        return {"schema": "windtunnel.against/1", "job": self.job, "folder": str(self.captured.folder), **parts}


Counts = dict[str, tuple[int, float]]


def against(captured: Captured, job: Job) -> Against:
    """The first captured rank of each pipeline stage of the job beside that stage. SpecError where their ranks are not as many."""
    if job.cluster.gpus != captured.world:
        raise SpecError("JOB", f"{job.cluster.gpus} GPUs", f"as many as were captured: {captured.world}")
    stages, _ = step_nodes(job)
    owners = stage_of_ranks(job)
    groups = JobGroups(job)
    memory = memory_of(job, build(job))
    calls, products, shapes, held = list[Beside](), list[Beside](), list[Beside](), list[Beside]()
    seen = set[int]()
    for place, rank in enumerate(captured.ranks):
        number = int(rank.about["rank"])
        stage = int(owners[number])
        if stage in seen:
            continue
        seen.add(stage)
        calls += _rows_beside(number, _captured_calls(captured, place), _our_calls(stages[stage], number, groups))
        products += _rows_beside(number, _captured_classes(captured, place), _our_classes(stages[stage]))
        shapes += _rows_beside(number, _captured_shapes(captured, place), _our_shapes(stages[stage]))
        held += _memory(captured, place, memory[stage])
    return Against(captured, job, tuple(calls), tuple(products), tuple(shapes), tuple(held))


def _rows_beside(rank: int, there: Counts, ours: Counts) -> list[Beside]:
    rows = [Beside(rank, what, *there.get(what, (0, 0.0)), *ours.get(what, (0, 0.0))) for what in dict.fromkeys([*there, *ours])]
    return sorted(rows, key=lambda row: -max(row.size, row.our_size))


def _add(counts: Counts, what: str, size: float, count: int = 1) -> None:
    before, sizes = counts.get(what, (0, 0.0))
    counts[what] = before + count, sizes + size


def _call(comm: str, ranks: int, size: float) -> str:
    return f"{comm} of {ranks} ranks" + (", up to 4 KiB" if size <= SMALL else "")


def _tasks(captured: Captured, place: int) -> Iterator[int]:
    graph = captured.replayed.graph
    return iter(range(int(graph.rank_start[place]), int(graph.rank_start[place + 1])))


def _captured_calls(captured: Captured, place: int) -> Counts:
    graph, counts = captured.replayed.graph, Counts()
    for task in _tasks(captured, place):
        size = float(graph.bytes[task])
        if graph.kind[task] == TaskKind.COLLECTIVE:
            ranks = len(graph.groups[int(graph.group[task])])
            if ranks > 1:
                _add(counts, _call(Comm(int(graph.comm[task])).name.lower(), ranks, size), size)
        elif graph.kind[task] in (TaskKind.SEND, TaskKind.RECEIVE):
            _add(counts, "send" if graph.kind[task] == TaskKind.SEND else "receive", size)
    return counts


def _our_calls(nodes: list[StepNode], rank: int, groups: JobGroups) -> Counts:
    counts = Counts()
    for node in nodes:
        if node.kind == "COMM_COLL":
            group = groups.groups_of(node.axis).get(rank) or groups.twins(rank)
            _add(counts, _call(node.call.name.lower(), len(group), node.size), node.size)
        elif node.kind in ("COMM_SEND", "COMM_RECV"):
            _add(counts, "send" if node.kind == "COMM_SEND" else "receive", node.size)
    return counts


def _captured_classes(captured: Captured, place: int) -> Counts:
    graph, counts = captured.replayed.graph, Counts()
    for task in _tasks(captured, place):
        if len(graph.products) and graph.products[task, 0] > 0:
            _add(counts, "matrix products", 2.0 * float(np.prod(graph.products[task, :4].astype(np.float64))))
    first, last = int(graph.rank_start[place]), int(graph.rank_start[place + 1])
    for row in graph.attentions.tolist():
        if first <= row[0] < last:
            shape = AttentionShape(*row[COLUMNS.index("sequences") :])
            _add(counts, "attention", _attention_flops(shape))
    return counts


def _attention_flops(shape: AttentionShape) -> float:
    seen = visible(shape.keys, shape.window or None, bool(shape.causal))
    flops = 4.0 * shape.sequences * shape.heads * shape.queries * seen * shape.head
    return 2.5 * flops if shape.backward else flops


def _our_classes(nodes: list[StepNode]) -> Counts:
    counts = Counts()
    for node in nodes:
        if node.shape:
            _add(counts, "matrix products", node.flops)
        elif "attention" in node.name and node.flops > 0:
            _add(counts, "attention", node.flops)
    return counts


def _shape(batch: int, *sides: int) -> str:
    """A product's shape: the same for its gradients, whose sides are turned."""
    return f"{batch} x " * (batch > 1) + " x ".join(map(str, sorted(sides)))


def _captured_shapes(captured: Captured, place: int) -> Counts:
    graph, counts = captured.replayed.graph, Counts()
    for task in _tasks(captured, place) if len(graph.products) else ():
        batch, *sides, _ = graph.products[task].tolist()
        if batch:
            _add(counts, _shape(batch, *sides), 2.0 * float(np.prod([batch, *sides], dtype=np.float64)))
    return counts


def _our_shapes(nodes: list[StepNode]) -> Counts:
    counts = Counts()
    for node in nodes:
        if node.shape:
            _add(counts, _shape(*node.shape), node.flops)
    return counts


def _memory(captured: Captured, place: int, ours: StageMemory) -> list[Beside]:
    """Bytes at the highest moment by content; ours of temporary tensors are buffers and the workspace of cuBLAS. Weights, gradients
    and states are one: a framework that holds gradients and master weights in buffers makes them before the first step."""
    moments = captured.moments[place]
    highest = int(moments.moments.allocated.argmax())
    there = {part: float(size) for part, size in zip(PARTS, moments.moments.parts[highest], strict=True)}
    rows = (
        ("weights, gradients, states", sum(there[part] for part in STATE), ours.weights + ours.gradients + ours.optimizer),
        ("activations and logits", there["activations"], ours.activations + ours.logits),
        ("temporary", there["temporary"] + there["buffers"], ours.buffers + ours.workspace),
        ("all tensors", float(moments.moments.allocated[highest]), ours.allocated),
    )
    return [Beside(moments.rank, what, 0, size, 0, our_size) for what, size, our_size in rows]


MOST_LINES = 24


def against_sheet(found: Against) -> Sheet:
    """Tables of calls, products and memory."""
    rows = [*found.calls, *found.products]
    equal = len(rows) - len(found.differences)
    headline = Sentence(
        "{equal} of {count} kinds of calls and products are equal in the captured job and in {job}",
        equal=equal, count=len(rows), job=say.clean(found.job.name),
    )  # fmt: skip
    about = "Memory is at the step's highest moment. What a captured tensor holds follows from when it is made and freed."
    return Sheet(
        "A captured job beside ours", headline,
        (
            Figure("equal", "equal kinds", float(equal), "", None, f"{equal} of {len(rows)}"),
            Figure("calls", "kinds of calls", float(len(found.calls))),
        ),
        (
            Section("Calls", (_table("calls", found.calls, "call"),)),
            Section("FLOPs", (_table("flops", found.products, "what", of_flops=True),)),
            Section("Shapes of products", (_table("shapes", found.shapes, "shape", of_flops=True),)),
            Section("Memory", (_table("memory", found.memory, "what", counts=False), Lines((about,), mood="soft"))),
        ),
        (headline,), titled=True,
    )  # fmt: skip


def _table(key: str, rows: Sequence[Beside], head: str, counts: bool = True, of_flops: bool = False) -> Table:
    several = len({row.rank for row in rows}) > 1
    columns = [
        *([Column("rank", True)] if several else []), Column(head, wraps=True), *([Column("count", True)] if counts else []),
        Column("captured", True), *([Column("count, ours", True)] if counts else []), Column("ours", True),
        Column("difference", True),
    ]  # fmt: skip

    def size(value: float) -> Cell:
        return Cell(f"{value / 1e12:.6g} TFLOP" if of_flops else show_size(value), value)

    cells = tuple(
        (
            *([Cell(str(row.rank), float(row.rank))] if several else []), Cell(quote(row.what)),
            *([Cell(f"{row.count:,}", float(row.count))] if counts else []), size(row.size),
            *([Cell(f"{row.our_count:,}", float(row.our_count))] if counts else []), size(row.our_size),
            Cell(f"{row.differs:+.2%}" if row.differs else "", row.differs),
        )
        for row in rows
    )  # fmt: skip
    return Table(key, tuple(columns), cells, most=MOST_LINES)
