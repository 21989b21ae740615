"""The search: bounds order the plans, predictions decide among those that a bound cannot rule out.

Plans are predicted in the order of their bounds. Once the next bound is no better than the best prediction, no plan that is left
can be better, and the search ends with a certificate. A time limit or Ctrl-C ends it earlier, with the share by which a plan could
still be better.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.search.bound.bounds import bounds
from windtunnel.search.bound.memory import room
from windtunnel.search.change import Change
from windtunnel.search.objective import Least, Most, Objective, front_first, tokens_of, values_of
from windtunnel.search.outcome import PlanOutcome, Store, Trial
from windtunnel.search.space import PlanColumns, Space
from windtunnel.search.workers import Workers
from windtunnel.spec import Job


@dataclass(frozen=True)
class Candidate:
    """A predicted plan: a change of frame number `frame`, its outcome, and its value for each objective (less is better)."""

    frame: int
    change: Change
    outcome: PlanOutcome
    values: tuple[float, ...]
    row: int = -1


@dataclass(frozen=True)
class Certificate:
    """What became of the plans of a space.

    combinations = not plans + `refused` + `too_large` (for the memory, by its bound) + `over_limit` (of a constraint) +
    candidates; candidates = `predicted` + `ruled_out` by the bound + `open`, which a limit or a gap left. Of the predicted,
    `did_not_fit` and `contradicted` are no plans after all.
    """

    combinations: int
    plans: int
    refused: int
    too_large: int
    over_limit: int
    predicted: int
    did_not_fit: int
    contradicted: int
    ruled_out: int
    open: int
    gap: float
    """No open plan is better than the best one by more than this share."""
    cells: int
    """Jobs that were priced for the bounds."""
    bound_s: float
    predict_s: float

    @property
    def exact(self) -> bool:
        """Whether no plan of the space is better than the best one."""
        return self.gap <= 0.0


@dataclass
class Plans:
    """All plans of all frames as columns: `frame`, `row` in its columns, bound of each objective [N, objectives], least seconds and
    bytes of memory; `may_fit`: the bounds leave room in memory and under the `constraints`, which rule out `over` of those that
    fit; `nearest`: the least bound of each constraint; `room` [frames]: bytes that a GPU has for a plan."""

    jobs: tuple[Job, ...]
    columns: tuple[PlanColumns, ...]
    frame: Int64s
    row: Int64s
    bound: Floats
    seconds: Floats
    bytes: Floats
    may_fit: Bools
    room: Floats
    combinations: int
    refused: int
    reasons: dict[str, int]
    cells: int
    elapsed: float
    over: int = 0
    constraints: tuple[Most, ...] = ()
    nearest: tuple[float, ...] = ()

    def change(self, number: int) -> Change:
        return self.columns[int(self.frame[number])].change(int(self.row[number]))

    def __len__(self) -> int:
        return len(self.frame)


def plans_of(
    spaces: Sequence[Space],
    objectives: Sequence[Objective],
    margin: float = 0.0,
    progress: Callable[[float], object] | None = None,
    constraints: Sequence[Most] = (),
) -> Plans:
    """All plans of the spaces with their bounds; plans that contradict themselves are counted and left out."""
    begun = time.perf_counter()
    columns = tuple(space.columns() for space in spaces)
    parts: list[tuple[Int64s, Int64s, Floats, Floats, Floats, Bools]] = []
    refused, cells, reasons = 0, 0, dict[str, int]()
    over, nearest = 0, [math.inf] * len(constraints)
    usable = np.array([(1.0 - margin) * room(space.job) for space in spaces])
    for number, (space, table) in enumerate(zip(spaces, columns, strict=True)):
        share = None if progress is None else _part_of(progress, number, len(spaces))
        found = bounds(table, share)
        rows = np.flatnonzero(~found.refused)
        tokens = tokens_of(space.job, table.numbers("plan.global_batch")[rows])
        least = Least(found.seconds[rows], found.computing[rows], tokens)
        bound = np.stack([each.bound(space.job, least) for each in objectives], axis=1)
        fits = found.bytes[rows] <= usable[number]
        limited = [most.objective.bound(space.job, least) for most in constraints]
        for at, (values, most) in enumerate(zip(limited, constraints, strict=True)):
            nearest[at] = min(nearest[at], float(values[fits].min(initial=math.inf)))
            over += int((fits & (values > most.limit)).sum())
            fits = fits & (values <= most.limit)
        parts.append((np.full(len(rows), number), rows, bound, found.seconds[rows], found.bytes[rows], fits))
        refused, cells = refused + int(found.refused.sum()), cells + found.cells
        for why, count in found.reasons.items():
            reasons[why] = reasons.get(why, 0) + count
    frame, row, bound, seconds, bytes_, fits = (np.concatenate(each) for each in zip(*parts, strict=True))
    combinations = sum(space.size for space in spaces)
    elapsed = time.perf_counter() - begun
    jobs = tuple(space.job for space in spaces)
    return Plans(
        jobs, columns, frame, row, bound, seconds, bytes_, fits, usable, combinations, refused, reasons, cells, elapsed, over,
        tuple(constraints), tuple(nearest),
    )  # fmt: skip


def _part_of(progress: Callable[[float], object], number: int, count: int) -> Callable[[float], object]:
    return lambda share: progress((number + share) / count)


@dataclass(frozen=True)
class SearchLimits:
    """When a search ends before its certificate is exact: at a `gap` (share), after `seconds`, after `predictions`."""

    gap: float = 0.0
    seconds: float = math.inf
    predictions: float = math.inf


NO_LIMITS = SearchLimits()


class Search:
    """A search over `plans`. `known` has the outcomes of those that were tried; several searches may share it."""

    def __init__(
        self,
        plans: Plans,
        objectives: Sequence[Objective],
        workers: Workers,
        store: Store | None = None,
    ) -> None:
        self.plans, self.objectives, self.workers, self.store = plans, tuple(objectives), workers, store
        self.known: dict[int, PlanOutcome] = {}
        self.predict_s = 0.0
        self.over: tuple[float, ...] = ()  # least value of each constraint among plans that miss one

    def run(
        self,
        rows: Int64s | None = None,
        limits: SearchLimits = NO_LIMITS,
        stop: Callable[[float], bool] | None = None,
        anyway: bool = False,
        keep: int = 1,
        known_first: bool = False,
    ) -> tuple[list[Candidate], int]:
        """Predicts plans until no other of `rows` can be better. Returns the predicted plans that fit, best first (with several
        objectives: the undominated ones first), and how many of `rows` were left open. `anyway`: memory does not matter.
        `keep`: how many of the best plans are looked for, with one objective. `known_first`: what was predicted earlier counts from
        the start, so that its best rules others out."""
        begun = time.perf_counter()
        plans = self.plans
        rows = np.flatnonzero(plans.may_fit) if rows is None else rows
        order = rows[np.lexsort((rows, plans.bound[rows, 0]))]
        best = _Best(len(self.objectives), limits.gap, keep)
        if known_first:
            order = self._record_known(order, best)
        left, tried = 0, 0
        under_way = 0
        place = 0
        ended = False
        while place < len(order) or under_way:
            while place < len(order) and under_way < self.workers.slots and not ended:
                number = int(order[place])
                if best.beats(plans.bound[number]):
                    if len(self.objectives) == 1:
                        place = len(order)
                        break
                    place += 1
                    continue
                place += 1
                if (known := self._known_outcome(number, anyway)) is not None:
                    self._record(number, known, best, anyway)
                    continue
                if tried >= limits.predictions or time.perf_counter() - begun > limits.seconds:
                    left, ended = left + 1, True
                    break
                tried += 1
                self.workers.submit(Trial(number, int(plans.frame[number]), plans.change(number), anyway))
                under_way += 1
            if ended and place < len(order):
                left += best.count_open(plans.bound[order[place:]])
                place = len(order)
            if under_way:
                trial, outcome = self.workers.next()
                under_way -= 1
                self.known[trial.number] = outcome
                if self.store is not None:
                    self.store.add(trial.frame, trial.change, outcome)
                self._record(trial.number, outcome, best, anyway)
            if stop is not None and not ended and stop(best.share(plans.bound[order, 0])):
                ended = True
        self.predict_s += time.perf_counter() - begun
        return best.in_order(), left

    def _record_known(self, order: Int64s, best: _Best) -> Int64s:
        """Records what is known of the plans `order`; returns the others."""
        for number in order.tolist():
            if number in self.known:
                self._record(number, self.known[number], best, anyway=False)
        return order[[number not in self.known for number in order.tolist()]]

    def _known_outcome(self, number: int, anyway: bool) -> PlanOutcome | None:
        outcome = self.known.get(number)
        if outcome is None and self.store is not None:
            outcome = self.store.get(int(self.plans.frame[number]), self.plans.change(number))
            if outcome is not None:
                self.known[number] = outcome
        if outcome is not None and anyway and outcome.missing > 0.0 and not outcome.step_time_s:
            return None  # it was not predicted, since it does not fit
        return outcome

    def _record(self, number: int, outcome: PlanOutcome, best: _Best, anyway: bool) -> None:
        if outcome.refused or not (outcome.fits or anyway):
            return
        frame, change = int(self.plans.frame[number]), self.plans.change(number)
        job = change.apply_unchecked(self.plans.jobs[frame])
        values = values_of(self.objectives, job, outcome)
        limited = values_of([most.objective for most in self.plans.constraints], job, outcome)
        if any(value > most.limit for value, most in zip(limited, self.plans.constraints, strict=True)):
            self.over = tuple(map(min, zip(limited, self.over or limited, strict=True)))
        else:
            best.add(Candidate(frame, change, outcome, values, number))

    def certificate(self, left: int, best: Candidate | None) -> Certificate:
        """What became of the plans, after `run` over all of them left `left` of them open."""
        plans = self.plans
        tried = [outcome for number, outcome in self.known.items() if plans.may_fit[number]]
        candidates = int(plans.may_fit.sum())
        gap = 0.0
        if best is not None and len(self.objectives) == 1:
            unknown = plans.may_fit.copy()
            unknown[list(self.known)] = False
            lowest = float(plans.bound[unknown, 0].min(initial=math.inf))
            gap = max(0.0, 1.0 - lowest / best.values[0])
        return Certificate(
            combinations=plans.combinations,
            plans=len(plans) + plans.refused,
            refused=plans.refused,
            too_large=len(plans) - candidates - plans.over,
            over_limit=plans.over,
            predicted=len(tried),
            did_not_fit=sum(not o.refused and not o.fits for o in tried),
            contradicted=sum(bool(o.refused) for o in tried),
            ruled_out=candidates - len(tried) - left,
            open=left,
            gap=gap,
            cells=plans.cells,
            bound_s=plans.elapsed,
            predict_s=self.predict_s,
        )


class _Best:
    """The candidates so far, and the bound at which a plan need not be predicted any more."""

    def __init__(self, objectives: int, gap: float, keep: int = 1) -> None:
        self.gap, self.keep, self.all = gap, keep, list[Candidate]()
        self.nearest: list[float] = []  # values of the first objective of the best `keep`
        self.limit = math.inf  # of the first objective
        self.front = np.zeros((0, objectives))

    def add(self, candidate: Candidate) -> None:
        self.all.append(candidate)
        self.nearest = sorted([*self.nearest, candidate.values[0]])[: self.keep]
        if len(self.nearest) == self.keep:
            self.limit = self.nearest[-1] * (1.0 - self.gap)
        values = np.array(candidate.values)
        if not (self.front <= values).all(axis=1).any():
            self.front = np.concatenate([self.front[~(values <= self.front).all(axis=1)], values[None]])

    def beats(self, bound: Floats) -> bool:
        """Whether no plan with these bounds can be better (by more than the gap) than every candidate."""
        if len(bound) == 1:
            return bool(bound[0] >= self.limit)
        return bool((self.front * (1.0 - self.gap) <= bound).all(axis=1).any())

    def count_open(self, bounds: Floats) -> int:
        """How many plans with these bounds [N, objectives] could still be better."""
        if bounds.shape[1] == 1:
            return int((bounds[:, 0] < self.limit).sum())
        return sum(not self.beats(bound) for bound in bounds)

    def share(self, ordered: Floats) -> float:
        """Share of plans, in the order of their bounds, that are dealt with or ruled out."""
        if not math.isfinite(self.limit):
            return 0.0
        must = max(1, int(np.searchsorted(ordered, self.limit)))
        return min(1.0, len(self.all) / must)

    def in_order(self) -> list[Candidate]:
        ordered = sorted(self.all, key=lambda one: (one.values, one.row))
        return ordered if self.front.shape[1] == 1 else front_first(ordered, lambda one: one.values)[0]
