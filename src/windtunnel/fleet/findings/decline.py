"""Cause of a declining rate: steps that grow, gradually or from some step on. Finds the part of the step that grows, on which
ranks, and which causes are excluded.

A step's length is the own work of its slowest rank, plus what its ranks wait for. Each part of it is a series over the steps: own
work of every rank, host gaps, late data, lateness of each rank at its calls, and transfer times of calls after all ranks have
arrived. A part grows if the Mann-Kendall test says so and Sen's slope times the number of steps is large enough. It jumps if two
constant levels fit it better than a slope, and the Mann-Whitney test separates the levels. The verdict is the part that explains
most of the growth of the step; the other parts are listed with their slopes as excluded. A decline is reported if the step grows
significantly, or if it seems to grow and a part that explains this grows significantly.

Both tests take steps for independent, but other work on a machine lasts for many steps. So their z is reduced by the correlation of
the residuals, as Hamed and Rao do for the Mann-Kendall test (J. Hydrology 204, 1998), and a growth has to exceed the noise of the
run itself: the spread of its steps about the fitted line or levels.

Theil's line and Mann and Whitney's test for a few dozen values. scipy.stats has both, but its import takes 1.4 s of a core in
every process that judges a run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.fleet.findings.finding import Finding, Verdict, format_ranks
from windtunnel.fleet.findings.slow_links import Transfers, quickest_calls
from windtunnel.fleet.findings.steps import StepTable
from windtunnel.records.sections import Section

LEVEL = 1e-4
"""Probability that steady steps are called a decline."""
HINT = 0.05
"""The same, if a part of the step grows significantly: noise of other parts can hide in the step what is clear in the part."""
LEAST = 0.02
"""Growth over the window, as a share of the step, below which there is no decline."""
LEAST_EFFECT = 1.0
"""The same in standard deviations of the run's own steps."""
CLEAR_EFFECT = 2.0
"""The same from which on steps seem to grow, however few of them are independent."""
LEAST_SHARE = 0.3
"""Share of the growth that a part has to explain."""
FEWEST_STEPS = 30
MOST_POINTS = 24
"""Points of a series that are tested for a slope; longer series are averaged in blocks, so that occasional events count."""
MOST_POINTS_OF_JUMP = 40
"""The same for a jump, whose position matters."""


@dataclass(frozen=True)
class Trend:
    """Growth of a series over its window in its own unit: Sen's slope times the window, or the height of a jump, whichever fits
    better.
    """

    growth: float
    chance: float
    """Probability that a steady series shows this growth."""
    start: float
    """Value at the window's first step, by the fitted line."""
    jump: int = -1
    """Index of the first value after a jump; -1: a slope."""
    noise: float = 0.0
    """Robust standard deviation of the values about the fit."""


def trend_of(values: Floats) -> Trend:
    """The trend of an equidistant series; NaN points are left out. No trend for fewer than ten points."""
    at = np.flatnonzero(np.isfinite(values))
    if len(at) < 10:
        return Trend(0.0, 1.0, float("nan"))
    place, series = _average_blocks(at, values[at], MOST_POINTS)
    slope, intercept = fit_theil_line(place, series)
    cut = _best_cut(series)
    line = slope * place + intercept
    if _distance(series[:cut]) + _distance(series[cut:]) >= np.abs(series - line).sum():
        chance = _less_sure(_rise_chance(series), series - line)
        noise = _robust_deviation(values[at] - slope * at - intercept)
        return Trend(float(slope * (len(values) - 1)), min(1.0, 2.0 * chance), float(intercept), noise=noise)
    place, series = _average_blocks(at, values[at], MOST_POINTS_OF_JUMP)
    cut = _best_cut(series)
    apart = chance_of_greater(series[cut:], series[:cut])
    before, after = float(np.median(series[:cut])), float(np.median(series[cut:]))
    jump = int(np.ceil(place[cut - 1 : cut + 1].mean()))
    apart = _less_sure(apart, np.concatenate([series[:cut] - before, series[cut:] - after]))
    noise = _robust_deviation(np.where(at < jump, values[at] - before, values[at] - after))
    return Trend(after - before, min(1.0, 2.0 * (len(series) - 5) * apart), before, jump, noise)


