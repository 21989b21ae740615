"""What happens in some steps only: stalls, saves, logs, evaluations, garbage, bursts. Judged by what it costs the mean step.

The excess of a rank in a step is all that it does itself (`busy_parts`) less the median of its equals, less its usual difference
from them; that of all ranks together is the lower median over the ranks, less what is usual about that step. Two questions are put
to such a series, the costliest answer first, and what is explained is taken off before the next question:

* Is it larger at every T-th step? For each period T the series is folded, and the phase whose median exceeds the others most is
  tested: a binomial test of how many of its steps exceed half of that median, against the share of all other steps that do, times
  the number of phases tried. Steps in between must agree with each other, so that T is no multiple or divisor of the true period.
* Are there steps far above the usual ones (`FAR` robust deviations), without a period? One rank is named for them only if its
  excess is several times that of any other: stalls of a busy machine strike everyone.

The cost of a cause is its mean excess, as far as the rank's own steps are longer by it: what other ranks wait for anyway costs
nothing. All causes together cost at most the mean step less the fastest typical one.

Lengths of a run's steps as a distribution, and its slowest steps with the rank and the part that they lose time to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import bdtrc

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.dataclasses import asdict, dataclass, replace
from windtunnel.fleet.findings.slow_ranks import MANY, WARM_UP
from windtunnel.fleet.findings.steps import WORK, StepTable
from windtunnel.records.sections import Section

FEWEST_STEPS = 24
FEWEST_HITS = 3
LONGEST_PERIOD = 512
LEVEL = 1e-4
"""Probability that a series without a period shows one."""
LEAST_SHARE = 0.008
"""Share of the mean step that a periodic cause has to cost."""
LEAST_BURST = 0.02
"""The same of a cause without a period."""
LEAST_EVENT = 1e-3
"""Seconds of one occurrence."""
FAR = 6.0
TIMES_OTHERS = 5.0
"""How often the excess of any other rank the irregular excess of a named one has to be."""
MOST_CAUSES = 4
"""Causes of one series."""
MOST_RANKS = 64
"""Ranks that are examined one by one: those with the most excess."""
TELLING = {"inference": 0.02, "saves": 0.2}
"""Share of an occurrence from which on a part that other steps do not have says what it is: the rest is Python around it."""
_SPAN = 64
"""Steps of the running median that is usual about a step; even, so that every second step's level is not taken for it."""
_CANDIDATES = 12
NO_CORE, CALLS = "no core", "calls"


@dataclass(frozen=True)
class RareCause:
    """What some steps lose time to."""

    ranks: tuple[int, ...]
    """Empty: all."""
    part: str
    """A key of `busy_parts`, or `CALLS`."""
    period: int
    """Steps from one occurrence to the next; 0: irregular."""
    steps: Int64s
    """[n]: the steps with it, as far as there are records."""
    event: float
    """Seconds of one occurrence."""
    cost: float
    """Seconds of the mean step."""
    share: float
    """`cost` as a share of the mean step."""
    chance: float
    """Probability that a healthy job shows as much."""
    equals: float
    """Seconds that the part takes the rank's equals in such a step; NaN where there are none, or for all ranks."""


@dataclass(frozen=True)
class _Series:
    """Excess of a rank (or of all: `row` -1) in S consecutive steps, seconds; NaN unknown."""

    row: int
    values: Floats


def busy_parts(table: StepTable) -> dict[str, Floats]:
    """Seconds of all that a rank does itself, by part; each [R, S], 0 where it does nothing, NaN where the step has not ended."""
    ended = np.isfinite(table.step)
    named: dict[str, Floats] = {section.name.lower(): table.work[section] for section in WORK}
    named |= {"data": table.work[Section.DATA], "saves": table.work[Section.CHECKPOINT], "gaps": table.work[Section.HOST_GAP]}
    named |= {"outside": table.outside, NO_CORE: table.unfed}
    return {name: np.where(ended, np.nan_to_num(values), np.nan) for name, values in named.items()}


