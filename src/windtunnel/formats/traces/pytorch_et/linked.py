"""Execution traces linked with the profiler's traces of the same run: one graph with measured times.

The profiler (Kineto) knows when and where: kernels, streams, launches, gaps. The execution trace knows what: the process group of a
call with its ranks, bytes of operators, shapes of products, which operator wrote what another one reads. Used of it are:

* the group, the bytes and the other end of a call where the profiler's events leave them open (`linked_calls`); control parents
  lead from a kernel's operator to its call;
* bytes and FLOPs of kernels, numbers of nodes as `ids`, and dependencies between streams by storages (`linked_tasks`).

Order on a thread and on a stream is the profiler's. Control parents give no order beyond that: a node is inside its parent.

What only the execution trace knows of the tasks of a measured graph: bytes, FLOPs, and which data they wait for.

What only the execution trace knows of the calls that the profiler measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import FileError, SpecError
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.kineto.calls import BY_SENDS
from windtunnel.formats.traces.kineto.reader import broken_of, ranked_traces, run_of
from windtunnel.formats.traces.kineto.trace import ReadTrace
from windtunnel.formats.traces.pytorch_et.links import LEAST, ORDER, Links, NumberedColumns, links_of, nodes_of_events
from windtunnel.formats.traces.pytorch_et.nodes import NodeCall
from windtunnel.formats.traces.pytorch_et.ranks import NodeColumns, ProcessGroups, read_ranks
from windtunnel.records.run import EventKind, Events, RankTrace
from windtunnel.records.trace_graph import COLUMNS, TaskKind, TraceGraph
from windtunnel.traces.graph import graph_and_rows

_DEEPEST = 64
"""Levels above a kernel's operator at which its call is looked for."""


@dataclass(frozen=True)
class FilledCalls:
    """A rank's trace whose calls were filled, and how many got a group, bytes, or another name."""

    trace: RankTrace
    groups: int = 0
    bytes: int = 0


def fill_calls(trace: RankTrace, node: Int64s, nodes: NodeColumns, groups: ProcessGroups) -> FilledCalls:
    """The trace with what its calls leave open: the group with its ranks, the bytes, and the other end of a transfer.

    `node` [E]: the node of each event. A call's node lies inside its `record_param_comms`: the control parents lead there. What
    the profiler says stays.
    """
    events = trace.events
    rows = np.flatnonzero(
        (node >= 0) & ((events.kind == EventKind.CALL) | ((events.kind == EventKind.OPERATOR) & (events.comm > 0)))
    )
    parents = CallParents(nodes)
    columns = {name: getattr(events, name).copy() for name in ("comm", "bytes", "group", "peer")}
    numbers = {(ranks, name): at for at, (ranks, name) in enumerate(zip(events.groups, _texts(events), strict=True))}
    counts = {"group": 0, "bytes": 0}
    for row in rows.tolist():
        at = parents.call_of(int(node[row]))
        if at < 0:
            continue
        call = nodes.calls[at]
        own = Comm(int(columns["comm"][row]))
        if own is Comm.NONE or (own is Comm.SEND_RECV and call.comm in BY_SENDS):
            own = columns["comm"][row] = call.comm
        if own is not call.comm:  # several calls that were launched as one
            continue
        if np.isnan(columns["bytes"][row]) and call.bytes == call.bytes:
            columns["bytes"][row] = call.bytes
            counts["bytes"] += 1
        if columns["group"][row] < 0 and (ranks := groups.ranks(call)):
            columns["group"][row] = numbers.setdefault((ranks, groups.text(call)), len(numbers))
            columns["peer"][row] = _peer(call, ranks, int(columns["peer"][row]))
            counts["group"] += 1
    filled = replace(events, **columns, groups=tuple(r for r, _ in numbers), group_names=tuple(name for _, name in numbers))
    return FilledCalls(replace(trace, events=filled), counts["group"], counts["bytes"])


def _texts(events: Events) -> list[str]:
    """The name of each group; two groups that are the same in ranks and name stay two."""
    names = [*events.group_names, *[""] * (len(events.groups) - len(events.group_names))]
    seen: dict[tuple[tuple[int, ...], str], int] = {}
    pairs = enumerate(zip(events.groups, names, strict=True))
    return [name if seen.setdefault((ranks, name), at) == at else f"{name} {at}" for at, (ranks, name) in pairs]


def _peer(call: NodeCall, ranks: tuple[int, ...], known: int) -> int:
    return ranks[call.peer] if known < 0 and 0 <= call.peer < len(ranks) else known


