"""What a search keeps of a predicted plan: a few numbers that can be sent between processes and stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from windtunnel.base.errors import WindtunnelError
from windtunnel.memory import memory_of
from windtunnel.search.change import Change
from windtunnel.search.facts import facts_of
from windtunnel.spec import Job, check
from windtunnel.workload import build


@dataclass(frozen=True)
class PlanOutcome:
    """A tried plan. Seconds, bytes, US dollars, joules; `missing` bytes are beyond the GPU's memory less the margin.

    `refused`: why the plan contradicts itself; then all numbers are 0. A plan that does not fit is predicted only if asked for.
    `breakdown`: parts of the step, as in a prediction.
    """

    step_time_s: float = 0.0
    tokens_per_s: float = 0.0
    mfu: float = 0.0
    memory: float = 0.0
    missing: float = 0.0
    cost_per_step: float | None = None
    energy_j_per_step: float | None = None
    breakdown: Mapping[str, float] | None = None
    refused: str = ""

    @property
    def fits(self) -> bool:
        return not self.refused and self.missing <= 0.0


class Trial(NamedTuple):
    """A plan to predict: the `number` by which the caller knows it, its frame, its change, and whether to predict it if it does not
    fit."""

    number: int
    frame: int
    change: Change
    anyway: bool = False


def outcome_of(job: Job, change: Change, margin: float = 0.0, anyway: bool = False) -> PlanOutcome:
    """The outcome of a changed job; `margin`: share of the usable memory to keep free. `anyway`: predict it even if it does not
    fit."""
    try:
        tried = check(change.apply_unchecked(job))
        workload = build(tried)
        stages = memory_of(tried, workload)
        missing = max(stage.missing + margin * stage.usable for stage in stages)
        fullest = max(stage.total for stage in stages)
        if missing > 0.0 and not anyway:
            return PlanOutcome(memory=fullest, missing=missing)
        found = facts_of(tried, workload)
    except WindtunnelError as error:
        return PlanOutcome(refused=str(error).split("\n")[0])
    return PlanOutcome(
        found.step_time_s,
        found.tokens_per_s,
        found.mfu,
        fullest,
        missing,
        found.cost_per_step,
        found.energy_j_per_step,
        found.breakdown,
    )
