"""Clock alignment: offsets and drifts of the machines' clocks such that no message arrives before it was sent.

Each machine's clock is corrected to a reference by a continuous, piecewise linear function of time. A pair of events of which one
came first (`findings.event_pairs`) bounds the difference of two corrections from one side. All pairs together form a linear
programme. Of the corrections that satisfy it, those with the largest minimum slack are chosen, then the next larger, so that two
machines have the same slack in both directions. This is exact if delays are symmetric, and wrong by at most the slack otherwise.
The idea of bounding clocks by message pairs is from Duda et al., "Estimating global time in distributed systems" (ICDCS 1987).

Pairs of events on two machines of which the first came before the second; used to compare clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, hstack, vstack

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.records.sections import Section, Sections

PIECE_SECONDS = 900.0
"""Length of a linear piece: the rate of a quartz clock changes by about 0.1 ppm in that time."""
_BINS = 24
_ROUNDS = 12
_TOLERANCE = 1e-9
_MOST_BOUNDED = 64
_MOST_SLACK = 1e7  # µs


@dataclass(frozen=True)
class MachineClocks:
    """Corrections of the machines' clocks, in seconds. The time on the reference's clock is `t + correction`, where t is counted
    from `zero`.
    """

    nodes: tuple[str, ...]
    reference: str
    zero: float
    knots: Floats
    """[K]"""
    values: Floats
    """[nodes, K]: corrections at the knots."""
    bound: Floats
    """[nodes]: largest possible error of a machine's correction at the worst moment, given the pairs and arbitrary delays. inf if
    nothing links the machine to the reference; NaN if it was not computed.
    """
    slack: float
    """Smallest slack of any pair; negative if pairs contradict each other."""
    hosts: Mapping[int, str]
    """Rank → node."""

    def correction(self, node: str, time: Any) -> Floats:
        """What to add to `time` (seconds after `zero` on the node's clock). 0 for an unknown machine."""
        times = np.asarray(time, np.float64)
        if node not in self.nodes:
            return np.zeros_like(times)
        return _interpolate(self.knots, self.values[self.nodes.index(node)], times)

    def offset(self, node: str) -> float:
        """Seconds by which a node's clock is ahead of the reference in the middle of the run."""
        return -float(self.correction(node, (self.knots[0] + self.knots[-1]) / 2))

    def drift(self, node: str) -> float:
        """Relative rate of a node's clock against the reference, over the whole run: 1e-4 is 100 ppm."""
        first, last = self.correction(node, self.knots[0]), self.correction(node, self.knots[-1])
        rate = float(last - first) / float(self.knots[-1] - self.knots[0])
        return 1 / (1 + rate) - 1


def clocks_of(
    sections: Sections, exchanges: Mapping[str, Sequence[Sequence[int]]] | None = None, *, reference: str | None = None,
    bounds: bool = True,
) -> MachineClocks:  # fmt: skip
    """The clocks of the machines in `sections.hosts`, from their messages and collectives, and from the timestamps that shippers
    exchanged with the collector (`RunStore.exchanges()`). `reference`: the machine whose clock is taken as right; default: the
    first by name.

    SpecError if the reference is not among them.
    """
    pairs = message_pairs(sections)
    nodes = sorted(set(sections.hosts.values()))
    if exchanges := {node: stamps for node, stamps in (exchanges or {}).items() if node in nodes}:  # others join no records
        pairs += exchange_pairs(exchanges, sections.zero)
    return solve_clocks(pairs, nodes, sections.zero, dict(sections.hosts), reference, bounds=bounds)


def solve_clocks(
    pairs: Sequence[EventPairs], nodes: Sequence[str], zero: float, hosts: Mapping[int, str], reference: str | None = None, *,
    bounds: bool = True,
) -> MachineClocks:  # fmt: skip
    """Clocks that satisfy `pairs`. Machines that appear only in pairs are added to `nodes`."""
    names = list(dict.fromkeys([*nodes, *(name for pair in pairs for name in (pair.source, pair.target))]))
    first = reference or (names[0] if names else "")
    if names and first not in names:
        raise SpecError("reference", first, ", ".join(names[:12]))
    times = np.concatenate([np.zeros(0), *(pair.early for pair in pairs), *(pair.late for pair in pairs)])
    low, high = (float(times.min()), float(times.max())) if len(times) else (0.0, 1.0)
    knots = np.linspace(low, max(high, low + 1e-3), 2 + int((high - low) / PIECE_SECONDS))
    if not pairs:
        none = np.zeros((len(names), len(knots)))
        bound = np.array([0.0 if name == first else np.inf for name in names])
        return MachineClocks(tuple(names), first, zero, knots, none, bound, np.inf, hosts)
    programme = _LinearProgram(pairs, names, names.index(first), knots)
    values, slack = programme.solve()
    bound = programme.bounds(values) if bounds and len(names) <= _MOST_BOUNDED else np.full(len(names), np.nan)
    return MachineClocks(tuple(names), first, zero, knots, values, bound, slack, hosts)


def align(sections: Sections, clocks: MachineClocks) -> Sections:
    """The sections on the reference's clock: begins are corrected, durations are scaled by the clock's rate."""
    begin, finish = sections.begin.copy(), end_times(sections)
    shift = sections.zero - clocks.zero
    stretch = np.ones(len(begin))
    for node in set(clocks.hosts.values()):
        ranks = [rank for rank, host in clocks.hosts.items() if host == node]
        mine = np.flatnonzero(np.isin(sections.rank, ranks))
        early = clocks.correction(node, sections.begin[mine] + shift)
        late = clocks.correction(node, finish[mine] + shift)
        length = finish[mine] - sections.begin[mine]
        known = np.isfinite(length) & (length > 0)
        stretch[mine[known]] += (late[known] - early[known]) / length[known]
        begin[mine] += early
    return replace(sections, begin=begin, seconds=sections.seconds * stretch, host_seconds=sections.host_seconds * stretch)


class _LinearProgram:
    """Unknowns: corrections at the knots of each machine, then a slack for each two machines that share a pair."""

    def __init__(self, pairs: Sequence[EventPairs], names: Sequence[str], reference: int, knots: Floats) -> None:
        self.names, self.knots, self.reference = names, knots, reference
        place = {name: at for at, name in enumerate(names)}
        self.pairs = [(place[pair.source], place[pair.target], pair.early, pair.late) for pair in pairs if len(pair.early)]
        links = sorted({(min(a, b), max(a, b)) for a, b, _, _ in self.pairs})
        self.link = {link: at for at, link in enumerate(links)}
        self.size = len(names) * len(knots)
        # Unknowns are deviations from a first solution, so they are small for any offsets.
        self.start = self._initial_corrections()
        self.chosen = [self._envelope(*pair) for pair in self.pairs]

    def solve(self) -> tuple[Floats, float]:
        """Corrections [machines, knots] and the least slack of all pairs. Pairs that a round left out and violated are added to the
        next.
        """
        for _ in range(_ROUNDS):
            matrix, limit = self._constraints()
            found = self._solve_balanced(matrix, limit)
            values = self.start + found[: self.size].reshape(len(self.names), -1)
            if not self._add_violated(values, found[self.size :]):
                break
        return values, min(float(self._slacks(pair, values).min()) for pair in self.pairs)

    def _solve_balanced(self, matrix: Any, limit: Floats) -> Floats:
        """Corrections and slacks in seconds, maximising the least slack first, then the next.

        A plain sum would give up a tight pair for several loose ones. Solved in microseconds, because HiGHS' tolerance of 1e-7 is
        absolute.
        """
        links, size = len(self.link), self.size
        matrix = hstack([matrix, csr_array((matrix.shape[0], 1))])
        least = np.full(links, -np.inf)
        found = np.zeros(size + links)
        for _ in range(2 * len(self.names) + 2):
            free = np.flatnonzero(np.isinf(least))
            if not len(free):
                break
            count = len(free)
            cells = (np.tile(np.arange(count), 2), np.concatenate([np.full(count, size + links), size + free]))
            above = coo_array((np.concatenate([np.ones(count), -np.ones(count)]), cells), shape=(count, size + links + 1))
            cost = np.zeros(size + links + 1)
            cost[-1] = -1.0
            answer = linprog(
                cost,
                csr_array(vstack([matrix, above])),
                np.concatenate([limit * 1e6, np.zeros(count)]),
                bounds=[
                    *self._variable_bounds(),
                    *[(low if np.isfinite(low) else None, _MOST_SLACK) for low in least],
                    (None, _MOST_SLACK),
                ],
                method="highs",
            )
            if answer.x is None:
                break
            found = np.asarray(answer.x[:-1]) / 1e6
            tight = free[np.asarray(answer.ineqlin.marginals)[-count:] < -_TOLERANCE]
            if not len(tight):
                break
            least[tight] = answer.x[-1] - 1e-4
        return found

    def bounds(self, values: Floats) -> Floats:
        """The largest distance of each machine's correction from `values` at any knot, with every chosen pair satisfied."""
        matrix, limit = self._constraints()
        matrix = csr_array(matrix[:, : self.size])
        limit = np.maximum(limit, matrix @ (values - self.start).ravel())  # contradicting pairs count as just satisfied
        found = np.zeros(len(self.names))
        for node in range(len(self.names)):
            if node == self.reference:
                continue
            for knot in range(len(self.knots)):
                at = node * len(self.knots) + knot
                for sign in (1.0, -1.0):
                    cost = np.zeros(self.size)
                    cost[at] = sign
                    answer = linprog(cost, matrix, limit * 1e6, bounds=self._variable_bounds(), method="highs")
                    worst = np.inf if answer.x is None else abs(answer.x[at] / 1e6 + self.start.ravel()[at] - values.ravel()[at])
                    found[node] = max(found[node], worst)
        return found

    def _variable_bounds(self) -> list[tuple[float | None, float | None]]:
        """The reference's corrections are zero; the others are free."""
        knots = len(self.knots)
        return [(0.0, 0.0) if at // knots == self.reference else (None, None) for at in range(self.size)]

    def _initial_corrections(self) -> Floats:
        """Constant corrections along the links from the reference: half the difference of the least gaps in both directions."""
        gap: dict[tuple[int, int], float] = {}
        for a, b, early, late in self.pairs:
            gap[a, b] = min(gap.get((a, b), np.inf), float((late - early).min()))
        start, known = np.zeros(len(self.names)), {self.reference}
        waiting = [self.reference]
        while waiting:
            one = waiting.pop(0)
            for other in range(len(self.names)):
                there, back = gap.get((one, other)), gap.get((other, one))
                if other in known or (there is None and back is None):
                    continue
                # corrections c with c[one] - c[other] <= there, c[other] - c[one] <= back
                middle = (back - there) / 2 if there is not None and back is not None else (back if there is None else -there)
                start[other] = start[one] + float(middle or 0.0)
                known.add(other)
                waiting.append(other)
        return np.repeat(start[:, None], len(self.knots), axis=1)

    def _slacks(self, pair: tuple[int, int, Floats, Floats], values: Floats) -> Floats:
        a, b, early, late = pair
        return (late + _interpolate(self.knots, values[b], late)) - (early + _interpolate(self.knots, values[a], early))

    def _envelope(self, a: int, b: int, early: Floats, late: Floats) -> Any:
        """Pairs that can bind: the tightest of each slice of the run, and the lower hull of the gaps over time."""
        gap = late - early
        slot = np.minimum((_BINS * (early - early.min()) / max(float(np.ptp(early)), 1e-9)).astype(int), _BINS - 1)
        order = np.lexsort((gap, slot))
        first = np.concatenate([[True], np.diff(slot[order]) != 0])
        return np.unique(np.concatenate([order[first], _lower_hull(early, gap)]))

    def _add_violated(self, values: Floats, slacks: Floats) -> bool:
        """Adds pairs that have less slack than their link; whether there were any."""
        more = False
        for at, pair in enumerate(self.pairs):
            link = self.link[min(pair[:2]), max(pair[:2])]
            broken = np.flatnonzero(self._slacks(pair, values) < slacks[link] - _TOLERANCE)
            new = np.setdiff1d(broken, self.chosen[at])
            if len(new):
                worst = new[np.argsort(self._slacks(pair, values)[new])[:200]]
                self.chosen[at] = np.union1d(self.chosen[at], worst)
                more = True
        return more

    def _constraints(self) -> tuple[Any, Floats]:
        """c[source](early) - c[target](late) + slack <= late - early, for the chosen pairs, relative to the initial corrections."""
        blocks, limits = [], []
        for (a, b, early, late), chosen in zip(self.pairs, self.chosen, strict=True):
            left, right = _weights(self.knots, early[chosen]), _weights(self.knots, late[chosen])
            count, knots = len(chosen), len(self.knots)
            rows, weights, columns = [], [], []
            for node, (place, share), sign in ((a, left, 1.0), (b, right, -1.0)):
                rows += [np.arange(count)] * 2
                columns += [node * knots + place, node * knots + place + 1]
                weights += [sign * (1 - share), sign * share]
            rows.append(np.arange(count))
            columns.append(np.full(count, self.size + self.link[min(a, b), max(a, b)]))
            weights.append(np.ones(count))
            cells = (np.concatenate(rows), np.concatenate(columns))
            blocks.append(coo_array((np.concatenate(weights), cells), shape=(count, self.size + len(self.link))))
            limits.append(self._slacks((a, b, early[chosen], late[chosen]), self.start))
        return csr_array(vstack(blocks)), np.concatenate(limits)


def _weights(knots: Floats, times: Floats) -> tuple[Any, Floats]:
    """The piece that each time lies in, and the position within it. The outer pieces extend beyond the ends."""
    place = np.clip(np.searchsorted(knots, times) - 1, 0, len(knots) - 2)
    return place, (times - knots[place]) / (knots[place + 1] - knots[place])


def _interpolate(knots: Floats, values: Floats, times: Floats) -> Floats:
    place, share = _weights(knots, times)
    found: Floats = values[place] * (1 - share) + values[place + 1] * share
    return found


def _lower_hull(x: Floats, y: Floats) -> Any:
    """Indices of the lower convex hull of points (Andrew's monotone chain)."""
    hull: list[int] = []
    for at in np.lexsort((y, x)).tolist():
        while len(hull) > 1:
            o, a = hull[-2], hull[-1]
            if (x[a] - x[o]) * (y[at] - y[o]) - (y[a] - y[o]) * (x[at] - x[o]) > 0:
                break
            hull.pop()
        hull.append(at)
    return np.array(hull, np.int64)


MEETINGS = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL)
"""Calls that no rank leaves before the last has entered: each rank's result needs every rank's part."""
_MOST_NODES = 16
"""Nodes of one call; beyond this each node is compared only with its neighbours in the list of nodes and with the first node."""


@dataclass(frozen=True)
class EventPairs:
    """Events on machine `source` that came before events on machine `target`: unix seconds minus `zero`, each on its own clock."""

    source: str
    target: str
    early: Floats
    late: Floats


def end_times(sections: Sections) -> Floats:
    """When the host or the device finished each section, whichever is later; NaN if unknown."""
    known = np.fmax(sections.seconds, sections.host_seconds)
    return np.where(np.isnan(sections.seconds), np.nan, sections.begin + known)


def message_pairs(sections: Sections) -> list[EventPairs]:
    """Pairs from sends and receives, and from collectives, between different machines of `sections.hosts`.

    A receive ends after its send began. No rank leaves a collective (MEETINGS) before the last one has entered it. A send and a
    receive match by their number between the two ranks. If calls are not numbered, the k-th send of a step matches the k-th receive
    of that step; a step with different numbers of them is left out.
    """
    hosts = np.array(_host_numbers(sections), np.int64)
    calls = np.flatnonzero((sections.section == Section.CALL) & (sections.rank >= 0))
    names = sorted(set(sections.hosts.values()))
    found: dict[tuple[int, int], list[tuple[Floats, Floats]]] = {}
    for part in (_messages(sections, calls, hosts), _meetings(sections, calls, hosts)):
        for source, target, early, late in part:
            found.setdefault((source, target), []).append((early, late))
    return [
        EventPairs(names[source], names[target], np.concatenate([a for a, _ in parts]), np.concatenate([b for _, b in parts]))
        for (source, target), parts in sorted(found.items())
    ]  # fmt: skip


def exchange_pairs(
    exchanges: Mapping[str, Sequence[Sequence[int]]], zero: float, collector: str = "(collector)"
) -> list[EventPairs]:
    """Pairs from the shippers' timestamps: (sent, received, answered, back) in ns, by node."""
    found = []
    for node, stamps in sorted(exchanges.items()):
        table = (np.asarray([list(one) for one in stamps], np.int64).reshape(-1, 4) - int(zero * 1e9)) / 1e9
        found.append(EventPairs(node, collector, table[:, 0], table[:, 1]))
        found.append(EventPairs(collector, node, table[:, 2], table[:, 3]))
    return found


def _host_numbers(sections: Sections) -> list[int]:
    """Rank → index of its machine in the sorted names; -1 for ranks without one."""
    names = {name: at for at, name in enumerate(sorted(set(sections.hosts.values())))}
    most = int(sections.rank.max()) if len(sections) else -1
    return [names[sections.hosts[rank]] if rank in sections.hosts else -1 for rank in range(max(most, *sections.hosts, -1) + 1)]


Piece = tuple[int, int, Floats, Floats]


def _messages(sections: Sections, calls: Int64s, hosts: Int64s) -> Iterator[Piece]:
    with_peer = calls[(sections.peer[calls] >= 0) & (sections.peer[calls] < len(hosts))]
    sends, receives = with_peer[sections.sends[with_peer]], with_peer[~sections.sends[with_peer]]
    done = end_times(sections)
    sent = _group_by_key(sections, sends, sections.rank, sections.peer)
    got = _group_by_key(sections, receives, sections.peer, sections.rank)
    both = [(sent[key], got[key]) for key in sent.keys() & got.keys() if len(sent[key]) == len(got[key])]
    if not both:
        return
    first, second = (np.concatenate(part) for part in zip(*both, strict=True))
    source, target = hosts[sections.rank[first]], hosts[sections.rank[second]]
    yield from _by_hosts(source, target, sections.begin[first], done[second])


def _group_by_key(sections: Sections, chosen: Int64s, source: Any, target: Any) -> dict[tuple[int, ...], Int64s]:
    """(source, target, group, number or step) → calls ordered by begin."""
    if not len(chosen):
        return {}
    order = chosen[
        np.lexsort((sections.begin[chosen], sections.step[chosen], sections.group[chosen], target[chosen], source[chosen]))
    ]
    keys = np.stack([source[order], target[order], sections.group[order], sections.step[order]], axis=1).astype(np.int64)
    cuts = np.flatnonzero((np.diff(keys, axis=0) != 0).any(axis=1)) + 1
    return {tuple(keys[part[0]]): order[part] for part in np.split(np.arange(len(order)), cuts)}


def _meetings(sections: Sections, calls: Int64s, hosts: Int64s) -> Iterator[Piece]:
    """For each collective and machine the last begin and the first end of its ranks: the tightest pair."""
    calls = calls[np.isin(sections.comm[calls], MEETINGS) & (sections.call[calls] >= 0) & (sections.group[calls] >= 0)]
    if not len(calls):
        return
    done = end_times(sections)
    node = hosts[sections.rank[calls]]
    calls, node = calls[node >= 0], node[node >= 0]
    order = np.lexsort((node, sections.call[calls], sections.group[calls]))
    calls, node = calls[order], node[order]
    key = np.stack([sections.group[calls], sections.call[calls], node], axis=1)
    starts = np.concatenate([[0], np.flatnonzero((np.diff(key, axis=0) != 0).any(axis=1)) + 1])
    begin = np.maximum.reduceat(sections.begin[calls], starts)
    end = np.minimum.reduceat(done[calls], starts)
    entry, node = key[starts, :2], node[starts]
    meeting = np.concatenate([[0], np.flatnonzero((np.diff(entry, axis=0) != 0).any(axis=1)) + 1, [len(starts)]])
    sizes = np.diff(meeting)
    for size in np.unique(sizes[sizes > 1]):
        at = meeting[:-1][sizes == size]
        pairs: Any = permutations(range(size), 2)
        if size > _MOST_NODES:
            pairs = {
                (a, b)
                for one in range(size)
                for a, b in ((one, (one + 1) % size), ((one + 1) % size, one), (0, one), (one, 0))
                if a != b
            }
        for a, b in pairs:
            yield from _by_hosts(node[at + a], node[at + b], begin[at + a], end[at + b])


def _by_hosts(source: Int64s, target: Int64s, early: Floats, late: Floats) -> Iterator[Piece]:
    keep = (source >= 0) & (target >= 0) & (source != target) & np.isfinite(early) & np.isfinite(late)
    source, target, early, late = source[keep], target[keep], early[keep], late[keep]
    if not len(source):
        return
    order = np.lexsort((target, source))
    cuts = np.flatnonzero((np.diff(source[order]) != 0) | (np.diff(target[order]) != 0)) + 1
    for part in np.split(order, cuts):
        yield int(source[part[0]]), int(target[part[0]]), early[part], late[part]
