"""Which node of an execution trace each event of the profiler's trace is, on one rank.

Two sequences of names that two observers of one thread wrote, laid beside each other.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.formats.traces.kineto.columns import EventColumns, integers
from windtunnel.formats.traces.kineto.fields import NO_ARGS, TraceEvent
from windtunnel.formats.traces.kineto.trace import ReadTrace
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


_LENGTHS = (32, 8, 2)
"""Names in a row that a common place begins with; shorter ones where no longer ones are found."""
_STARTS = 16
_MOST_PLACES = 1024
_COMPARED = 4096
_LOOK = 64
"""Names that one observer may have beyond the other between two common ones."""
_AGREE = 4


@dataclass(frozen=True)
class Alignment:
    """`first[i]` and `second[i]` are the same operator. `places`: how many places of the longer sequence fit equally well, of which
    the first was taken."""

    first: Int64s
    second: Int64s
    places: int


_NOTHING = Alignment(np.empty(0, np.int64), np.empty(0, np.int64), 0)


def align(first: Int64s, second: Int64s, first_numbers: Int64s, second_numbers: Int64s) -> Alignment:
    """Pairs of equal names in order. `*_numbers` [N] say which of several equal windows is meant: numbers of the operators (-1
    none), which are equal where both observers saw the same one.

    The beginning of the shorter sequence is looked for in the longer one; of several places the one with the most equal numbers,
    then names, is taken, then the first. From there both are followed in both directions; where they part, the next place where a
    few names agree again is taken.
    """
    if len(first) > len(second):
        turned = align(second, first, second_numbers, first_numbers)
        return Alignment(turned.second, turned.first, turned.places)
    anchor = _anchor(first, second, first_numbers, second_numbers)
    if anchor is None:
        return _NOTHING
    at, place, places = anchor
    after = _follow(first[at:], second[place:])
    before = _follow(first[:at][::-1], second[:place][::-1])
    return Alignment(
        np.concatenate([(at - 1 - before[0])[::-1], after[0] + at]),
        np.concatenate([(place - 1 - before[1])[::-1], after[1] + place]),
        places,
    )


def _anchor(short: Int64s, long: Int64s, short_numbers: Int64s, long_numbers: Int64s) -> tuple[int, int, int] | None:
    """A place in both sequences that are the same operator, and how many places are as good; None where nothing agrees."""
    for length in _LENGTHS:
        length = min(length, len(short))
        for at in range(0, max(len(short) - length, 0) + 1, max(1, len(short) // _STARTS)):
            found = _places(short[at : at + length], long)[:_MOST_PLACES] if length else _NOTHING.first
            if not len(found):
                continue
            scores = []
            for place in found:
                count = min(len(short) - at, len(long) - place, _COMPARED)
                same = short[at : at + count] == long[place : place + count]
                numbers = short_numbers[at : at + count]
                equal = same & (numbers >= 0) & (numbers == long_numbers[place : place + count])
                scores.append((int(equal.sum()), int(same.sum())))
            best = max(scores)
            return at, int(found[scores.index(best)]), 1 if best[0] else scores.count(best)
    return None


def _places(piece: Int64s, inside: Int64s) -> Int64s:
    """Where `piece` stands inside another sequence."""
    count = len(inside) - len(piece) + 1
    if count <= 0:
        return np.empty(0, np.int64)
    found = np.flatnonzero(inside[:count] == piece[0])
    for offset in range(1, len(piece)):
        found = found[inside[found + offset] == piece[offset]]
    return found


def _follow(first: Int64s, second: Int64s) -> tuple[Int64s, Int64s]:
    """Places of both sequences that belong together, from the beginning of both."""
    runs: list[tuple[int, int, int]] = []
    i = j = 0
    while i < len(first) and j < len(second):
        count = min(len(first) - i, len(second) - j, _COMPARED)
        apart = np.flatnonzero(first[i : i + count] != second[j : j + count])
        length = int(apart[0]) if len(apart) else count
        if length:
            runs.append((i, j, length))
        i, j = i + length, j + length
        if len(apart):
            step = _rejoin(first[i : i + _LOOK + _AGREE].tolist(), second[j : j + _LOOK + _AGREE].tolist())
            if step is None:
                break
            i, j = i + step[0], j + step[1]
    if not runs:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return (
        np.concatenate([np.arange(begin, begin + length) for begin, _, length in runs]),
        np.concatenate([np.arange(begin, begin + length) for _, begin, length in runs]),
    )


def _rejoin(first: list[int], second: list[int]) -> tuple[int, int] | None:
    """The fewest names to leave out of both so that a few agree again."""
    places: dict[tuple[int, ...], int] = {}
    for at in range(len(second) - _AGREE, -1, -1):
        places[tuple(second[at : at + _AGREE])] = at
    steps = [
        (at + places[piece], at) for at in range(len(first) - _AGREE + 1) if (piece := tuple(first[at : at + _AGREE])) in places
    ]
    if not steps:
        return None
    both, own = min(steps)
    return own, both - own