def rare_causes(table: StepTable) -> list[RareCause]:
    """The causes, costliest first. Nothing for fewer than `FEWEST_STEPS` steps after the warm-up."""
    dense = _consecutive(table)
    if dense is None or int(np.isfinite(dense.step).any(axis=0).sum()) < FEWEST_STEPS:
        return []
    parts = busy_parts(dense)
    together = {name: _lower_median(values) for name, values in parts.items()}
    together[CALLS] = _least(dense.blocked)
    length = _mean(dense.step)
    causes = _causes_of(_Series(-1, np.asarray(sum(together.values()))), together, dense, length)
    taken = {int(step) for cause in causes for step in cause.steps}
    if len(dense.ranks) > 1:
        causes += _of_single_ranks(dense, parts, taken)
    return _within_excess(_join_ranks(causes), length)


def _consecutive(table: StepTable) -> StepTable | None:
    """The table with a column for every step after the warm-up, NaN where there are no records."""
    kept = np.flatnonzero(np.isfinite(table.step).any(axis=0))
    kept = kept[kept >= WARM_UP]
    if not len(kept):
        return None
    first = int(table.steps[kept[0]])
    place = table.steps[kept] - first

    def spread(values: Floats) -> Floats:
        out = np.full((len(table.ranks), int(place[-1]) + 1), np.nan)
        out[:, place] = values[:, kept]
        return out

    return table.change_series(first + np.arange(int(place[-1]) + 1), spread)