class CallParents:
    """Finds the `record_param_comms` around a node by control parents."""

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self.place = {number: at for at, number in enumerate(nodes.id)}

    def call_of(self, at: int) -> int:
        """The place of the call that a node is or lies inside of; -1 none."""
        for _ in range(_DEEPEST):
            if at < 0 or at in self.nodes.calls:
                return at
            above = self.place.get(self.nodes.parent[at], -1)
            if above == at:
                break
            at = above
        return -1


_FINEST = 1e-9
"""Seconds that times of a trace are no finer than."""


@dataclass(frozen=True)
class RankLinks:
    """A rank's events with the node of each (-1 none), and its nodes."""

    events: Events
    node: Int64s
    nodes: NodeColumns


def fill_tasks(graph: TraceGraph, rows: Int64s, ranks: list[RankLinks | None]) -> tuple[TraceGraph, dict[str, int]]:
    """The graph with the nodes' numbers as `ids`, bytes and FLOPs of kernels, and edges between streams; and counts of these.

    `rows` [N]: the event of each task, -1 none. A kernel has the bytes and FLOPs of its operator where that launched no other one.
    """
    ids, size, flops = np.full(len(graph), -1, np.int64), graph.bytes.copy(), graph.flops.copy()
    products = np.zeros((len(graph), 5), np.int64)
    attentions: list[tuple[int, ...]] = []
    edges: list[tuple[int, int]] = []
    counts = {"kernels": 0, "linked kernels": 0, "kernels with bytes": 0}
    for number, links in enumerate(ranks):
        tasks = np.arange(graph.rank_start[number], graph.rank_start[number + 1])
        tasks = tasks[rows[tasks] >= 0]
        if links is None:
            continue
        node = links.node[rows[tasks]]
        device = ~graph.on_host[tasks]
        counts["kernels"] += int(device.sum())
        known = node >= 0
        ids[tasks[known]] = np.array(links.nodes.id, np.int64)[node[known]]
        counts["linked kernels"] += int((device & known).sum())
        alone = known & device & (np.bincount(node[known & device], minlength=len(links.nodes))[np.maximum(node, 0)] == 1)
        alone &= (graph.kind[tasks] == TaskKind.COMPUTE) & (links.events.kind[rows[tasks]] == EventKind.KERNEL)
        alone &= np.array(links.nodes.operator, bool)[np.maximum(node, 0)]
        size[tasks[alone]] = np.array(links.nodes.bytes, np.float64)[node[alone]]
        for task, own in zip(tasks[alone].tolist(), node[alone].tolist(), strict=True):
            if (shape := links.nodes.products.get(own)) is not None:
                products[task] = shape
        attentions.extend(_attentions(graph, tasks[known & device], links, rows))
        counts["kernels with bytes"] += int(np.isfinite(size[tasks[alone]]).sum())
        edges.extend(_data_edges(graph, rows, tasks[known & device], links))
    counts["products"] = int((products[:, 0] > 0).sum())
    flops = np.where(products[:, 0] > 0, 2.0 * np.prod(products[:, :4].astype(np.float64), axis=1), flops)
    counts["attentions"] = len({one[1] for one in attentions})
    fused = np.array(attentions, np.int64).reshape(-1, len(COLUMNS))
    graph = replace(graph, ids=ids, bytes=size, flops=flops, products=products, attentions=fused)
    graph, counts["data edges"] = _with_edges(graph, edges)
    return graph, counts


def _attentions(graph: TraceGraph, tasks: Int64s, links: RankLinks, rows: Int64s) -> list[tuple[int, ...]]:
    """Rows of `TraceGraph.attentions`: the kernels among the tasks that a fused attention of known shape launched. The first of an
    operator's kernels gives it its number."""
    outer = links.nodes.around_attention()
    first: dict[int, int] = {}
    found: list[tuple[int, ...]] = []
    for task in tasks.tolist() if outer else []:
        if graph.kind[task] != TaskKind.COMPUTE or links.events.kind[rows[task]] != EventKind.KERNEL:
            continue
        own = outer.get(int(links.node[rows[task]]), -1)
        if (shape := links.nodes.attentions.get(own)) is not None:
            found.append((task, first.setdefault(own, task), *shape))
    return found


