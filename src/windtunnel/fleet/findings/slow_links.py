"""Finds links that are slower than their peers: a pair of machines, or the uplink of one machine.

A call moves its bytes after the last of its ranks has arrived; the time from then on is its transfer. Calls of one kind and size
have equal transfers if all links are equal. A send joins two machines; a collective joins all machines of its group. A pair of
machines is judged by the calls that cross it, against equal calls that do not. If every pair of one machine is slow, its uplink is.
With only two machines there is no peer, so the link is compared with `expected`.

How much of a step calls between machines take, once their last rank has entered, and whether they tell links apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.fleet.findings.finding import Finding, Verdict
from windtunnel.fleet.findings.slow_ranks import WARM_UP
from windtunnel.fleet.findings.steps import StepTable, complete_collectives, match_sends
from windtunnel.records.sections import Section, Sections

LEVEL = 1e-4
"""Probability that any pair of a healthy job is named in one evaluation."""
LEAST = 1.3
"""Ratio of transfers below which a link is not named: paths through a fabric differ anyway."""
FEWEST_STEPS = 8
MOST_MACHINES = 16
"""Largest number of machines of a call that is attributed to the pairs that it crosses; a ring over more does not distinguish
pairs.
"""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Transfers:
    """M matched calls: the seconds from the arrival of the last rank to the end, their kind and the machines that they join."""

    seconds: Floats
    bytes: Floats
    kind: Int64s
    """Index into `kinds`."""
    kinds: tuple[tuple[int, int, int], ...]
    """Comm, bytes, ranks."""
    joins: Int64s
    """Index into `machines`."""
    machines: tuple[tuple[str, ...], ...]
    """Each sorted."""
    step: Int64s

    def __len__(self) -> int:
        return len(self.seconds)


def match_transfers(sections: Sections) -> Transfers:
    """Matched calls of ranks on one clock. A call without a record of some rank of its group is left out."""
    calls = np.flatnonzero((sections.section == Section.CALL) & np.isfinite(sections.seconds) & (sections.bytes > 0))
    rows, starts = complete_collectives(sections, calls)
    pairs = match_sends(sections, calls)
    starts = np.concatenate([starts, len(rows) + 2 * np.arange(len(pairs))])
    rows = np.concatenate([rows, pairs.ravel()])
    if not len(rows):
        none = np.zeros(0)
        return Transfers(none, none, none.astype(np.int64), (), none.astype(np.int64), (), none.astype(np.int64))
    begin, end = sections.begin[rows], (sections.begin + sections.seconds)[rows]
    seconds = np.maximum(np.maximum.reduceat(end, starts) - np.maximum.reduceat(begin, starts), 1e-9)
    first = rows[starts]
    sizes = np.diff(np.append(starts, len(rows)))
    keys = np.stack([sections.comm[first], sections.bytes[first].astype(np.int64), sizes], axis=1).astype(np.int64)
    kinds, kind = np.unique(keys, axis=0, return_inverse=True)
    machines, joins = _machines_of(sections, first, sections.rank[pairs])
    return Transfers(
        seconds, sections.bytes[first], kind.ravel().astype(np.int64), tuple((int(a), int(b), int(c)) for a, b, c in kinds), joins,
        machines, sections.step[first],
    )  # fmt: skip


def _machines_of(sections: Sections, first: Int64s, ends: Int32s) -> tuple[tuple[tuple[str, ...], ...], Int64s]:
    """Distinct sets of machines, and the index of each call's set: that of its group, or of its two ends (`ends` [P, 2], the last
    calls).
    """
    numbers: dict[tuple[str, ...], int] = {}

    def number(ranks: Iterable[int]) -> int:
        names = tuple(sorted({sections.hosts.get(int(rank), "") for rank in ranks}))
        return numbers.setdefault(names, len(numbers))

    meetings = first[: len(first) - len(ends)]
    used, which = np.unique(sections.group[meetings], return_inverse=True)
    of_groups = np.array([number(sections.groups[group]) for group in used.tolist()], np.int64)
    links, link = np.unique(ends, axis=0, return_inverse=True)
    of_links = np.array([number(pair) for pair in links.tolist()], np.int64)
    joins = np.concatenate([of_groups[which.ravel()], of_links[link.ravel()]]).astype(np.int64)
    return tuple(numbers), joins


def slow_links(transfers: Transfers, expected: Callable[[Comm, float, Pair], float] | None = None) -> list[Finding]:
    """Slow pairs of machines and uplinks, worst first. `expected(comm, bytes, pair)`: seconds that a call between two machines
    should take, from the cluster's description; NaN if unknown.
    """
    ratios = _ratios(transfers, expected)
    slow = {pair: one for pair, one in ratios.items() if one[0] >= LEAST and one[1] < LEVEL / max(len(ratios), 1)}
    found, left = [], set(slow)
    of_host: dict[str, list[Pair]] = defaultdict(list)
    for pair in ratios:
        for host in pair:
            of_host[host].append(pair)
    for host, own in sorted(of_host.items()):
        if len(own) >= 2 and left.issuperset(own):
            found.append(_finding(Verdict.SLOW_UPLINK, (host,), [slow[pair] for pair in own], transfers, own))
            left.difference_update(own)
    found += [_finding(Verdict.SLOW_LINK, pair, [slow[pair]], transfers, [pair]) for pair in left]
    return sorted(found, key=lambda one: -one.size)


def _ratios(transfers: Transfers, expected: Callable[[Comm, float, Pair], float] | None) -> dict[Pair, tuple[float, float, int]]:
    """Pair → (its transfers relative to equal transfers elsewhere, probability of that in a healthy job, steps).

    The fastest call of a kind between two machines counts in each step: others shared the link or waited for a core. A step in
    which the other links were late says nothing about this one, so the reference is at most its median over the steps. A call is
    attributed to the pair that it crosses. A call that crosses several pairs counts for each of them, but can only clear them: a
    slow group means that one of its pairs is slow, a fast one that none is. Groups of more than `MOST_MACHINES` are ignored.
    """
    logs: dict[Pair, list[float]] = defaultdict(list)
    cleared: dict[Pair, list[float]] = defaultdict(list)
    sizes = np.array([len(machines) for machines in transfers.machines], np.int64)
    for kind, (comm, size, _) in enumerate(transfers.kinds):
        rows = np.flatnonzero((transfers.kind == kind) & (sizes[transfers.joins] > 1)) if len(sizes) else np.zeros(0, np.int64)
        if not len(rows):
            continue
        sets, fastest = quickest_calls(transfers, rows)
        usual = _usual_elsewhere(fastest)
        for at, one in enumerate(sets.tolist()):
            machines = transfers.machines[one]
            if len(machines) > MOST_MACHINES:
                continue
            rest = usual[at]
            if len(machines) == 2 and expected is not None and np.isnan(rest).any():
                seconds = expected(Comm(comm), float(size), (machines[0], machines[1]))
                rest = np.where(np.isnan(rest), np.log(seconds) if seconds > 0 else np.nan, rest)
            known = np.isfinite(fastest[at]) & np.isfinite(rest)
            values = fastest[at][known] - np.minimum(rest[known], np.median(rest[known]) if known.any() else np.nan)
            target = logs if len(machines) == 2 else cleared
            for pair in combinations(machines, 2) if len(values) else ():
                target[pair] += values.tolist()
    if cleared:
        least = {pair: float(np.median(values)) for pair, values in cleared.items()}
        beside = _pairs_sharing_calls(transfers)
        for pair, values in cleared.items():
            if pair not in logs and _is_only_suspect(pair, least, beside.get(pair, set())):
                logs[pair] = values
    return {pair: _test_ratios(values) for pair, values in logs.items() if len(values) >= FEWEST_STEPS}


def quickest_calls(transfers: Transfers, rows: Int64s) -> tuple[Int64s, Floats]:
    """Sets of machines [K], and the logarithm of the least seconds of their calls in each step [K, S]; NaN if there is none."""
    sets, which = np.unique(transfers.joins[rows], return_inverse=True)
    steps, when = np.unique(transfers.step[rows], return_inverse=True)
    least = np.full(len(sets) * len(steps), np.inf)
    np.minimum.at(least, which.ravel() * len(steps) + when.ravel(), np.log(transfers.seconds[rows]))
    return sets, np.where(np.isfinite(least), least, np.nan).reshape(len(sets), len(steps))


def _usual_elsewhere(values: Floats) -> Floats:
    """For each of [K, S] the median of the other rows of its column; NaN if there is no other."""
    order = np.argsort(values, axis=0, kind="stable")  # NaN last
    ordered = np.take_along_axis(values, order, axis=0)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(len(values))[:, None].repeat(values.shape[1], axis=1), axis=0)
    known = np.isfinite(values)
    rest = known.sum(axis=0)[None, :] - known  # of the others, how many are known

    def value_at(place: Any) -> Floats:
        """The value at `place` among the others in order."""
        place = np.clip(place + (known & (place >= rank)), 0, len(values) - 1)
        return np.take_along_axis(ordered, place, axis=0)

    middle = (value_at((rest - 1) // 2) + value_at(rest // 2)) / 2
    return np.where(rest > 0, middle, np.nan)


def _pairs_sharing_calls(transfers: Transfers) -> dict[Pair, set[Pair]]:
    """Pair → all pairs that share a call with it, from calls between three or more machines."""
    shared: dict[Pair, set[Pair]] = defaultdict(set)
    for machines in transfers.machines:
        if 1 < len(machines) <= MOST_MACHINES:
            pairs = set(combinations(machines, 2))
            for pair in pairs:
                shared[pair] |= pairs
    return shared


def _is_only_suspect(pair: Pair, least: dict[Pair, float], beside: set[Pair]) -> bool:
    """Whether `pair` is the only pair of its slow calls that no fast call clears. `least`: the typical ratio by pair."""
    if least[pair] < np.log(LEAST):
        return False
    return all(value_at == pair or least[value_at] < np.log(LEAST) for value_at in beside if value_at in least)


def _test_ratios(values: list[float]) -> tuple[float, float, int]:
    """Ratio, probability and count of a pair's log ratios: the median, and Wilcoxon's signed-rank test that they exceed half of
    it.
    """
    ratio = float(np.median(values))
    if ratio < np.log(LEAST):
        return float(np.exp(ratio)), 1.0, len(values)
    from scipy import stats  # imported here: it is slow to import, and most jobs have no slow link

    chance = float(stats.wilcoxon(np.array(values) - ratio / 2, alternative="greater").pvalue)
    return float(np.exp(ratio)), chance, len(values)


def _finding(
    verdict: Verdict, hosts: tuple[str, ...], judged: list[tuple[float, float, int]], transfers: Transfers, pairs: list[Pair]
) -> Finding:
    size, most = float(np.median([one[0] for one in judged])), max(one[2] for one in judged)
    chance = max(one[1] for one in judged)
    crossing = np.array([any(set(pair) <= set(machines) for pair in pairs) for machines in transfers.machines], bool)
    rows = np.flatnonzero(crossing[transfers.joins])
    rate = float(np.median(transfers.bytes[rows] / transfers.seconds[rows])) if len(rows) else float("nan")
    steps = max(len(set(transfers.step[rows].tolist())), 1)
    cost = float(transfers.seconds[rows].sum() * (1.0 - 1.0 / size) / steps)
    name = f"the link between {hosts[0]} and {hosts[1]}" if verdict is Verdict.SLOW_LINK else f"the uplink of {hosts[0]}"
    return Finding(
        verdict, (), hosts, 1.0 - min(1.0, chance * max(len(judged), 1)), size - 1.0, cost, -1,
        f"{name} is {size:.1f} times as slow as equal links: about {rate / 1e6:.1f} MB/s",
        (f"in {most} steps the quickest calls that cross it take {size:.2f} times as long as equal calls elsewhere",),
        ("a slow rank: a transfer counts from the entry of its last rank",),
    )  # fmt: skip


LEAST_SHARE = 0.5
"""Share of a step from which transfers are told although no link is named."""


@dataclass(frozen=True)
class TransferShare:
    """Medians over the steps. `seconds`: of the transfers of a step, at most the step; `step`: its seconds; `comm`, `bytes` and
    `rate` (B/s): of the kind of call that takes most of them; `alike`: all calls join the same machines."""

    seconds: float
    step: float
    comm: Comm
    bytes: int
    rate: float
    alike: bool


def transfers_of_a_step(transfers: Transfers, table: StepTable) -> TransferShare | None:
    """What calls between machines take of a step; None without such calls, or if it is less than `LEAST_SHARE` of a step."""
    between = np.array([len(machines) > 1 for machines in transfers.machines], np.bool_)
    rows = np.flatnonzero(between[transfers.joins]) if len(between) else np.zeros(0, np.int64)
    settled = np.flatnonzero(np.isfinite(table.step).any(axis=0))[WARM_UP:]
    if not len(rows) or not len(settled):
        return None
    steps = np.nanmedian(table.step[:, settled], axis=0)
    last = int(max(table.steps.max(), transfers.step.max()))
    moved = np.bincount(transfers.step[rows], transfers.seconds[rows], last + 1)[table.steps[settled]]
    seconds, step = float(np.median(np.minimum(moved, steps))), float(np.median(steps))
    if seconds < LEAST_SHARE * step:
        return None
    longest = int(np.bincount(transfers.kind[rows], transfers.seconds[rows]).argmax())
    comm, size, _ = transfers.kinds[longest]
    mine = rows[transfers.kind[rows] == longest]
    rate = float(np.median(transfers.bytes[mine] / transfers.seconds[mine]))
    return TransferShare(seconds, step, Comm(comm), size, rate, len(set(transfers.joins[rows].tolist())) == 1)
