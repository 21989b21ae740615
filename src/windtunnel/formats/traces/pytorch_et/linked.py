"""Execution traces linked with the profiler's traces of the same run: one graph with measured times.

The profiler (Kineto) knows when and where: kernels, streams, launches, gaps. The execution trace knows what: the process group of a
call with its ranks, bytes of operators, shapes of products, which operator wrote what another one reads. Used of it are:

* the group, the bytes and the other end of a call where the profiler's events leave them open (`linked_calls`); control parents
  lead from a kernel's operator to its call;
* bytes and FLOPs of kernels, numbers of nodes as `ids`, and dependencies between streams by storages (`linked_tasks`).

Order on a thread and on a stream is the profiler's. Control parents give no order beyond that: a node is inside its parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, SpecError
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.kineto.reader import broken_of, ranked_traces, run_of
from windtunnel.formats.traces.kineto.trace import ReadTrace
from windtunnel.formats.traces.pytorch_et.linked_calls import FilledCalls, fill_calls
from windtunnel.formats.traces.pytorch_et.linked_tasks import RankLinks, fill_tasks
from windtunnel.formats.traces.pytorch_et.links import LEAST, ORDER, Links, NumberedColumns, links_of, nodes_of_events
from windtunnel.formats.traces.pytorch_et.process_groups import ProcessGroups
from windtunnel.formats.traces.pytorch_et.ranks import NodeColumns, read_ranks
from windtunnel.traces.graph import graph_and_rows

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