def _data_edges(graph: TraceGraph, rows: Int64s, tasks: Int64s, links: RankLinks) -> list[tuple[int, int]]:
    """(writer, reader) of storages that a kernel or call read after another stream's had written them last.

    Only those that the measured times bear out: the writer had ended before the reader began. So the graph replays as measured,
    and a writer that becomes slower keeps its readers waiting, also where no stream was seen to wait.
    """
    events, nodes = links.events, links.nodes
    parents = CallParents(nodes)
    of_node: dict[int, list[int]] = {}
    for task in tasks.tolist():
        own = int(links.node[rows[task]])
        if graph.kind[task] == TaskKind.COLLECTIVE:
            own = own if (call := parents.call_of(own)) < 0 else call
        of_node.setdefault(own, []).append(task)
    begin, end = events.begin, events.begin + events.seconds
    written: dict[int, int] = {}  # storage -> the last task of its last writer
    edges: set[tuple[int, int]] = set()
    for own in sorted(of_node, key=lambda at: nodes.id[at]):
        first, last = of_node[own][0], of_node[own][-1]
        for storage in nodes.reads[nodes.read_start[own] : nodes.read_start[own + 1]]:
            writer = written.get(storage, -1)
            if writer >= 0 and graph.lane[writer] != graph.lane[first] and end[rows[writer]] <= begin[rows[first]] + _FINEST:
                edges.add((writer, first))
        for storage in nodes.writes[nodes.write_start[own] : nodes.write_start[own + 1]]:
            written[storage] = last
    return sorted(edges)


def _with_edges(graph: TraceGraph, edges: list[tuple[int, int]]) -> tuple[TraceGraph, int]:
    """The graph with more dependencies, and how many it did not have."""
    reader = np.repeat(np.arange(len(graph)), np.diff(graph.dep_start))
    have = set(zip(graph.deps.tolist(), reader.tolist(), strict=True)) if edges else set()
    new = [edge for edge in edges if edge not in have and edge[0] < edge[1]]
    if not new:
        return graph, 0
    reader = np.concatenate([reader, [after for _, after in new]])
    deps = np.concatenate([graph.deps, [before for before, _ in new]])
    order = np.lexsort((deps, reader))
    starts = np.concatenate(([0], np.cumsum(np.bincount(reader, minlength=len(graph))))).astype(np.int64)
    return replace(graph, dep_start=starts, deps=deps[order].astype(np.int64)), len(new)


SAID = ("distributedInfo", "the arguments of its calls")
"""Where a profiler's trace itself says its rank."""


@dataclass(frozen=True)
class _Linked:
    """A rank: its nodes, its trace, their links, the trace with its calls filled, and the node of each event."""

    nodes: NodeColumns
    trace: ReadTrace
    links: Links
    filled: FilledCalls
    tasks: RankLinks


def read_linked(traces: Sequence[Path], profiles: Sequence[Path], context: Context) -> Reading:
    """One graph of execution traces and profiler traces, a pair for each rank.

    FileError for a file without nodes or events, and for a pair of which less than 80 % of the operators are found in each other.
    SpecError for a pair whose files say that they are different ranks.
    """
    nodes, beside = read_ranks(traces, context, tensors=True)
    measured, notes = ranked_traces(profiles, context, NumberedColumns)
    world = max(one.trace.world for one in measured) or (len(measured) if len(measured) > 1 else 0)
    pairs, told = _pair_by_rank(nodes, measured, world)
    linked = [None if own is None else _link(own, trace, world) for own, trace in pairs]
    traces_of_run = [
        trace if one is None else replace(trace, trace=one.filled.trace) for one, (_, trace) in zip(linked, pairs, strict=True)
    ]
    graph, rows = graph_and_rows(run_of(traces_of_run, profiles))
    graph, counts = fill_tasks(graph, rows, [None if one is None else one.tasks for one in linked])
    whole = [one for one in linked if one is not None]
    facts: dict[str, Any] = {
        "ranks": len(pairs), "linked_ranks": len(whole), "tasks": len(graph), "groups": [list(one) for one in graph.groups[:64]],
        **{name.replace(" ", "_"): count for name, count in counts.items()}, "by_rank": [_facts(one) for one in whole],
    }  # fmt: skip
    built = (
        f"a graph of {len(graph):,} tasks on {len(pairs)} rank{'s' * (len(pairs) > 1)}, with measured times",
        f"{counts['linked kernels']:,} of {counts['kernels']:,} kernels, calls and copies with their operator, "
        f"{counts['kernels with bytes']:,} with bytes; {counts['data edges']:,} dependencies between streams by data",
    )
    ignored = ("values of scalars", *([f"files of the archive that are no JSON: {beside}"] if beside else []))
    assumed = dict.fromkeys([
        *notes, *told, "each launch, gap and wait of the host as measured",
        *(note for one in measured for note in one.assumed), *(note for one in whole for note in _link_assumptions(one)),
    ])  # fmt: skip
    broken = [f"{one.source}: {what}" for one in nodes for what in one.broken]
    broken += [f"{one.trace.source}: {what}" for one in measured for what in broken_of(one)]
    return Reading("pytorch-et with kineto", Content.GRAPH, graph, facts, built, ignored, tuple(assumed), tuple(broken))


