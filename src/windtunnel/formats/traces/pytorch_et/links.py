"""Which node of an execution trace each event of the profiler's trace is, on one rank."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from windtunnel.base.arrays import Bools, Int32s, Int64s
from windtunnel.formats.traces.kineto.columns import EventColumns, integers
from windtunnel.formats.traces.kineto.fields import NO_ARGS, TraceEvent
from windtunnel.formats.traces.kineto.trace import ReadTrace
from windtunnel.formats.traces.pytorch_et.alignment import align
from windtunnel.formats.traces.pytorch_et.ranks import NodeColumns
from windtunnel.records.run import EventKind
from windtunnel.traces.windows import launch_of

LEAST = 0.8
"""Share of the operators that have to be found for two traces to be of one window."""
RECORDS, EXTERNALS, ORDER = "record function ids", "external ids", "their order"
_LANES = 4
"""Threads of the profiler's trace that are tried for one of the execution trace."""
_TRUSTED = 0.05
"""Share of operators with equal numbers above which numbers are no accident: then order is not asked."""


@dataclass
class NumberedColumns(EventColumns):
    """Events with the numbers that tie them to an execution trace."""

    record: list[Int64s] = field(default_factory=list)  # [R] number of the record function; 0 and -1 none
    number: list[Int64s] = field(default_factory=list)  # [R] autograd's sequence number; -1 none

    def _append(self, events: list[TraceEvent]) -> None:
        super()._append(events)
        args = [one if (one := event.args) is not None else NO_ARGS for event in events]
        self.record.append(integers([one.record for one in args]))
        self.number.append(integers([one.number for one in args]))


@dataclass(frozen=True)
class Links:
    """`node` [E]: the node that each event of the host is, -1 none. `found` of `operators` of the execution trace, `seen` of
    `rows` operators of the profiler.

    `by` says how; `apart`: by how much autograd's numbers differ between the two, None where nothing tells; `places`: how many
    windows fit equally well.
    """

    node: Int64s
    by: str
    found: int
    operators: int
    seen: int
    rows: int
    apart: int | None = None
    places: int = 1

    @property
    def share(self) -> float:
        """The share that was found of the trace that shows less."""
        return max(self.found / max(self.operators, 1), self.seen / max(self.rows, 1))


@dataclass(frozen=True)
class _Host:
    """H events of the host that may be nodes: their rows, names as the nodes number them (-1 none has it), and numbers."""

    row: Int64s
    name: Int64s
    lane: Int32s
    record: Int64s
    external: Int64s
    number: Int64s


def links_of(nodes: NodeColumns, trace: ReadTrace) -> Links:
    """The links by equal numbers and names; where the profiler wrote no such numbers, by the order of names on each thread.

    `rf_id` of a node is the profiler's "Record function id" (PyTorch 2.3 and later), or its "External id" (before 1.12). Numbers
    that are equal by accident have other names.
    """
    host = _host(nodes, trace)
    name, record = np.array(nodes.name, np.int64), np.array(nodes.record, np.int64)
    best = None
    for numbers, by in ((host.record, RECORDS), (host.external, EXTERNALS)):
        links = _links(nodes, trace, host, _by_number(name, record, host, numbers), by)
        if links.share >= LEAST or (by == RECORDS and links.share >= _TRUSTED):
            return links
        best = links if best is None or links.share > best.share else best
    found, places = _by_order(nodes, host)
    ordered = _links(nodes, trace, host, found, ORDER, places)
    return ordered if best is None or ordered.share >= best.share else best


def _host(nodes: NodeColumns, trace: ReadTrace) -> _Host:
    events, columns = trace.trace.events, trace.columns
    kinds = np.isin(events.kind, (EventKind.OPERATOR, EventKind.ANNOTATION))
    row = np.flatnonzero(kinds) if len(trace.rows) else np.empty(0, np.int64)
    known = np.array([nodes.names.get(name, -1) for name in events.names] or [-1], np.int64)
    record, number = (
        np.concatenate(parts)[trace.rows[row]]
        if isinstance(columns, NumberedColumns) and parts
        else np.full(len(row), -1, np.int64)
        for parts in (getattr(columns, "record", []), getattr(columns, "number", []))
    )
    return _Host(row, known[events.name[row]], events.lane[row], record, events.external[row], number)


def _links(nodes: NodeColumns, trace: ReadTrace, host: _Host, found: Int64s, by: str, places: int = 1) -> Links:
    """`found` [H]: the node of each event of the host."""
    events = trace.trace.events
    node = np.full(len(events), -1, np.int64)
    node[host.row] = found
    linked = found >= 0
    operator = np.array(nodes.operator, bool)
    rows = events.kind[host.row] == EventKind.OPERATOR
    return Links(
        node, by, int(operator[np.unique(found[linked])].sum()), int(operator.sum()), int((linked & rows).sum()), int(rows.sum()),
        _sequence_offset(np.array(nodes.number, np.int64)[found[linked]], host.number[linked]), places,
    )  # fmt: skip


