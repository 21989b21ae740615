"""Text workloads of ASTRA-sim 1: a parallelism, a number of layers, then twelve columns a layer. Times are cycles, which are ns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, read_text
from windtunnel.formats.reading import Content, Reading
from windtunnel.records.trace_graph import TaskKind, TraceGraph

POLICIES = ("MICRO", "DATA", "MODEL", "DLRM", "HYBRID_", "TRANSFORMER", "DISTRIBUTED_INFERENCE")
CALLS = {
    "ALLREDUCE": Comm.ALL_REDUCE,
    "ALLGATHER": Comm.ALL_GATHER,
    "REDUCESCATTER": Comm.REDUCE_SCATTER,
    "ALLTOALL": Comm.ALL_TO_ALL,
}
"""Calls by their names there, of which any capitals and underscores are taken."""
COLUMNS = 12
PASSES = ("fwd", "ig", "wg")
RANKS = 8
"""Ranks that are assumed, since the file names none."""
_SIMAI = ("all_gpus:", "ep:", "vpp:", "ga:")


@dataclass(frozen=True)
class Layer:
    """A row: seconds, call and bytes of each pass; seconds of the update."""

    name: str
    seconds: tuple[float, float, float]
    calls: tuple[str, str, str]
    bytes: tuple[int, int, int]
    update: float


def is_workload(lines: Sequence[str]) -> bool:
    """Whether a text begins as a workload does; SimAI's, with its own words in the first line, has another reader."""
    if len(lines) < 3 or not lines[1].strip().isdigit():
        return False
    head = lines[0].split()
    if not head or not head[0].startswith(POLICIES) or any(word in head for word in _SIMAI):
        return False
    return _layer(lines[2].split()) is not None


def read(path: Path) -> Reading:
    """The layers as a graph of one rank: forward passes, then backward from the last layer on. FileError for another file."""
    lines = read_text(path, 64 * MIB, "a text workload of ASTRA-sim 1").splitlines()
    if not is_workload(lines):
        raise FileError(str(path), repr(lines[0][:40]) if lines else "an empty file", "a file of ASTRA-sim")
    rows = [line.split() for line in lines[2:] if line.strip()]
    layers = [layer for row in rows if (layer := _layer(row)) is not None]
    lost = len(rows) - len(layers)
    declared = int(lines[1].strip()[:9])
    broken = [f"{lost} rows have no {COLUMNS} columns with numbers where they belong"] if lost else []
    if declared != len(rows):
        broken.append(f"{len(rows)} layers follow where the second line says {declared}")
    assumed = (f"{RANKS} ranks, of which this is one: the file names no number", "a collective runs over all ranks")
    built = ("a graph of one training step; times are cycles of 1 ns (Chakra's converter writes the same numbers as microseconds)",)
    graph = _graph(layers)
    return Reading(
        "ASTRA-sim 1 workload", Content.GRAPH, graph, _facts(lines[0], declared, rows, layers), built, (), assumed, tuple(broken)
    )


def _layer(row: Sequence[str]) -> Layer | None:
    if len(row) < COLUMNS:
        return None
    numbers = [row[at] for at in (2, 4, 5, 7, 8, 10, 11)]
    if not all((len(one) < 19 and one.lstrip("-").replace(".", "", 1).isdigit() and float(one) >= 0) for one in numbers):
        return None
    value = [float(one) for one in numbers]
    return Layer(
        row[0], (value[0] * 1e-9, value[2] * 1e-9, value[4] * 1e-9), (row[3], row[6], row[9]),
        (int(value[1]), int(value[3]), int(value[5])), value[6] * 1e-9,
    )  # fmt: skip


def _facts(head: str, declared: int, rows: Sequence[Sequence[str]], layers: Sequence[Layer]) -> dict[str, Any]:
    words = head.split()
    comm: dict[str, dict[str, int]] = {}
    for layer in layers:
        for name, call, size in zip(PASSES, layer.calls, layer.bytes, strict=True):
            if call.upper() != "NONE":
                entry = comm.setdefault(f"{name}:{call.upper()}", {"count": 0, "bytes": 0})
                entry["count"] += 1
                entry["bytes"] += size
    sums = {name: round(sum(layer.seconds[at] for layer in layers) * 1e9) for at, name in enumerate(PASSES)}
    return {
        "policy": words[0],
        "header_tokens": words[1:],
        "declared_layers": declared,
        "rows": len(rows),
        "short_rows": sum(len(row) < COLUMNS for row in rows),
        "columns": sorted({len(row) for row in rows}),
        "compute_sum": sums | {"update": round(sum(layer.update for layer in layers) * 1e9)},
        "comm": comm,
        "names": dict(Counter(layer.name for layer in layers).most_common(12)),
    }


def _graph(layers: Sequence[Layer]) -> TraceGraph:
    """One rank. A call of the forward and of the input gradient pass holds up what follows; that of the weight gradient runs beside
    it, and the layer's update waits for it."""
    rows: list[tuple[str, TaskKind, float, float, int, list[int]]] = []
    last: list[int] = []

    def add(name: str, kind: TaskKind, seconds: float, size: float, comm: int, deps: list[int]) -> int:
        rows.append((name, kind, seconds, size, comm, deps))
        return len(rows) - 1

    def one(layer: Layer, at: int, after: list[int]) -> tuple[int, int]:
        computed = add(f"{layer.name} {PASSES[at]}", TaskKind.COMPUTE, layer.seconds[at], float("nan"), 0, after)
        call = CALLS.get(layer.calls[at].upper().replace("_", ""))
        if call is None or layer.bytes[at] < 1:
            return computed, computed
        called = add(
            f"{layer.name} {PASSES[at]} {call.name.lower()}",
            TaskKind.COLLECTIVE,
            float("nan"),
            float(layer.bytes[at]),
            int(call),
            [computed],
        )
        return computed, called

    for layer in layers:
        last = [one(layer, 0, last)[1]]
    for layer in reversed(layers):
        computed, reduced = one(layer, 2, last)
        add(f"{layer.name} update", TaskKind.COMPUTE, layer.update, float("nan"), 0, [reduced])
        last = [one(layer, 1, [computed])[1]]
    count = len(rows)
    names = {name: at for at, name in enumerate(dict.fromkeys(row[0] for row in rows))}
    kind = np.array([row[1] for row in rows], np.uint8)
    nothing = np.full(count, np.nan)
    return TraceGraph(
        rank_start=np.array([0, count], np.int64), name=np.array([names[row[0]] for row in rows], np.int32), kind=kind,
        on_host=np.zeros(count, np.bool_), lane=np.full(count, -1, np.int32), seconds=np.array([row[2] for row in rows],
        np.float64),
        flops=nothing, bytes=np.array([row[3] for row in rows], np.float64), comm=np.array([row[4] for row in rows], np.uint8),
        group=np.where(kind == TaskKind.COLLECTIVE, 0, -1).astype(np.int32), peer=np.full(count, -1, np.int32),
        tag=np.zeros(count, np.int64), dep_start=np.concatenate([[0], np.cumsum([len(row[5]) for row in rows])]).astype(np.int64),
        deps=np.array([dep for row in rows for dep in row[5]], np.int64), names=tuple(names), groups=(tuple(range(RANKS)),),
    )  # fmt: skip
