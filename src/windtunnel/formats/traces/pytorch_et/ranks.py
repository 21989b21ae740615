"""The nodes of each rank's execution trace in columns.

The ranks of the process groups that an execution trace names.

Execution traces of the ranks as one trace graph.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.kineto.batches import Around, batches
from windtunnel.formats.traces.kineto.calls import MOST_RANKS, ranks_of
from windtunnel.formats.traces.kineto.sources import sources
from windtunnel.formats.traces.pytorch_et.nodes import (
    ATTENTIONS,
    COMMS,
    GROUPS,
    NODES,
    NodeCall,
    Product,
    TracedNode,
    attention_of,
    attribute,
    call_of_node,
    element_of,
    first_tensor,
    moves_nothing,
    parent_of,
    product_of,
    side,
    storages,
    tensor_bytes,
)
from windtunnel.records.trace_graph import COLUMNS, AttentionShape, TaskKind, TraceGraph


@dataclass
class NodeColumns:
    """N nodes of a rank in the order of the file, and its counts; texts are numbered.

    `number` is autograd's sequence number, -1 none. With `tensors`, the storages that node i reads are
    `reads[read_start[i]:read_start[i+1]]`, those that it writes `writes[write_start[i]:write_start[i+1]]`.
    """

    source: str
    order: int
    tensors: bool = False
    id: array[int] = field(default_factory=lambda: array("q"))
    name: array[int] = field(default_factory=lambda: array("i"))  # [N] index of `names`
    thread: array[int] = field(default_factory=lambda: array("i"))
    parent: array[int] = field(default_factory=lambda: array("q"))
    record: array[int] = field(default_factory=lambda: array("q"))  # [N] number of the record function; 0 none
    number: array[int] = field(default_factory=lambda: array("q"))
    operator: array[int] = field(default_factory=lambda: array("b"))
    bytes: array[float] = field(default_factory=lambda: array("d"))  # [N] read and written, or a call's; NaN unknown
    products: dict[int, Product] = field(default_factory=dict)  # by node
    attentions: dict[int, AttentionShape | None] = field(default_factory=dict)  # by node; None where the inputs do not tell
    idle: set[int] = field(default_factory=set)  # operators that start no kernel
    reads: array[int] = field(default_factory=lambda: array("q"))
    read_start: array[int] = field(default_factory=lambda: array("q", [0]))
    writes: array[int] = field(default_factory=lambda: array("q"))
    write_start: array[int] = field(default_factory=lambda: array("q", [0]))
    names: dict[str, int] = field(default_factory=dict)
    calls: dict[int, NodeCall] = field(default_factory=dict)  # by node
    call_counts: dict[str, dict[str, int]] = field(default_factory=dict)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)  # ranks of the process groups by name
    around: Around = field(default_factory=Around)

    def __len__(self) -> int:
        return len(self.id)

    def add(self, node: TracedNode) -> None:
        """Appends a node."""
        name = node.name if isinstance(node.name, str) else str(node.name)
        size = float("nan")
        if name == COMMS:
            size = self._call(node)
        elif name == GROUPS:
            self.groups.update(groups_of(side(node, "inputs")[0]))
        operator = bool(attribute(node, "op_schema"))
        inputs, outputs = side(node, "inputs"), side(node, "outputs")
        if operator:
            size = float(sum(one for one in (tensor_bytes(*inputs), tensor_bytes(*outputs)) if one == one))
            if (product := product_of(name, inputs[1], inputs[2])) is not None:
                self.products[len(self)] = product
            if name in ATTENTIONS:
                self.attentions[len(self)] = attention_of(name, inputs[1], element_of(inputs[2], ATTENTIONS[name].query), inputs[0])
            if moves_nothing(name, node):
                self.idle.add(len(self))
        self.id.append(_bounded_number(node.id, 62))
        self.name.append(self.names.setdefault(name, len(self.names)))
        self.thread.append(_bounded_number(attribute(node, "tid"), 31))
        self.parent.append(parent_of(node))
        self.operator.append(operator)
        self.bytes.append(size)
        if self.tensors:
            self.record.append(max(_bounded_number(attribute(node, "rf_id"), 62), 0))
            self.number.append(_bounded_number(attribute(node, "seq_id"), 62))
            self.reads.extend(storages(inputs[0], inputs[2]))
            self.read_start.append(len(self.reads))
            self.writes.extend(storages(outputs[0], outputs[2]))
            self.write_start.append(len(self.writes))

    def _call(self, node: TracedNode) -> float:
        call = call_of_node(node)
        entry = self.call_counts.setdefault(call.name, {"n": 0, "first_input_elems": 0, "first_input_bytes": 0})
        elements, first = first_tensor(node)
        entry["n"] += 1
        entry["first_input_elems"] += elements
        entry["first_input_bytes"] += int(first)
        if call.comm is not Comm.NONE:
            self.calls[len(self)] = call
        return call.bytes

    def around_attention(self) -> dict[int, int]:
        """Node -> the outermost attention operator that it is, or is inside of, for all nodes of these."""
        of_id: dict[int, int] = {}
        found: dict[int, int] = {}
        if self.attentions:
            for at in sorted(range(len(self)), key=lambda at: self.id[at]):
                outer = of_id.get(self.parent[at], at if at in self.attentions else -1)
                if outer >= 0:
                    of_id[self.id[at]] = found[at] = outer
        return found

    @property
    def rank(self) -> int:
        """The last number of the file's name, or the place among the files."""
        numbers = re.findall(r"\d{1,7}", self.source.rsplit("/", 1)[-1].split(".")[0])
        return int(numbers[-1]) if numbers else self.order

    @property
    def broken(self) -> list[str]:
        """What could not be read, with counts."""
        lost = self.around.broken_events
        return [*([f"{lost} nodes that are not valid JSON"] if lost else []), *self.around.broken]