def _less_sure(chance: float, residuals: Floats) -> float:
    """A probability by a test of independent values, for values whose residuals are correlated: fewer of them count."""
    from scipy import special

    count = len(residuals)
    centered = residuals - residuals.mean()
    power = float((centered**2).sum())
    lag = float((centered[1:] * centered[:-1]).sum()) / power if power > 0 else 0.0
    lag = min(max((lag * count + 1.0) / (count - 4.0), 0.0), 0.95)  # the estimate of a short series is too low (Kendall 1954)
    return float(special.ndtr(special.ndtri(chance) * math.sqrt((1.0 - lag) / (1.0 + lag)))) if 0.0 < chance < 0.5 else chance


def _robust_deviation(values: Floats) -> float:
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _average_blocks(at: Int64s, series: Floats, most: int) -> tuple[Floats, Floats]:
    """Positions [S] and values [..., S], averaged in at most `most` blocks."""
    if len(at) <= most:
        return at.astype(np.float64), series
    blocks = np.array_split(np.arange(len(at)), most)
    means = [series[..., block].mean(axis=-1) for block in blocks]
    return np.array([at[block].mean() for block in blocks]), np.stack(means, axis=-1)


def _rise_chance(series: Floats) -> float:
    """Mann-Kendall probability that a steady series rises as much; 1 if it does not rise."""
    rise, count = float(_kendall_sum(series)), len(series)
    spread = np.sqrt(count * (count - 1) * (2 * count + 5) / 18.0)
    return 0.5 * math.erfc((abs(rise) - 1) / spread / math.sqrt(2.0)) if rise > 0 else 1.0


def _kendall_sum(series: Floats) -> Any:
    """Number of pairs of values [..., S] in which the later one is larger, minus those in which it is smaller."""
    return sum(np.sign(series[..., lag:] - series[..., :-lag]).sum(axis=-1) for lag in range(1, series.shape[-1]))


def _best_cut(series: Floats) -> int:
    """Where two constant levels fit the series best, with at least three values on each side."""
    cuts = range(3, len(series) - 2)
    return min(cuts, key=lambda cut: _distance(series[:cut]) + _distance(series[cut:]))


def _distance(series: Floats) -> float:
    """Sum of the distances from the median."""
    return float(np.abs(series - np.median(series)).sum())


@dataclass(frozen=True)
class _Part:
    """A part of the step that may grow."""

    verdict: Verdict
    growth: float
    """Seconds of a step at the end minus those at the beginning."""
    chance: float
    ranks: tuple[int, ...]
    text: str


def decline(table: StepTable, transfers: Transfers, *, warm_up: int = 2, named: Sequence[int] = ()) -> Finding | None:
    """Why the steps of a run grow; None if they do not, or if they jump because of ranks that are already in `named`.

    Ranks must be on one clock.
    """
    steps = table.steps[warm_up:]
    if len(steps) < FEWEST_STEPS:
        return None
    whole = table.take(np.arange(warm_up, len(table.steps)))
    length = np.full(len(steps), np.nan)
    known = np.isfinite(whole.step).any(0)
    length[known] = np.nanmedian(whole.step[:, known], axis=0)
    total = trend_of(length)
    if total.growth < max(LEAST * total.start, LEAST_EFFECT * total.noise):
        return None
    if total.chance > HINT and total.growth < CLEAR_EFFECT * total.noise:
        return None
    since = int(steps[max(total.jump, 0)])
    parts = sorted(_parts(whole, transfers), key=lambda one: -one.growth)
    best = _cause(parts, total.growth)
    share = best.growth / total.growth if best else 0.0
    needed = HINT if total.chance <= LEVEL else LEVEL  # a decline that is certain has some cause
    explained = best is not None and best.chance <= needed and share >= LEAST_SHARE
    if not explained and total.chance > LEVEL:
        return None
    if best is None or not explained:
        best = _Part(Verdict.UNEXPLAINED, total.growth, total.chance, (), "no part that is measured grows with it")
    if total.jump >= 0 and best.ranks and set(best.ranks) <= set(named):
        return None
    if not best.ranks and best.verdict is not Verdict.NO_CORE and total.growth < _waits_for_cores(whole):
        return None
    was, now = total.start * 1e3, (total.start + total.growth) * 1e3
    when = f"before step {since}" if total.jump >= 0 else f"at step {since}"
    evidence = [f"a step took {was:.1f} ms {when} and takes {now:.1f} ms now"]
    evidence.append(best.text if best.verdict is Verdict.UNEXPLAINED else _describe_part(best, total.growth))
    if best.verdict is Verdict.COMPUTE and not best.ranks and not _optimizer_grows(whole, best.growth / max(total.start, 1e-9)):
        evidence.append("all ranks grow alike, and their optimizers do not: as with longer batches or sequences")
    excluded = tuple(f"{part.verdict}: {_describe_part(part, total.growth)}" for part in parts if part.verdict is not best.verdict)
    who = f" of {format_ranks(best.ranks)}" if best.ranks else ""
    hosts = {host for host, rank in zip(table.hosts, table.ranks, strict=True) if host and int(rank) in best.ranks}
    how = f"steps are {total.growth / total.start:.1%} longer from about step {since} on" if total.jump >= 0 else ""
    text = f"{how or f'steps grow by {total.growth / total.start:.1%}'}: {best.verdict}{who}"
    return Finding(
        best.verdict, best.ranks, tuple(sorted(hosts)), 1.0 - best.chance, best.growth, total.growth, since, text,
        tuple(evidence), excluded,
    )  # fmt: skip