def _by_number(name: Int64s, record: Int64s, host: _Host, numbers: Int64s) -> Int64s:
    """[H] the node with an event's number and name; -1 none."""
    found = np.full(len(host.row), -1, np.int64)
    known = np.flatnonzero(record > 0)
    if not len(known):
        return found
    order = known[np.argsort(record[known], kind="stable")]
    asked = np.flatnonzero((numbers > 0) & (host.name >= 0))
    place = np.minimum(np.searchsorted(record[order], numbers[asked]), len(order) - 1)
    node = order[place]
    equal = (record[node] == numbers[asked]) & (name[node] == host.name[asked])
    found[asked[equal]] = node[equal]
    return found


def _by_order(nodes: NodeColumns, host: _Host) -> tuple[Int64s, int]:
    """[H] the node of each event by the order of names on each thread, and how many windows fit equally well.

    Each thread of the execution trace takes the thread of the profiler's that shares most names in order; names that the other
    one lacks are left out first, such as the profiler's own steps.
    """
    found, places = np.full(len(host.row), -1, np.int64), 1
    name, thread, ids = np.array(nodes.name, np.int64), np.array(nodes.thread, np.int64), np.array(nodes.id, np.int64)
    number = np.array(nodes.number, np.int64)
    lanes = {int(lane): _in_order(host, np.flatnonzero((host.lane == lane) & (host.name >= 0))) for lane in np.unique(host.lane)}
    size = len(nodes.names)
    counts = {lane: np.bincount(host.name[rows], minlength=size) for lane, rows in lanes.items()}
    threads, population = np.unique(thread, return_counts=True)
    for one in threads[np.argsort(-population, kind="stable")].tolist():
        mine = np.flatnonzero(thread == one)
        mine = mine[np.argsort(ids[mine], kind="stable")]
        own = np.bincount(name[mine], minlength=size)
        shared = {lane: int(np.minimum(own, theirs).sum()) for lane, theirs in counts.items()}
        best = None
        for lane in sorted((lane for lane in shared if shared[lane]), key=lambda lane: -shared[lane])[:_LANES]:
            left, right = mine[_common(name[mine], counts[lane])], lanes[lane][_common(host.name[lanes[lane]], own)]
            pairs = align(name[left], host.name[right], number[left], host.number[right])
            if best is None or len(pairs.first) > len(best[1].first):
                best = lane, pairs, left, right
            if len(pairs.first) >= 0.95 * min(len(left), len(right)):
                break
        if best is not None and len(best[1].first):
            lane, pairs, left, right = best
            found[right[pairs.second]] = left[pairs.first]
            places = max(places, pairs.places)
            del counts[lane], lanes[lane]
    return found, places


def _common(names: Int64s, counts: Int64s) -> Bools:
    return np.asarray(counts[names] > 0, bool)


def _in_order(host: _Host, rows: Int64s) -> Int64s:
    """Events of a thread as they began: by their external ids, which a thread counts up, since times may be equal."""
    ids = host.external[rows]
    return rows[np.argsort(ids, kind="stable")] if len(rows) and ids.min() > 0 else rows


def _sequence_offset(nodes: Int64s, events: Int64s) -> int | None:
    """What most linked operators with a sequence number differ by."""
    both = (nodes >= 0) & (events >= 0)
    if not both.any():
        return None
    values, counts = np.unique(events[both] - nodes[both], return_counts=True)
    return int(values[np.argmax(counts)])


def nodes_of_events(links: Links, trace: ReadTrace) -> Int64s:
    """[E] the node that each event belongs to: an operator its own, a launch the innermost linked range around it on its thread,
    what runs on the device that of its launch; -1 none."""
    events = trace.trace.events
    node = links.node.copy()
    launches = np.isin(events.kind, (EventKind.LAUNCH, EventKind.SYNC))
    rows = np.flatnonzero((node >= 0) | launches)
    rows = rows[np.lexsort((-events.seconds[rows], events.begin[rows]))]
    begin, end = events.begin.tolist(), (events.begin + events.seconds).tolist()
    lane, linked = events.lane.tolist(), links.node.tolist()
    open_: dict[int, list[int]] = {}
    for row in rows.tolist():
        stack = open_.setdefault(lane[row], [])
        while stack and end[stack[-1]] < begin[row]:
            stack.pop()
        if linked[row] >= 0:
            stack.append(row)
        elif stack:
            node[row] = linked[stack[-1]]
    owner = launch_of(events)
    launched = owner >= 0
    node[launched] = node[owner[launched]]
    return node
