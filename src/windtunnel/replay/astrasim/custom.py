"""A collective that a Chakra trace describes: sends, receives and reductions of each rank (CustomAlgorithm.cc)."""

from __future__ import annotations

import numpy as np

from windtunnel.base.errors import SpecError
from windtunnel.formats.traces.chakra.trace import ChakraTrace
from windtunnel.records.trace_graph import TaskKind
from windtunnel.replay.astrasim.blocks import Blocks
from windtunnel.replay.astrasim.members import Members
from windtunnel.replay.astrasim.unfolded import send


def run_custom(trace: ChakraTrace, members: Members, entered: np.ndarray) -> np.ndarray:
    """Exits of the ranks. Sizes are the trace's; a node starts when its dependencies have ended, however many are in flight; a send
    ends when its message arrives, a reduction takes its duration or 1 ns."""
    graph = trace.graph
    if graph.ranks != len(members.ranks):
        raise SpecError("custom collective", f"{graph.ranks} ranks", f"{len(members.ranks)} ranks, as the group has")
    blocks = Blocks()
    start = blocks.start(entered)
    rank = graph.rank_of()
    receives = _match_sends(trace)
    end = np.full(len(graph), -1, np.int64)
    open_ = np.diff(graph.dep_start).astype(np.int64)
    for receive in receives:
        open_[receive] += 1
    owner = np.repeat(np.arange(len(graph)), np.diff(graph.dep_start))
    order = np.argsort(graph.deps, kind="stable")
    after = np.searchsorted(graph.deps[order], np.arange(len(graph) + 1))
    heard = {sender: receive for receive, sender in receives.items()}
    ready = np.nonzero(open_ == 0)[0].tolist()
    for at in ready:  # grows while it runs: an order in which every node comes after what it waits for
        waits = [end[[dep]] for dep in graph.deps[graph.dep_start[at] : graph.dep_start[at + 1]].tolist()] or [start[[rank[at]]]]
        if graph.kind[at] == TaskKind.SEND:
            ready_at = blocks.add(0, waits)
            src, dst = members.ranks[[rank[at]]], members.ranks[[int(graph.peer[at])]]
            end[at] = send(blocks, members.wires, ready_at, src, dst, int(trace.size[at]))[0]
        elif graph.kind[at] == TaskKind.RECEIVE:
            end[at] = blocks.add(0, [*waits, end[[receives[at]]]])[0]
        else:
            end[at] = blocks.add(max(1, int(trace.micros[at]) * 1000), waits)[0]
        following = owner[order[after[at] : after[at + 1]]].tolist() + ([heard[at]] if at in heard else [])
        for one in following:
            open_[one] -= 1
            if open_[one] == 0:
                ready.append(one)
    if (end < 0).any():
        raise SpecError("custom collective", f"{int((end < 0).sum())} nodes that wait for each other", "a trace that can end")
    leaves = [blocks.add(0, [end[[at]] for at in np.nonzero(rank == r)[0].tolist()] or [start[[r]]]) for r in range(graph.ranks)]
    links = members.wires.links if members.wires.aware else 0
    return blocks.run(links, np.ones(links)).end[np.concatenate(leaves)]


def _match_sends(trace: ChakraTrace) -> dict[int, int]:
    """The send that each receive waits for: the n-th of a sender, receiver and tag. SpecError where the numbers differ."""
    graph, rank = trace.graph, trace.graph.rank_of().tolist()
    sides: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
    for at in np.nonzero((graph.kind == TaskKind.SEND) | (graph.kind == TaskKind.RECEIVE))[0].tolist():
        sends, peer = graph.kind[at] == TaskKind.SEND, int(graph.peer[at])
        key = (rank[at], peer, int(graph.tag[at])) if sends else (peer, rank[at], int(graph.tag[at]))
        sides.setdefault(key, ([], []))[0 if sends else 1].append(at)
    out: dict[int, int] = {}
    for (src, dst, tag), (sent, received) in sides.items():
        if len(sent) != len(received) or not 0 <= dst < graph.ranks:
            raise SpecError(
                "custom collective",
                f"{len(sent)} sends and {len(received)} receives from {src} to {dst} with tag {tag}",
                "as many of both",
            )
        out |= dict(zip(received, sent, strict=True))
    return out