def _lower_median(values: Floats) -> Floats:
    """Over the ranks: at least half of them take as long. [S]"""
    known = np.isfinite(values).sum(axis=0)
    ordered = np.sort(values, axis=0)  # NaN comes last
    return np.where(known > 0, ordered[np.maximum(known - 1, 0) // 2, np.arange(values.shape[1])], np.nan)


def _least(values: Floats) -> Floats:
    """Over the ranks: the last to enter its calls waits for nobody. [S]"""
    least = np.where(np.isfinite(values), values, np.inf).min(axis=0)
    return np.where(np.isfinite(least), least, 0.0)


def _mean(values: Floats) -> Floats:
    """Over the ranks that ended a step. [S]"""
    known = np.isfinite(values).sum(axis=0)
    return np.where(known > 0, np.nan_to_num(values).sum(axis=0) / np.maximum(known, 1), np.nan)


def _of_single_ranks(dense: StepTable, parts: Mapping[str, Floats], taken: set[int]) -> list[RareCause]:
    busy = np.asarray(sum(parts.values()))
    series: list[_Series] = []
    of_role: dict[int, Floats] = {}
    for row, role in enumerate(dense.roles.tolist()):
        others = _equals(dense, row)
        if len(others) >= MANY and role not in of_role:  # the rank itself does not change the median
            of_role[role] = np.median(busy[dense.roles == role], axis=0)
        middle = of_role.get(role)
        if middle is None:
            middle = np.median(busy[others], axis=0) if len(others) else _running_median(busy[row])
        values = busy[row] - middle
        if not len(others):
            values[[step - int(dense.steps[0]) for step in taken]] = np.nan
        series.append(_Series(row, values - known_median(values)))
    above = np.array([np.nansum(np.maximum(one.values, 0.0)) for one in series])
    chosen = sorted(np.argsort(-above, kind="stable")[:MOST_RANKS].tolist())
    found, rest = [], {}
    for row in chosen:
        own = {name: values[row] for name, values in parts.items()}
        causes = _causes_of(series[row], own, dense, dense.step[row])
        found += causes
        left = series[row].values.copy()
        for cause in causes:
            left[cause.steps - int(dense.steps[0])] = np.nan
        rest[row] = left
    return found + _bursts_of_ranks(dense, parts, rest)


def _equals(table: StepTable, row: int) -> Int64s:
    return np.flatnonzero((table.roles == table.roles[row]) & (np.arange(len(table.ranks)) != row))


def _running_median(values: Floats) -> Floats:
    """The running median of a series: what is usual about each step. [S]"""
    span = min(_SPAN, len(values) // 2 * 2)
    padded = np.pad(values, (span // 2, span // 2), mode="reflect") if len(values) > span // 2 else values
    windows = np.lib.stride_tricks.sliding_window_view(padded, span)[: len(values)]
    whole = np.isfinite(windows).all(axis=1)
    usual = np.full(len(values), known_median(values))
    usual[whole] = np.median(windows[whole], axis=1)
    some = ~whole & np.isfinite(windows).any(axis=1)
    usual[some] = np.nanmedian(windows[some], axis=1)
    return usual


def known_median(values: Floats) -> float:
    """Of the values that are finite; 0 if none is."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else 0.0


def _causes_of(series: _Series, parts: Mapping[str, Floats], dense: StepTable, length: Floats) -> list[RareCause]:
    """The periodic causes of one series; for all ranks also bursts in what is no computing. `parts`: what it is the sum of, each
    [S]; `length`: of the steps, [S]."""
    left = series.values - _running_median(series.values)
    usual_length, mean_length = _running_median(length), float(np.nanmean(length))
    causes: list[RareCause] = []
    while len(causes) < MOST_CAUSES and (found := _find_period(left)) is not None:
        period, phase, chance = found
        slots = np.zeros(len(left), np.bool_)
        slots[phase::period] = True
        slots &= np.isfinite(left)
        event = float(left[slots].mean()) - known_median(left[~slots])
        cause = _cause_at(series.row, slots, period, event, chance, parts, dense, length - usual_length, mean_length)
        left = np.where(slots, np.minimum(left - event, 0.0), left)
        if cause is None:
            break
        if cause.event >= LEAST_EVENT and cause.cost >= LEAST_SHARE * mean_length:
            causes.append(cause)
    if series.row < 0:
        slots = _far_steps(left, mean_length)
        if slots.sum() >= FEWEST_HITS:
            event = float(left[slots].mean()) - known_median(left[~slots])
            burst = _cause_at(-1, slots, 0, event, LEVEL, parts, dense, length - usual_length, mean_length)
            if burst is not None and burst.part in ("data", "outside", "saves") and burst.cost >= LEAST_BURST * mean_length:
                causes.append(burst)
    return causes


def _find_period(values: Floats) -> tuple[int, int, float] | None:
    """Period, first index and probability of the most certain regular excess of a series [S] about 0."""
    filled = np.nan_to_num(values)
    longest = min(len(filled) // FEWEST_HITS, LONGEST_PERIOD)
    candidates: list[tuple[float, int, int]] = []
    for period in range(2, longest + 1):
        rows = -(-len(filled) // period)
        folded = np.full(rows * period, np.nan)
        folded[: len(filled)] = filled
        whole = np.median(folded[: (rows - 1) * period].reshape(rows - 1, period), axis=0)
        for phase in np.argsort(whole)[-2:].tolist():
            candidates.append((float(whole[phase]) * (rows - 1) ** 0.5, period, int(phase)))
    tried = longest * (longest + 1) / 2
    for _, period, phase in sorted(candidates, reverse=True)[:_CANDIDATES]:
        chance = tried * _chance_of_phase(values, period, phase)
        if chance <= LEVEL:
            return period, phase, chance
    return None


def _chance_of_phase(values: Floats, period: int, phase: int) -> float:
    """Probability that as many steps of a phase exceed half of its median by accident; 1 if its steps do not agree."""
    here = values[phase::period]
    here = here[np.isfinite(here)]
    middle = float(np.median(here)) if len(here) else 0.0
    if len(here) < FEWEST_HITS or middle <= 0.0:
        return 1.0
    for count in (2, 3):
        means = [float(here[part::count].mean()) for part in range(count) if len(here[part::count])]
        if len(here) > count and min(means) < 0.35 * max(means):
            return 1.0
    away = np.ones(len(values), np.bool_)
    away[phase::period] = False
    others = values[away & np.isfinite(values)]
    high = ((others >= middle / 2).sum() + 0.5) / (len(others) + 1.0)
    return float(bdtrc(int((here >= middle / 2).sum()) - 1, len(here), high))


def _cause_at(
    row: int, slots: Bools, period: int, event: float, chance: float, parts: Mapping[str, Floats], dense: StepTable, longer: Floats,
    mean_length: float,
) -> RareCause | None:  # fmt: skip
    """The cause whose steps are `slots` [S]. `longer`: by how much each step is longer than usual. None if it costs nothing."""
    away = ~slots & np.isfinite(longer)
    extra = {name: float(np.nanmean(values[slots])) - known_median(values[away]) for name, values in parts.items()}
    if not len(extra) or event <= 0.0:
        return None
    name = max(extra, key=lambda one: extra[one])
    for telling, share in TELLING.items():
        if (
            telling in extra
            and extra[telling] >= share * event
            and not np.nanmax(parts[telling][away], initial=0.0) >= extra[telling] / 2
        ):
            name = telling
    quiet = away & ~_far_steps(longer, mean_length)  # without the steps of other causes
    lost = _trimmed_mean(longer[slots]) - _trimmed_mean(longer[quiet])
    lost = lost if row < 0 else min(event, lost)  # where all ranks lose time, a step waits for the one that loses most
    cost = lost * float(slots.sum()) / float(np.isfinite(longer).sum())
    if cost <= 0.0:
        return None
    theirs = float("nan")
    if row >= 0 and len(others := _equals(dense, row)):
        theirs = float(np.nanmedian(busy_parts(dense)[name][others][:, slots]))
    ranks = () if row < 0 else (int(dense.ranks[row]),)
    return RareCause(ranks, name, period, dense.steps[slots], event, cost, cost / mean_length, min(chance, 1.0), theirs)


def _trimmed_mean(values: Floats) -> float:
    """Without the largest twentieth, in which hiccups are."""
    known = np.sort(values[np.isfinite(values)])
    return float(known[: len(known) - len(known) // 20].mean()) if len(known) else 0.0


def _far_steps(values: Floats, mean_length: float) -> Bools:
    """Steps far above the usual ones, if they are fewer than half of all. [S]"""
    known = values[np.isfinite(values)]
    if not len(known):
        return np.zeros(len(values), np.bool_)
    middle = float(np.median(known))
    spread = 1.4826 * float(np.median(np.abs(known - middle)))
    far = np.nan_to_num(values - middle) > max(FAR * spread, 0.05 * mean_length, LEAST_EVENT)
    return far if far.sum() < 0.5 * len(known) else np.zeros(len(values), np.bool_)


def _bursts_of_ranks(dense: StepTable, parts: Mapping[str, Floats], rest: Mapping[int, Floats]) -> list[RareCause]:
    """The rank whose irregular excess is `TIMES_OTHERS` that of any other, and that is not still going on in most steps."""
    mean_length = float(np.nanmean(dense.step))
    far = {row: _far_steps(values, mean_length) for row, values in rest.items()}
    mass = {row: float(values[far[row]].sum()) for row, values in rest.items()}
    ordered = sorted(mass, key=lambda row: -mass[row])
    if not ordered:
        return []
    row = ordered[0]
    slots, second = far[row], max((mass[other] for other in ordered[1:]), default=0.0)
    if slots.sum() < FEWEST_HITS or mass[row] < TIMES_OTHERS * second or slots[-_SPAN // 2 :].mean() > 0.6:
        return []
    away = rest[row][~slots]
    event = float(rest[row][slots].mean()) - known_median(away)
    length = dense.step[row]
    own = {name: values[row] for name, values in parts.items()}
    cause = _cause_at(row, slots, 0, event, LEVEL, own, dense, length - _running_median(length), mean_length)
    return [cause] if cause is not None and cause.cost >= LEAST_BURST * mean_length else []


def _join_ranks(causes: Sequence[RareCause]) -> list[RareCause]:
    """Ranks that lose time to the same at the same steps as one cause, which costs as much as the worst of them."""
    joined: dict[tuple[object, ...], RareCause] = {}
    for cause in sorted(causes, key=lambda one: -one.cost):
        key = (cause.part, cause.period, int(cause.steps[0]), not cause.ranks, cause.period or cause.ranks)
        first = joined.get(key)
        joined[key] = cause if first is None else replace(first, ranks=tuple(sorted({*first.ranks, *cause.ranks})))
    return list(joined.values())


def _within_excess(causes: Sequence[RareCause], length: Floats) -> list[RareCause]:
    """Costs that together are at most the mean step less the fastest typical step."""
    known = length[np.isfinite(length)]
    excess = float(known.mean() - np.quantile(known, 0.1)) if len(known) else 0.0
    total = sum(cause.cost for cause in causes)
    scale = min(1.0, excess / total) if total > 0 else 1.0
    scaled = [replace(cause, cost=scale * cause.cost, share=scale * cause.share) for cause in causes]
    return sorted(scaled, key=lambda one: -one.cost)


MOST_SLOW = 8
LEAST_EXCESS = 0.2
"""Share of the median step by which a step that is told as slow is longer."""
LEAST_PART = 0.3
"""Share of that excess which a rank has to lose itself to be told."""


@dataclass(frozen=True)
class SlowStep:
    """A step that took long."""

    step: int
    seconds: float
    rank: int
    """That lost most; -1: all, or none."""
    part: str
    """What it lost it to: a key of `rare.busy_parts`, or "calls"."""
    lost: float
    """Seconds more than usual."""


@dataclass(frozen=True)
class StepSpread:
    """Seconds of the steps after the warm-up, each the mean over the ranks. NaN without such a step."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    slowest: tuple[SlowStep, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data; None for NaN."""
        times = {name: value if (value := getattr(self, name)) == value else None for name in ("mean", "p50", "p95", "p99")}
        return {"count": self.count, **times, "slowest": [asdict(one) for one in self.slowest]}


def step_times(table: StepTable) -> StepSpread:
    """The distribution; of a run without a step after the warm-up, that of all steps."""
    ended = np.flatnonzero(np.isfinite(table.step).any(axis=0))
    ended = ended[ended >= WARM_UP] if (ended >= WARM_UP).any() else ended
    if not len(ended):
        return StepSpread(0, *(float("nan"),) * 4, ())
    length = np.nanmean(table.step[:, ended], axis=0)
    middle, high, highest = (float(one) for one in np.quantile(length, [0.5, 0.95, 0.99]))
    slow = [int(one) for one in np.argsort(-length, kind="stable")[:MOST_SLOW] if length[one] > (1 + LEAST_EXCESS) * middle]
    parts = {name: values[:, ended] for name, values in busy_parts(table).items()} if slow else {}
    usual = {name: np.nanmedian(np.where(np.isfinite(values), values, 0.0), axis=1) for name, values in parts.items()}
    slowest = tuple(_slow_step(int(table.steps[ended[at]]), at, float(length[at]), middle, parts, usual, table) for at in slow)
    return StepSpread(len(ended), float(length.mean()), middle, high, highest, slowest)


def _slow_step(
    step: int, at: int, seconds: float, middle: float, parts: dict[str, Floats], usual: dict[str, Floats], table: StepTable
) -> SlowStep:
    extra = {name: np.nan_to_num(values[:, at] - usual[name]) for name, values in parts.items()}
    lost = np.asarray(sum(extra.values()))
    row = int(np.argmax(lost))
    if lost[row] < LEAST_PART * (seconds - middle):
        return SlowStep(step, seconds, -1, CALLS, seconds - middle)
    part = max(extra, key=lambda name: float(extra[name][row]))
    alone = len(lost) == 1 or float((lost >= 0.5 * lost[row]).mean()) < 0.5
    return SlowStep(step, seconds, int(table.ranks[row]) if alone else -1, part, float(lost[row]))
