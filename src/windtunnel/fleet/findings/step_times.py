"""Lengths of a run's steps as a distribution, and its slowest steps with the rank and the part that they lose time to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.fleet.findings.rare import CALLS, busy_parts
from windtunnel.fleet.findings.slow_ranks import WARM_UP
from windtunnel.fleet.findings.steps import StepTable

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