def _optimizer_grows(table: StepTable, growth: float) -> bool:
    """Whether optimizers take longer too, by a quarter of the relative `growth` or more: a lower clock slows down all work."""
    spent = table.work[Section.OPTIMIZER]
    known = np.isfinite(spent).any(axis=0)
    trend = trend_of(np.nanmedian(spent[:, known], axis=0)) if known.sum() >= FEWEST_STEPS else None
    return trend is None or trend.growth >= 0.25 * growth * trend.start


def _cause(parts: Sequence[_Part], growth: float) -> _Part | None:
    """The part that explains most of the growth. Waiting for a core comes first where it explains a good part: what else takes
    longer on a busy machine, such as transfers, is its consequence.
    """
    for part in parts:
        if part.verdict is Verdict.NO_CORE and part.chance <= HINT and part.growth >= LEAST_SHARE * growth:
            return part
    return parts[0] if parts else None


def _waits_for_cores(table: StepTable) -> float:
    """Seconds of a step that the rank which waits longest for a core waits. Where all ranks get slower by less, on machines that
    are too busy anyway, other work there is as likely a cause as any.
    """
    known = np.isfinite(table.step).any(axis=0)
    return float(np.median(np.nan_to_num(table.unfed[:, known]).max(axis=0))) if known.any() else 0.0


def _describe_part(part: _Part, total: float) -> str:
    share = min(max(part.growth, 0.0) / total, 1.0)
    return f"{part.text}: {part.growth * 1e3:+.1f} ms, {share:.0%} of the decline"


def _parts(table: StepTable, transfers: Transfers) -> list[_Part]:
    """Parts that may grow. Own work and gaps are those of the rank that grows most, because the others wait for it."""
    own = table.own
    gaps = np.nan_to_num(table.work[Section.HOST_GAP])
    data = np.nan_to_num(table.work[Section.DATA])
    parts = [
        _worst(table, own, Verdict.COMPUTE, "its own work grows, as with a lower clock"),
        _worst(table, data, Verdict.DATA, "its waiting for data grows"),
        _skew(table, gaps),
    ]
    if np.nansum(table.unfed) > 0:
        parts.append(_worst(table, np.nan_to_num(table.unfed), Verdict.NO_CORE, "its waiting for a core grows"))
    moved = _transfer_seconds(table.steps, transfers)
    trend = trend_of(moved)
    chance, machines = fading_machines(table.steps, transfers)
    text = "transfers grow, counted from the entry of the last rank"
    text += f", most surely those of {' and '.join(machines)}" if 0 < len(machines) <= 2 and chance <= LEVEL else ""
    parts.append(_Part(Verdict.BANDWIDTH, trend.growth, min(trend.chance, chance), (), text))
    return parts


