"""What happens in some steps only, in real ranks: one part of the job takes longer at every n-th step, on one rank or on all."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.faults.bench import Bench
from tests.faults.outcome import Outcome, wrong_names
from tests.faults.planned import PARTS, spent_seconds, write_plan
from tests.faults.run import finished, folder
from tests.faults.training import Job
from windtunnel.fleet.findings.finding import Finding, Verdict
from windtunnel.fleet.findings.judge import Judgement, judge
from windtunnel.fleet.findings.rare import busy_parts
from windtunnel.fleet.findings.slow_ranks import WARM_UP
from windtunnel.fleet.findings.steps import StepTable

RANKS = 4
FORWARD, BACKWARD = 0.006, 0.009
USUAL = 0.021
"""Seconds of a step without a fault, about."""
LEAST_EVENT = 0.002
"""Seconds of the shortest occurrence that is drawn: what is shorter than 1 ms is not named by design."""
WITHIN = 0.2
"""Relative error that a cost may have."""
TOLD = ((2, "outside", 40, 3.0), (2, "outside", 10, 0.4), (0, "saves", 10, 0.65), (1, "inference", 4, 0.1))
"""(rank, part, period, seconds): a stall of half of the job's time, a logger that flushes, slow saves, one rank that validates."""
CLEAN = ("plain", "evaluation", "saves", "curriculum", "lengths", "noisy")


def rare(bench: Bench, seed: int) -> Outcome:
    """Every 2nd to 200th step, 1 to 50 % of the time, with jitter; right: named first, with ranks, part, period and its cost."""
    dice = np.random.default_rng(seed)
    while True:
        period = int(np.exp(dice.uniform(np.log(2), np.log(200.5))))
        share = float(np.exp(dice.uniform(np.log(0.01), np.log(0.5))))
        event = share / (1 - share) * USUAL * period
        if event >= LEAST_EVENT:
            break
    part, who = PARTS[int(dice.integers(len(PARTS)))], int(dice.integers(RANKS)) if dice.random() < 0.5 else -1
    return _named(bench, dice, who, part, period, event, float(dice.uniform(0.02, 0.3)))


def told(bench: Bench, seed: int) -> Outcome:
    """One of `TOLD`."""
    who, part, period, event = TOLD[seed % len(TOLD)]
    return _named(bench, np.random.default_rng(seed), who, part, period, event, 0.05)


def _named(bench: Bench, dice: Any, who: int, part: str, period: int, event: float, jitter: float) -> Outcome:
    steps = max(200, int(period * dice.uniform(3.5, 5.0)))
    extra = event * dice.lognormal(0, jitter, (RANKS, steps))
    extra[:, (np.arange(steps) + 1 + int(dice.integers(period))) % period != 0] = 0.0
    if who >= 0:
        extra[np.arange(RANKS) != who] = 0.0
    judged, spent = _judged(bench, {part: extra}, steps)
    cost, mean = _cost(judged.table, spent)
    found = sorted(_told(judged), key=lambda one: -one.cost)
    what = f"{part} of {'all' if who < 0 else f'rank {who}'} every {period} steps costs {1e3 * cost:.2f} of {1e3 * mean:.1f} ms"
    said = f"{what}: {'; '.join(one.text for one in found) or 'nothing'}"
    if not found:
        return Outcome(False, (), said)
    ranks = () if who < 0 else (who,)
    right = (found[0].ranks, found[0].part, found[0].period) == (ranks, part, period)
    details = {"cost, of what it is": found[0].cost / cost} if right else {}
    return Outcome(right and abs(found[0].cost / cost - 1.0) <= WITHIN, (), said, details=details)


def clean(bench: Bench, seed: int) -> Outcome:
    """Evaluations and saves of all ranks, sequences that get longer or differ, stalls of all: no rank and no step is named."""
    dice, kind = np.random.default_rng(seed), CLEAN[seed % len(CLEAN)]
    steps, every = int(dice.integers(200, 500)), int(dice.integers(5, 60))
    now, alike = np.arange(steps) % every == every - 1, dice.lognormal(0, 0.05, (RANKS, steps))
    levels = 1 + np.arange(steps) // max(steps // int(dice.integers(2, 6)), 1) * dice.uniform(0.2, 1)
    plan = {
        "plain": {},
        "evaluation": {"inference": alike * now * USUAL * dice.uniform(0.5, 5)},
        "saves": {"saves": alike * now * USUAL * dice.uniform(0.5, 10)},
        "curriculum": {"forward": alike * (levels - 1) * USUAL + 1e-4},
        "lengths": {"forward": USUAL * dice.lognormal(0, dice.uniform(0.05, 0.3), (RANKS, steps))},
        "noisy": {"outside": (dice.random((RANKS, steps)) < 0.04) * dice.exponential(1.0, (RANKS, steps)) * USUAL},
    }[kind]
    judged, _ = _judged(bench, plan, steps)
    named = [one for one in judged.findings if one.period or one.steps or one.ranks]
    return Outcome(None, tuple(f"{kind}: {text}" for text in wrong_names(named)), "; ".join(one.text for one in judged.findings))


def _judged(bench: Bench, plan: dict[str, Any], steps: int) -> tuple[Judgement, Any]:
    """The judgement on a job with a plan, and the seconds that its ranks took by it."""
    with folder() as path:
        write_plan(path, plan)
        recorded = finished(bench.zygote, Job(path, RANKS, steps, FORWARD, BACKWARD, planned=True))
        return judge(recorded.sections, recorded.meshes), spent_seconds(path, RANKS)


def _told(judged: Judgement) -> list[Finding]:
    return [one for one in (*judged.findings, *judged.routine) if one.verdict is not Verdict.NO_CORE]


def _cost(table: StepTable, spent: Any) -> tuple[float, float]:
    """Seconds by which the mean step is longer than without what ranks took by their plan, and the mean step: the slowest rank of
    each step decides."""
    busy = np.asarray(sum(busy_parts(table).values()))[:, WARM_UP:]
    taken = spent[:, table.steps[WARM_UP:]]
    longer = np.nanmax(busy, axis=0) - np.nanmax(busy - taken, axis=0)
    return float(np.nanmean(longer)), float(np.nanmean(table.step[:, WARM_UP:]))
