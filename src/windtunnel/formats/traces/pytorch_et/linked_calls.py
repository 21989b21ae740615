"""What only the execution trace knows of the calls that the profiler measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.comm import Comm
from windtunnel.formats.traces.kineto.call_columns import BY_SENDS
from windtunnel.formats.traces.pytorch_et.nodes import NodeCall
from windtunnel.formats.traces.pytorch_et.process_groups import ProcessGroups
from windtunnel.formats.traces.pytorch_et.ranks import NodeColumns
from windtunnel.records.run import EventKind, Events, RankTrace

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
