"""What only the execution trace knows of the tasks of a measured graph: bytes, FLOPs, and which data they wait for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.formats.traces.pytorch_et.linked_calls import CallParents
from windtunnel.formats.traces.pytorch_et.ranks import NodeColumns
from windtunnel.records.attention import COLUMNS
from windtunnel.records.run import EventKind, Events
from windtunnel.records.trace_graph import TaskKind, TraceGraph

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
