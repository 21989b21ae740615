"""Finds ranks and machines that compute more slowly than their peers, with a confidence.

A rank's excess in a step is its own time (`StepTable.own`, without waiting) relative to the median of its role, minus 1. The
statistic is the mean of its excesses over the window without the largest twentieth: a single hiccup of a machine makes no slow
rank. Healthy ranks may differ for two reasons, and a rank must stand out from both. First, ranks differ from each other for the
whole window: robust spread of the other ranks' statistics, Student's t with the number of ranks minus two degrees of freedom; or,
because three others say little about a spread, the same with the known spread of GPUs of one kind (`USUAL_SPREAD`) as a prior; both
tests are counted. Second, steps differ from each other: pooled variance of the other ranks' excesses, including hiccups. A rank is
named if the larger of the two probabilities is below `LEVEL` for all ranks together, and the excess is at least `LEAST`.

Ranks that could run and have no core: beside other work on their cores, or more processes than a machine has cores.

The kernel counts for how long a rank's main thread was ready to run and did not (`/proc/PID/schedstat`), inside sections and
between them. A thread that sleeps in a call needs no core, so what is counted lengthens the rank's own part of the step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtr

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.fleet.findings.finding import Finding, Verdict, format_ranks
from windtunnel.fleet.findings.steps import WORK, StepTable
from windtunnel.records.sections import Section

LEVEL = 1e-4
"""Probability that any rank of a healthy job is named in one evaluation."""
LEAST = 0.04
"""Excess below which a rank is shown but not named: steps vary by that much anyway."""
FEWEST_STEPS = 8
FEWEST_EQUALS = 4
WARM_UP = 2
"""First steps of a run that are ignored: allocations, compilation, connections."""
WINDOW = 100
"""Number of steps examined; more would hide a recent change."""
MANY = 64
"""Ranks of a role from which on the spread includes the rank itself."""
FINEST = 0.002
"""Smallest spread that is assumed."""
USUAL_SPREAD = 0.02
"""Standard deviation of equal GPUs. Sinha et al. (SC 2022, arXiv 2208.11035): within a cluster of GPUs of one kind the same work
varies by 8 % on average from whisker to whisker of a box plot, which is 5.4 standard deviations of a normal distribution, or 1.5 %;
rounded up.
"""
USUAL_WEIGHT = 6
"""Degrees of freedom that the usual spread counts as."""


@dataclass(frozen=True)
class RankPace:
    """Pace of R ranks in a window of steps."""

    ranks: Int64s
    excess: Floats
    """Mean excess."""
    steady: Floats
    """Excess without the largest twentieth of the steps."""
    error: Floats
    """Standard error of the excess."""
    chance: Floats
    """Probability that a healthy rank shows as much."""
    own: Floats
    """Mean seconds of own work in a step."""
    steps: tuple[int, int]
    """First and last of the window."""


def pace_of(table: StepTable, *, window: int = WINDOW, warm_up: int = WARM_UP) -> RankPace:
    """Compares each rank with its peers over the last `window` steps. Ranks with too few steps or peers: NaN, probability 1."""
    own = table.own[:, warm_up:][:, -window:]
    steps = table.steps[warm_up:][-window:]
    count = len(table.ranks)
    excess, steady, error = (np.full(count, np.nan) for _ in range(3))
    chance = np.ones(count)
    for role in np.unique(table.roles):
        members = np.flatnonzero(table.roles == role)
        values = own[members]
        whole = np.isfinite(values).all(0)  # steps that all ranks have; the newest one is often incomplete
        if len(members) < FEWEST_EQUALS or whole.sum() < FEWEST_STEPS:
            continue
        excess[members], steady[members], error[members], chance[members] = _compare_ranks(values[:, whole])
    mean = np.array([np.mean(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in own])
    return RankPace(table.ranks, excess, steady, error, chance, mean, (int(steps[0]), int(steps[-1])) if len(steps) else (-1, -1))


def _compare_ranks(own: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Excess, excess without its largest steps, standard error and probability of each of R equal ranks over S steps."""
    count, steps = own.shape
    each = own / np.maximum(np.median(own, axis=0), 1e-9) - 1.0
    figure = np.sort(each, axis=1)[:, : steps - max(1, -(-steps // 20))].mean(axis=1)
    from_usual = figure - np.median(figure)
    draws = steps * _independent_share(each)
    if count > MANY:  # a single rank does not change the spread
        between = np.full(count, _center_and_spread(figure)[1])
        by_steps = _chernoff(from_usual, each.ravel(), draws)
    else:
        between = np.array([_center_and_spread(np.delete(figure, index))[1] for index in range(count)])
        rest = (np.delete(each, index, axis=0).ravel() for index in range(count))
        by_steps = np.array([_chernoff(from_usual[[index]], other, draws)[0] for index, other in enumerate(rest)])
    between = np.maximum(between, FINEST)
    by_ranks = _student(from_usual, between, max(count - 2, 2))
    error = np.maximum(between, np.median(each.std(axis=1, ddof=1)) / np.sqrt(draws))
    chance = np.maximum(by_ranks, by_steps)
    mean = each.mean(axis=1)
    return mean - np.median(mean), from_usual, error, chance


def _student(from_usual: Floats, between: Floats, freedom: int) -> Floats:
    """Probability by Student's t, with the observed spread or combined with the usual one; the smaller one counts for two tests."""
    joined = np.sqrt((freedom * between**2 + USUAL_WEIGHT * USUAL_SPREAD**2) / (freedom + USUAL_WEIGHT))
    seen, known = stdtr(freedom, -from_usual / between), stdtr(freedom + USUAL_WEIGHT, -from_usual / joined)
    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(seen, known)), np.float64)


def _independent_share(each: Floats) -> float:
    """Share of the steps that count as independent: bursts of noise last longer than a step."""
    centered = each - each.mean(axis=1, keepdims=True)
    power = float((centered**2).sum())
    lag = float((centered[:, 1:] * centered[:, :-1]).sum()) / power if power > 0 else 0.0
    return (1.0 - max(lag, 0.0)) / (1.0 + max(lag, 0.0))


def _chernoff(means: Floats, values: Floats, draws: float) -> Floats:
    """Upper bounds of the probability that the mean of `draws` of `values` (about their own mean) is at least each of `means`."""
    centered = values - values.mean()
    scale = max(float(centered.std()), FINEST)
    tilt = np.geomspace(0.01, 100.0, 80) / scale
    power = np.minimum(tilt[:, None] * centered[None, :], 600.0)
    top = power.max(axis=1)
    cumulant = top + np.log(np.exp(power - top[:, None]).mean(axis=1))
    bound: Floats = np.exp(np.minimum(0.0, draws * (cumulant[:, None] - tilt[:, None] * means[None, :])).min(axis=0))
    return bound


def _center_and_spread(values: Floats) -> tuple[float, float]:
    """Median, and the normal-consistent median absolute deviation with a correction for few values."""
    center = float(np.median(values))
    return center, float(1.4826 * np.median(np.abs(values - center)) * (1.0 + 1.2 / max(len(values) - 1, 1)))


def slow_ranks(table: StepTable, *, window: int = WINDOW, warm_up: int = WARM_UP) -> list[Finding]:
    """The slow ranks, worst first. Slow ranks of one machine are reported as one finding about the machine."""
    pace = pace_of(table, window=window, warm_up=warm_up)
    named = find_outliers(pace)
    found = []
    left = set(named.tolist())
    for host, members in _machines(table).items():
        slow = [index for index in members if index in left]
        if len(members) >= 2 and len(slow) >= 0.75 * len(members) and len(_machines(table)) > 1:
            found.append(_finding(table, pace, slow, host))
            left -= set(slow)
    found += [_finding(table, pace, [index], "") for index in sorted(left)]
    return sorted(found, key=lambda one: -one.size)


def find_outliers(pace: RankPace) -> Int64s:
    """Indices of the ranks that stand out."""
    limit = LEVEL / max(int(np.isfinite(pace.excess).sum()), 1)
    return np.flatnonzero((pace.chance < limit) & (np.fmin(pace.excess, pace.steady) >= LEAST))


def _machines(table: StepTable) -> dict[str, list[int]]:
    machines: dict[str, list[int]] = {}
    for index, host in enumerate(table.hosts):
        if host:
            machines.setdefault(host, []).append(index)
    return machines


def _finding(table: StepTable, pace: RankPace, slow: list[int], host: str) -> Finding:
    ranks = tuple(int(table.ranks[index]) for index in slow)
    since = since_step(table, slow)
    size = _excess_since(table, slow, since) if since >= 0 else float(np.mean(pace.excess[slow]))
    error = float(np.max(pace.error[slow]))
    confidence = 1.0 - min(1.0, float(np.max(pace.chance[slow])) * len(table.ranks))
    own = table.own
    others = np.delete(own, slow, axis=0)
    cost = cost_of(own[slow], others)
    first, last = pace.steps
    parts = [f"{label} {mine * 1e3:.1f} ms (usual {usual * 1e3:.1f})" for label, mine, usual in _sections(table, slow)]
    evidence = [
        f"own work of steps {max(first, since)} to {last}: {size:+.1%} against its equals, standard error {error:.1%}",
        "by section: " + ", ".join(parts),
    ]
    late = table.late[slow][:, -WINDOW:]
    if np.isfinite(late).any():
        evidence.append(f"enters its calls {np.nanmean(late) * 1e3:+.2f} ms after the median rank of its groups")
    starved = float(np.nansum(table.starved[slow]) / max(np.nansum(table.starved[slow] + own[slow]), 1e-9))
    if starved >= 0.005:
        evidence.append(f"also waits for a core {starved:.1%} of that time, which is not counted")
    past = _against_past(table, slow, since)
    if past is not None:
        evidence.append(f"against its own steps before {since}: {past:+.1%}")
    verdict = Verdict.SLOW_MACHINE if host else Verdict.SLOW_RANK
    name = f"machine {host} ({format_ranks(ranks)})" if host else format_ranks(ranks)
    where = "" if host or not table.hosts[slow[0]] else f" on {table.hosts[slow[0]]}"
    text = f"{name}{where} computes {size:.0%} longer than its equals; without that a step is {cost * 1e3:.1f} ms shorter"
    hosts = tuple(sorted({table.hosts[index] for index in slow if table.hosts[index]}))
    excluded = ("a slow link: time in calls is not counted", "waiting for others: not counted either")
    return Finding(verdict, ranks, hosts, confidence, size, cost, since, text, tuple(evidence), excluded)


def cost_of(slow: Floats, others: Floats) -> float:
    """Seconds per step that the slow ranks cost: how much longer the longest of them works than the longest of the others."""
    whole = np.flatnonzero(np.isfinite(slow).all(0) & np.isfinite(others).all(0))[-WINDOW:]
    if not len(others) or not len(whole):
        return 0.0
    return float(np.maximum(slow[:, whole].max(axis=0) - others[:, whole].max(axis=0), 0.0).mean())


def _sections(table: StepTable, slow: list[int]) -> list[tuple[str, float, float]]:
    """Each section's own seconds of a step, and the median of the same role; the one with the largest difference first."""
    equals = table.roles == table.roles[slow[0]]
    found = []
    for section in (*WORK, Section.DATA):
        values = table.work[section][:, -WINDOW:]
        usual = np.nanmedian(values[equals]) if np.isfinite(values[equals]).any() else np.nan
        mine = np.nanmean(values[slow]) if np.isfinite(values[slow]).any() else np.nan
        if np.isfinite(usual) and usual > 0 and np.isfinite(mine):
            found.append((section.name.lower(), float(mine), float(usual)))
    return sorted(found, key=lambda one: one[2] - one[1])


def since_step(table: StepTable, slow: list[int]) -> int:
    """The step since which the excess exists: the split of the steps with the least squared error. -1: from the start.

    Warm-up steps are not used as a reference.
    """
    equals = table.roles == table.roles[slow[0]]
    whole = np.isfinite(table.own[equals]).all(0)
    whole[:WARM_UP] = False
    if whole.sum() < 2 * FEWEST_STEPS:
        return -1
    excess = table.own[slow].mean(0)[whole] / np.maximum(np.median(table.own[equals][:, whole], axis=0), 1e-9) - 1.0
    steps = table.steps[whole]
    count = len(excess)
    total = np.cumsum(excess)
    cut = np.arange(3, count - 2)
    before, after = total[cut - 1] / cut, (total[-1] - total[cut - 1]) / (count - cut)
    gain = cut * (count - cut) / count * (after - before) ** 2
    best = int(np.argmax(gain))
    noise = float(np.median(np.abs(np.diff(excess)))) / 0.954 + 1e-9  # of differences of two normal values
    if after[best] - before[best] < LEAST / 2 or gain[best] < 16.0 * noise**2:
        return -1
    return int(steps[cut[best]])


def _excess_since(table: StepTable, slow: list[int], since: int) -> float:
    """Mean excess from step `since` on."""
    equals = table.roles == table.roles[slow[0]]
    own = table.own[:, (table.steps >= since) & np.isfinite(table.own[equals]).any(0) & np.isfinite(table.own[slow]).any(0)]
    return float(np.nanmean(own[slow] / np.nanmedian(own[equals], axis=0))) - 1.0


def _against_past(table: StepTable, slow: list[int], since: int) -> float | None:
    if since < 0:
        return None
    now, then = table.steps >= since, table.steps < since
    mine = table.own[slow]
    return float(np.nanmean(mine[:, now]) / np.nanmean(mine[:, then]) - 1.0)


LEAST_SHARE = 0.15
"""Share of the mean step for which every rank of a machine waits for a core from which on the machine is named."""


MOST_WAIT = 4.0
"""Waits for a core by a second of a rank's own work that this work explains: it wants a core for longer than its equals do."""
HOST_WORK = (Verdict.OUTSIDE, Verdict.LAUNCH_SKEW)
"""What a rank does on its core beside the work of the step."""


def sort_by_cost(found: Sequence[Finding]) -> list[Finding]:
    """The dearest first. A rank's wait for a core stands behind its work on the core, which makes it wait."""
    work = {finding.ranks: finding.cost for finding in found if finding.verdict in HOST_WORK}

    def place(finding: Finding) -> tuple[float, bool]:
        own = work.get(finding.ranks, 0.0) if finding.verdict is Verdict.NO_CORE else 0.0
        follows = own < finding.cost <= MOST_WAIT * own
        return -(own if follows else finding.cost), follows

    return sorted(found, key=place)


def starved_ranks(table: StepTable, *, window: int = WINDOW, warm_up: int = WARM_UP) -> list[Finding]:
    """Ranks whose processes wait for a core so much longer than their peers' that this alone makes them slow, and machines whose
    ranks all wait.

    They compute at the pace of the others when they have a core, so no device is to blame.
    """
    if not np.nansum(table.unfed) > 0:
        return []
    machines = _overloaded_machines(table, window, warm_up)
    busy = {host for one in machines for host in one.hosts}
    single = [one for one in _single_ranks(table, window, warm_up) if not (machines and busy >= set(one.hosts))]
    return [*sorted(single, key=lambda one: -one.size), *machines]


def _single_ranks(table: StepTable, window: int, warm_up: int) -> list[Finding]:
    both = replace(table, own=table.own + np.nan_to_num(table.unfed))
    slow_anyway = set(find_outliers(pace_of(table, window=window, warm_up=warm_up)).tolist())
    pace = pace_of(both, window=window, warm_up=warm_up)
    found = []
    for index in [one for one in find_outliers(pace).tolist() if one not in slow_anyway]:
        rank, size = int(table.ranks[index]), float(pace.excess[index])
        waits = _mean_waits(table, window, warm_up)
        where = f" on {table.hosts[index]}" if table.hosts[index] else ""
        cost = cost_of(both.own[[index]], np.delete(both.own, index, axis=0))
        found.append(Finding(
            Verdict.NO_CORE, (rank,), (table.hosts[index],) if table.hosts[index] else (),
            1.0 - min(1.0, float(pace.chance[index]) * len(table.ranks)), size, cost, -1,
            f"rank {rank}{where} waits for a core {waits[index] * 1e3:.1f} ms of a step, its equals "
            f"{np.median(np.delete(waits, index)) * 1e3:.1f} ms; without that a step is {cost * 1e3:.1f} ms shorter",
            (f"with its waits for a core it is {size:+.1%} against its equals, without them it does not stand out",),
            ("a slow device: it computes at the pace of the others when it has a core",),
        ))  # fmt: skip
    return found


def _mean_waits(table: StepTable, window: int, warm_up: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Seconds of a step for which each rank waits for a core. [R]"""
    ended = np.isfinite(table.step[:, warm_up:][:, -window:])
    waits = np.where(ended, np.nan_to_num(table.unfed[:, warm_up:][:, -window:]), 0.0)
    return np.asarray(waits.sum(axis=1) / np.maximum(ended.sum(axis=1), 1), np.float64)


def _overloaded_machines(table: StepTable, window: int, warm_up: int) -> list[Finding]:
    """Machines of which every rank, of two or more or all that there are, waits for a core for `LEAST_SHARE` of a step or more."""
    length = table.step[:, warm_up:][:, -window:]
    if int(np.isfinite(length).any(axis=0).sum()) < FEWEST_STEPS:
        return []
    mean, waits = float(np.nanmean(length)), _mean_waits(table, window, warm_up)
    found = []
    for host in dict.fromkeys(table.hosts):
        rows = [row for row, name in enumerate(table.hosts) if name == host]
        least, longest = float(waits[rows].min()), max(rows, key=lambda row: waits[row])
        if least < LEAST_SHARE * mean or len(rows) < min(2, len(table.ranks)):
            continue
        ranks = tuple(int(table.ranks[row]) for row in rows)
        who = f"all ranks of {host}" if host else "all ranks"
        found.append(Finding(
            Verdict.NO_CORE, ranks if len(ranks) < len(table.ranks) else (), (host,) if host else (), 1.0, least / mean, least, -1,
            f"{who} wait for a core {least * 1e3:.1f} ms or more of each step of {mean * 1e3:.1f} ms: "
            "more processes and threads want to run there than it has cores",
            (f"rank {int(table.ranks[longest])} waits longest, {waits[longest] * 1e3:.1f} ms",),
            ("slow devices: what ranks compute is counted without these waits",),
        ))  # fmt: skip
    return found
