"""What modes that wait for a whole rollout share: rollout, then training, then the sync."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.rl.modes.step_mode import ModeRun, PhaseSpan, RLPhase, StepTiming
from windtunnel.rl.rollout import RolloutResult


def lay_in_turn(phases: Sequence[RLPhase], trained: float, rollout: RolloutResult, *, shared: bool) -> StepTiming:
    """Phases one after the other. `trained`: seconds of the update's GPUs; `shared`: all GPUs have all phases."""
    spans, now = [], 0.0
    for phase in phases:
        spans.append(PhaseSpan(phase.name, "both" if shared else phase.on, now, now + phase.seconds))
        now += phase.seconds
    used = (1.0, 1.0) if shared else (rollout.seconds / now, trained / now)
    return StepTiming(now, tuple(phases), tuple(spans), *used)


def run_of(timing: StepTiming, rollout: RolloutResult, record: bool) -> ModeRun:
    """A step whose rollout is one whole batch."""
    ends = tuple(rollout.ends.tolist()) if record else ()
    return ModeRun(timing, rollout, rollout.seconds, rollout.tail, rollout.batch, rollout.log, ends)
