"""What modes that wait for a whole rollout share: rollout, then training, then the sync."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.rl.modes.step_mode import ModeRun, PhaseSpan, RLPhase, StepTiming, lay_after, train_seconds
from windtunnel.rl.rollout import RolloutResult


def lay_in_turn(
    before: Sequence[RLPhase], training: Sequence[RLPhase], after: Sequence[RLPhase], rollout: RolloutResult, *, shared: bool
) -> StepTiming:
    """Phases one after the other. `training`: those of the update's GPUs; `shared`: these have all phases."""
    spans, now = list[PhaseSpan](), 0.0
    for part in (before, training, after):
        laid, now = lay_after(part, now, "both" if shared else "")
        spans += laid
    used = (1.0, 1.0) if shared else (rollout.seconds / now, train_seconds(training, idle=False) / now)
    return StepTiming(now, (*before, *training, *after), tuple(spans), *used)


def run_of(timing: StepTiming, rollout: RolloutResult, record: bool) -> ModeRun:
    """A step whose rollout is one whole batch."""
    ends = tuple(rollout.ends.tolist()) if record else ()
    return ModeRun(timing, rollout, rollout.seconds, rollout.tail, rollout.batch, rollout.log, ends)