def _worst(table: StepTable, values: Floats, verdict: Verdict, text: str) -> _Part:
    """The rank whose series grows most; all ranks if they grow alike."""
    trends = [trend_of(row) for row in values]
    growth = np.array([trend.growth for trend in trends])
    worst = int(np.argmax(growth))
    alike = growth > 0.5 * growth[worst] if growth[worst] > 0 else np.zeros(len(growth), bool)
    everyone = alike.sum() > 0.5 * len(growth)
    ranks = () if everyone else tuple(int(rank) for rank in table.ranks[alike])
    return _Part(verdict, float(growth[worst]), min(1.0, trends[worst].chance * len(trends)), ranks, text)


def _skew(table: StepTable, gaps: Floats) -> _Part:
    """Launch skew: host gaps, or lateness at calls that neither own work nor late data explain."""
    of_gaps = _worst(table, gaps, Verdict.LAUNCH_SKEW, "gaps of the host grow (garbage collection, Python)")
    known = (table.own, table.starved, table.blocked, table.work[Section.DATA])
    rest = table.step - sum(np.nan_to_num(part) for part in known)
    of_rest = _worst(table, rest, Verdict.LAUNCH_SKEW, "time of the host outside of all sections grows")
    return of_gaps if of_gaps.growth >= of_rest.growth and of_gaps.chance <= LEVEL else of_rest


def fading_machines(steps: Int64s, transfers: Transfers) -> tuple[float, tuple[str, ...]]:
    """The set of machines whose fastest calls grow most significantly, and the Mann-Kendall probability that any set seems to.

    The fastest call of a step shows one link; the sum of a step's calls shows what all of them waited for.
    """
    best, tried = 1.0, 0
    machines: tuple[str, ...] = ()
    joined = np.array([len(one) > 1 for one in transfers.machines], bool)
    within = np.isin(transfers.step, steps) & joined[transfers.joins]
    for kind in range(len(transfers.kinds)):
        rows = np.flatnonzero((transfers.kind == kind) & within)
        if not len(rows):
            continue
        sets, series = quickest_calls(transfers, rows)
        whole = np.flatnonzero(np.isfinite(series).all(axis=1))
        tried += len(whole)
        if not len(whole) or series.shape[1] < FEWEST_STEPS:
            continue
        _, means = _average_blocks(np.arange(series.shape[1]), series[whole], MOST_POINTS)
        most = int(np.argmax(_kendall_sum(means)))
        chance = 2.0 * _rise_chance(means[most])
        if chance < best:
            best, machines = chance, transfers.machines[int(sets[whole[most]])]
    return min(1.0, best * max(tried, 1)), machines


def _transfer_seconds(steps: Int64s, transfers: Transfers) -> Floats:
    """Seconds of transfers in each step, of calls between several ranks."""
    place = np.searchsorted(steps, transfers.step)
    fits = (place < len(steps)) & (np.take(steps, np.minimum(place, len(steps) - 1)) == transfers.step)
    total = np.bincount(place[fits], transfers.seconds[fits], len(steps))
    return np.where(np.bincount(place[fits], minlength=len(steps)) > 0, total, np.nan)


def fit_theil_line(places: Floats, values: Floats) -> tuple[float, float]:
    """Slope and intercept of Theil and Sen's line through points [S] at increasing places: the median of all pairs' slopes, and
    the intercept through both medians."""
    first, second = np.triu_indices(len(places), 1)
    slope = float(np.median((values[second] - values[first]) / (places[second] - places[first])))
    return slope, float(np.median(values) - slope * np.median(places))


def chance_of_greater(upper: Floats, lower: Floats) -> float:
    """Exact probability, by Mann and Whitney's test, that values of one distribution are so much greater in `upper` than in
    `lower`. Ties count as half."""
    beats = (upper[:, None] > lower).sum() + 0.5 * (upper[:, None] == lower).sum()
    ways = _ways(*sorted((len(upper), len(lower))))
    return min(1.0, float(ways[int(beats) :].sum() / ways.sum()))


@lru_cache(maxsize=64)
def _ways(few: int, many: int) -> Any:
    """In how many orders of both samples U is 0, 1, … `few * many`: the coefficients of a Gaussian binomial."""
    size = few * many + 1
    ways = np.zeros(size)
    ways[0] = 1.0
    for part in range(1, few + 1):
        up = many + part
        if up < size:
            ways[up:] -= ways[: size - up].copy()
        for at in range(part, size):
            ways[at] += ways[at - part]
    return ways