def read_ranks(files: Sequence[Path], context: Context, tensors: bool = False) -> tuple[list[NodeColumns], int]:
    """The traces in the files, streamed, and how many files of archives are none. FileError for a file without nodes."""
    ranks: list[NodeColumns] = []
    beside = 0
    named = {str(path) for path in files}
    for source in sources(files, context.progress):
        first = next(source.chunks, b"")
        if source.name not in named and first.lstrip()[:1] != b"{":  # generated kernels, which lie in the archive of newer traces
            beside += 1
            continue
        rank = NodeColumns(source.name, len(ranks), tensors)
        for batch in batches(source.name, chain([first], source.chunks), rank.around, NODES):
            for node in batch:
                rank.add(node)
        rank.around.broken.extend(source.broken)
        if not len(rank):
            raise FileError(source.name, "an execution trace without nodes", NODES.what)
        ranks.append(rank)
    if not ranks:
        raise FileError(str(files[0]), "an archive without a trace", NODES.what)
    return ranks, beside


def _bounded_number(value: object, bits: int) -> int:
    """A whole number that fits; -1 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -1 <= value < 2**bits else -1


_ENTRY = re.compile(r"\{[^{}]{0,1000000}\}")


def groups_of(values: list[Any]) -> dict[str, tuple[int, ...]]:
    """Ranks by the group's name, from the inputs of `## process_group:init ##`.

    The text is JSON: a list of objects with `pg_name`, `ranks` and `group_size`, where no ranks stand for all ranks of the job
    (pg_config_info of torch/distributed/distributed_c10d.py). The observer cuts long texts off, so entries are read one by one.
    """
    found: dict[str, tuple[int, ...]] = {}
    for text in values:
        for match in _ENTRY.finditer(text) if isinstance(text, str) else ():
            try:
                entry = json.loads(match[0])
            except (ValueError, RecursionError):
                continue
            size, ranks = entry.get("group_size"), ranks_of(entry.get("ranks"))
            if not ranks and isinstance(size, int) and not isinstance(size, bool) and 0 < size <= MOST_RANKS:
                ranks = tuple(range(size))
            if ranks and "pg_name" in entry:
                found[str(entry["pg_name"])] = ranks
    return found


class ProcessGroups:
    """The ranks of the groups that a rank's calls name; `world`: ranks of the job, 0 unknown."""

    def __init__(self, named: Mapping[str, tuple[int, ...]], calls: Iterable[NodeCall], world: int) -> None:
        self.named, self.world = named, world
        self.sizes: dict[str, int] = {}
        for call in calls:
            self.sizes[call.group] = max(call.size, self.sizes.get(call.group, 0))

    def ranks(self, call: NodeCall) -> tuple[int, ...]:
        """As the trace names them, as start and stride say, or all where the group is as large as the job; empty unknown."""
        if call.group in self.named:
            return self.named[call.group]
        size = call.size or self.sizes.get(call.group, 0)
        return call.ranks or (tuple(range(size)) if 1 < size == self.world <= MOST_RANKS else ())

    def text(self, call: NodeCall) -> str:
        """What stands for the group on all ranks: its description, its name, or for an address its place among the addresses."""
        if call.group.startswith("0x"):
            return f"group {[name for name in self.sizes if name.startswith('0x')].index(call.group)}"
        return call.text if call.text not in ("", "undefined") else call.group

    def own_rank(self, calls: Iterable[NodeCall]) -> int:
        """The rank of the job that most calls say; -1 where none does."""
        told = Counter(ranks[call.rank] for call in calls if 0 <= call.rank < len(ranks := self.ranks(call)))
        return told.most_common(1)[0][0] if told else -1


def read_execution_traces(files: Sequence[Path], context: Context) -> Reading:
    """One graph of all ranks. FileError for a file without nodes."""
    ranks, beside = read_ranks(files, context)
    ranks.sort(key=lambda one: one.rank)
    counts = [_counts(one) for one in ranks]
    facts = {"ranks": len(ranks)} | (
        counts[0] if len(counts) == 1 else {"by_rank": counts, "nodes": sum(c["nodes"] for c in counts)}
    )
    assumed = [
        "operators of a thread run in the order of their numbers, those on a GPU in one stream; a call waits for what was launched "
        "before it",
        "the trace has no times: operators on a GPU take what their bytes need there, or with `replay --compute kernels` what our "
        "kernels of their shapes do (fused attention as one kernel); give the profiler's trace too for measured ones",
    ]
    broken = [f"{one.source}: {what}" for one in ranks for what in one.broken]
    graph = _graph(ranks)
    built = (f"a graph of {len(graph):,} tasks on {len(ranks)} rank{'s' * (len(ranks) > 1)}",)
    ignored = ("values of scalars", "storages", *([f"files of the archive that are no JSON: {beside}"] if beside else []))
    return Reading("pytorch-et", Content.GRAPH, graph, facts, built, ignored, tuple(assumed), tuple(broken))


