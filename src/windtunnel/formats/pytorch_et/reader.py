"""Execution traces of the ranks as one trace graph."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError
from windtunnel.formats.kineto.batches import Around, batches
from windtunnel.formats.kineto.sources import sources
from windtunnel.formats.pytorch_et.nodes import (
    COMMS,
    NODES,
    TracedNode,
    attribute,
    call_of_node,
    first_tensor,
    parent_of,
    side,
    tensor_bytes,
)
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.records.trace_graph import TaskKind, TraceGraph


@dataclass
class _Rank:
    """Nodes of a rank in columns, in the order of the file, and its counts."""

    source: str
    order: int
    id: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    thread: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    operator: list[bool] = field(default_factory=list)
    bytes: list[float] = field(default_factory=list)
    comm: list[int] = field(default_factory=list)
    group: list[tuple[str, int]] = field(default_factory=list)
    calls: dict[str, dict[str, float]] = field(default_factory=dict)
    around: Around = field(default_factory=Around)

    def add(self, node: TracedNode) -> None:
        name = node.name if isinstance(node.name, str) else str(node.name)
        number = node.id if isinstance(node.id, int) and abs(node.id) < 2**62 else -1
        thread = attribute(node, "tid")
        comm, size, group = Comm.NONE, float("nan"), ("", 0)
        if name == COMMS:
            call, comm, size, group_name, ranks = call_of_node(node)
            group = (group_name, ranks)
            entry = self.calls.setdefault(call, {"n": 0, "first_input_elems": 0, "first_input_bytes": 0})
            elements, first = first_tensor(node)
            entry["n"] += 1
            entry["first_input_elems"] += elements
            entry["first_input_bytes"] += int(first)
        operator = bool(attribute(node, "op_schema"))
        if operator:
            size = float(np.nansum([tensor_bytes(*side(node, "inputs")), tensor_bytes(*side(node, "outputs"))]))
        self.id.append(number)
        self.name.append(name)
        self.thread.append(thread if isinstance(thread, int) and -1 <= thread < 2**31 else -1)
        self.parent.append(parent_of(node))
        self.operator.append(operator)
        self.bytes.append(size)
        self.comm.append(int(comm))
        self.group.append(group)

    @property
    def rank(self) -> int:
        numbers = re.findall(r"\d{1,7}", self.source.rsplit("/", 1)[-1].split(".")[0])
        return int(numbers[-1]) if numbers else self.order


def read_execution_traces(files: Sequence[Path], context: Context) -> Reading:
    """One graph of all ranks. FileError for a file without nodes."""
    ranks: list[_Rank] = []
    beside = 0
    named = {str(path) for path in files}
    for source in sources(files, context.progress):
        first = next(source.chunks, b"")
        if source.name not in named and first.lstrip()[:1] != b"{":  # generated kernels, which lie in the archive of newer traces
            beside += 1
            continue
        rank = _Rank(source.name, len(ranks))
        for batch in batches(source.name, chain([first], source.chunks), rank.around, NODES):
            for node in batch:
                rank.add(node)
        rank.around.broken.extend(source.broken)
        if not rank.id:
            raise FileError(source.name, "an execution trace without nodes", NODES.what)
        ranks.append(rank)
    if not ranks:
        raise FileError(str(files[0]), "an archive without a trace", NODES.what)
    ranks.sort(key=lambda one: one.rank)
    counts = [_counts(one) for one in ranks]
    facts = {"ranks": len(ranks)} | (
        counts[0] if len(counts) == 1 else {"by_rank": counts, "nodes": sum(c["nodes"] for c in counts)}
    )
    assumed = [
        "operators of a thread run in the order of their numbers; a call waits for its operator",
        "the trace has no times: give a cluster to replay it, or the profiler's trace for measured ones",
    ]
    broken = [f"{one.source}: {what}" for one in ranks for what in _broken(one)]
    graph = _graph(ranks)
    built = (f"a graph of {len(graph):,} tasks on {len(ranks)} rank{'s' * (len(ranks) > 1)}",)
    ignored = ("values of scalars", "storages", *([f"files of the archive that are no JSON: {beside}"] if beside else []))
    return Reading("pytorch-et", Content.GRAPH, graph, facts, built, ignored, tuple(assumed), tuple(broken))


def _graph(ranks: list[_Rank]) -> TraceGraph:
    names: dict[str, int] = {}
    groups: dict[tuple[int, ...], int] = {}
    columns: dict[str, list[Any]] = {key: [] for key in ("name", "kind", "host", "lane", "bytes", "comm", "group", "ids")}
    deps: list[list[int]] = []
    starts = [0]
    for rank in ranks:
        order = sorted(range(len(rank.id)), key=lambda at: rank.id[at])
        place = {rank.id[at]: starts[-1] + number for number, at in enumerate(order)}
        inner = set(rank.parent)
        for at in order:
            call = rank.comm[at] != Comm.NONE
            leaf = rank.operator[at] and rank.id[at] not in inner
            members = _members(rank.group[at][1], ranks) if call else ()
            columns["name"].append(names.setdefault(rank.name[at], len(names)))
            columns["kind"].append(TaskKind.COLLECTIVE if call else TaskKind.COMPUTE if leaf else TaskKind.MARK)
            columns["host"].append(not call)
            columns["lane"].append(rank.thread[at])
            columns["bytes"].append(rank.bytes[at] if call or leaf else float("nan"))
            columns["comm"].append(rank.comm[at])
            columns["group"].append(groups.setdefault(members, len(groups)) if members else -1)
            columns["ids"].append(rank.id[at])
            own, parent = place[rank.id[at]], place.get(rank.parent[at], -1)
            deps.append([parent] if 0 <= parent < own else [])
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
        ids=np.array(columns["ids"], np.int64),
    )  # fmt: skip


def _members(size: int, ranks: list[_Rank]) -> tuple[int, ...]:
    """The ranks of a group: all that were traced where the size agrees, since traces name a group's size and not its ranks."""
    return tuple(range(len(ranks))) if len(ranks) > 1 and size in (0, len(ranks)) else ()


def _counts(rank: _Rank) -> dict[str, Any]:
    fields = rank.around.fields
    known = set(rank.id)
    top = Counter(rank.name).most_common(12)
    start, finish = fields.get("start_ts"), fields.get("finish_ts")
    groups = [
        name for name in rank.name if name.startswith(("nccl:", "gloo:")) or (name.startswith("c10d::") and name.endswith("_"))
    ]
    return {
        "rank": rank.rank,
        "schema": str(fields.get("schema", "")),
        "nodes": len(rank.id),
        "unique_ids": len(known),
        "parents_missing": sum(parent not in known for parent in rank.parent),
        "top_names": dict(top),
        "nccl_nodes": dict(Counter(groups)),
        "record_param_comms": rank.calls,
        "duration_ms": finish - start if isinstance(start, int) and isinstance(finish, int) else None,
    }


def _broken(rank: _Rank) -> list[str]:
    lost = rank.around.broken_events
    return [*([f"{lost} nodes that are not valid JSON"] if lost else []), *rank.around.broken]