def _pair_by_rank(
    nodes: list[NodeColumns], measured: list[ReadTrace], world: int
) -> tuple[list[tuple[NodeColumns | None, ReadTrace]], list[str]]:
    """Each profiler trace with the execution trace of its rank, None without one; and what was assumed for that."""
    said = {one.source: ProcessGroups(one.groups, one.calls.values(), world).own_rank(one.calls.values()) for one in nodes}
    if len(nodes) == len(measured) == 1:
        own, trace = nodes[0], measured[0]
        if trace.rank_from in SAID and said[own.source] not in (-1, trace.trace.rank):
            found = f"the execution trace of rank {said[own.source]} and the profiler's of rank {trace.trace.rank}"
            raise SpecError("FILE", found, "two traces of one rank")
        return [(own, trace)], []
    notes: list[str] = []
    by_rank: dict[int, NodeColumns] = {}
    for one in nodes:
        rank = said[one.source] if said[one.source] >= 0 else one.rank
        if rank in by_rank:
            raise SpecError("FILE", f"{by_rank[rank].source} and {one.source}", "one execution trace for each rank")
        by_rank[rank] = one
        if said[one.source] < 0:
            notes.append(f"{one.source}: rank {rank} from the file's name or place")
    pairs = [(by_rank.pop(trace.trace.rank, None), trace) for trace in measured]
    if len(nodes) == len(measured):
        left = iter([by_rank.pop(rank) for rank in sorted(by_rank)])
        for at, (partner, trace) in enumerate(pairs):
            if partner is None:
                partner = next(left)
                pairs[at] = (partner, trace)
                notes.append(f"{partner.source} belongs to {trace.trace.source}, by the order of the files")
    notes.extend(f"{one.source} is left out: no profiler trace of rank {rank}" for rank, one in sorted(by_rank.items()))
    notes.extend(f"{trace.trace.source}: no execution trace of rank {trace.trace.rank}" for own, trace in pairs if own is None)
    if all(own is None for own, _ in pairs):
        raise SpecError("FILE", f"execution traces of ranks {sorted(by_rank)}", "execution traces of the ranks that were profiled")
    return pairs, notes


def _link(nodes: NodeColumns, trace: ReadTrace, world: int) -> _Linked:
    links = links_of(nodes, trace)
    if links.share < LEAST:
        raise FileError(
            nodes.source,
            f"{links.found:,} of its {links.operators:,} operators in {trace.trace.source}",
            f"two traces of one rank and one window: at least {LEAST:.0%} of the operators of the shorter one",
            "Record both at once: profile(…, execution_trace_observer=ExecutionTraceObserver().register_callback(FILE)).",
        )
    node = nodes_of_events(links, trace)
    filled = fill_calls(trace.trace, node, nodes, ProcessGroups(nodes.groups, nodes.calls.values(), world))
    return _Linked(nodes, trace, links, filled, RankLinks(filled.trace.events, node, nodes))


def _facts(one: _Linked) -> dict[str, Any]:
    """Counts of a rank."""
    return {
        "rank": one.trace.trace.rank, "nodes": len(one.nodes), "operators": one.links.operators, "found": one.links.found,
        "profiler_operators": one.links.rows, "profiler_found": one.links.seen, "by": one.links.by,
        "sequence_apart": one.links.apart, "calls_with_group": one.filled.groups, "calls_with_bytes": one.filled.bytes,
    }  # fmt: skip


def _link_assumptions(one: _Linked) -> list[str]:
    """What a link rests on beyond equal numbers."""
    links, source = one.links, one.nodes.source
    notes = []
    if links.by == ORDER:
        notes.append(f"{source}: operators are linked by {ORDER} on each thread, since the profiler wrote no numbers of theirs")
    if links.apart:
        notes.append(
            f"{source}: recorded in another step than {one.trace.trace.source} (autograd's numbers lie {abs(links.apart)} apart): "
            "that both steps run the same operators"
        )
    if links.places > 1:
        notes.append(f"{source}: {links.places} windows of {one.trace.trace.source} are equal to it: the first one")
    return notes