def _graph(ranks: list[NodeColumns]) -> TraceGraph:
    names: dict[str, int] = {}
    groups: dict[tuple[int, ...], int] = {}
    columns: dict[str, list[Any]] = {
        key: [] for key in ("name", "kind", "host", "lane", "bytes", "comm", "group", "ids", "products")
    }
    deps: list[list[int]] = []
    starts = [0]
    attentions: list[tuple[int, ...]] = []
    for rank in ranks:
        order = sorted(range(len(rank.id)), key=lambda at: rank.id[at])
        place = {rank.id[at]: starts[-1] + number for number, at in enumerate(order)}
        outer = rank.around_attention()
        inner, texts = set(rank.parent), list(rank.names)
        threads, last = set(rank.thread), -1
        stream = min(set(range(len(threads) + 1)) - threads)  # of all operators on the GPU
        for at in order:
            call = rank.calls.get(at)
            leaf = outer[at] == at if at in outer else bool(rank.operator[at]) and rank.id[at] not in inner
            members = _members(call.size, ranks) if call else ()
            columns["name"].append(names.setdefault(texts[rank.name[at]], len(names)))
            columns["kind"].append(TaskKind.COLLECTIVE if call else TaskKind.COMPUTE if leaf else TaskKind.MARK)
            works = leaf and call is None and at not in rank.idle
            columns["host"].append(call is None and not works)
            if works and (shape := rank.attentions.get(at)) is not None:
                task = len(columns["name"]) - 1
                attentions.append((task, task, *shape))
            columns["products"].append(rank.products.get(at, (0,) * 5) if works else (0,) * 5)
            columns["lane"].append(stream if works else rank.thread[at])
            columns["bytes"].append(rank.bytes[at] if call or leaf else float("nan"))
            columns["comm"].append(call.comm if call else Comm.NONE)
            columns["group"].append(groups.setdefault(members, len(groups)) if members else -1)
            columns["ids"].append(rank.id[at])
            own, parent = place[rank.id[at]], place.get(rank.parent[at], -1)
            parent = parent if outer.get(at, at) == at else -1  # the host goes on beside the attention that it is inside of
            deps.append(sorted({before for before in (parent, last if call else -1) if 0 <= before < own}))
            last = own if works else last
        starts.append(starts[-1] + len(order))
    count = starts[-1]
    kind = np.array(columns["kind"], np.uint8)
    return TraceGraph(
        np.array(starts, np.int64), np.array(columns["name"], np.int32), kind, np.array(columns["host"], bool),
        np.array(columns["lane"], np.int32), np.where(kind == TaskKind.MARK, 0.0, np.nan), np.full(count, np.nan),
        np.array(columns["bytes"], np.float64), np.array(columns["comm"], np.uint8), np.array(columns["group"], np.int32),
        np.full(count, -1, np.int32), np.full(count, -1, np.int64),
        np.concatenate(([0], np.cumsum([len(one) for one in deps]))).astype(np.int64),
        np.array([dep for one in deps for dep in one], np.int64), tuple(names), tuple(groups),
        ids=np.array(columns["ids"], np.int64), products=np.array(columns["products"], np.int64).reshape(-1, 5),
        attentions=np.array(attentions, np.int64).reshape(-1, len(COLUMNS)),
    )  # fmt: skip


def _members(size: int, ranks: list[NodeColumns]) -> tuple[int, ...]:
    """The ranks of a group: all that were traced where the size agrees, since traces name a group's size and not its ranks."""
    return tuple(range(len(ranks))) if len(ranks) > 1 and size in (0, len(ranks)) else ()


def _counts(rank: NodeColumns) -> dict[str, Any]:
    fields = rank.around.fields
    known = set(rank.id)
    texts = list(rank.names)
    named = [texts[one] for one in rank.name]
    start, finish = fields.get("start_ts"), fields.get("finish_ts")
    groups = [name for name in named if name.startswith(("nccl:", "gloo:")) or (name.startswith("c10d::") and name.endswith("_"))]
    return {
        "rank": rank.rank,
        "schema": str(fields.get("schema", "")),
        "nodes": len(rank.id),
        "unique_ids": len(known),
        "parents_missing": sum(parent not in known for parent in rank.parent),
        "top_names": dict(Counter(named).most_common(12)),
        "nccl_nodes": dict(Counter(groups)),
        "record_param_comms": rank.call_counts,
        "duration_ms": finish - start if isinstance(start, int) and isinstance(finish, int) else None,
    }
