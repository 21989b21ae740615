"""Mode one_step_off: a batch is generated while the one before it is learned from; both end before the sync."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.rl.batch import RLBatch
from windtunnel.rl.job import RLJob
from windtunnel.rl.modes.step_mode import ModeRun, PhaseSpan, RLPhase, StepMode, StepTiming, lay_after, run_of, train_seconds
from windtunnel.rl.rollout import RolloutResult, RolloutServer, roll_out


class OneStepOff(StepMode):
    about = "on GPUs of its own, one batch ahead"
    takes_turns = False

    def run(
        self, whole: RLJob, server: RolloutServer, batch: RLBatch, training: Sequence[RLPhase], sync: float, record: bool
    ) -> ModeRun:
        rollout = roll_out(server, whole, batch, record)
        return run_of(lay_beside(rollout, training, sync), rollout, record)


def lay_beside(rollout: RolloutResult, training: Sequence[RLPhase], sync: float) -> StepTiming:
    """Rollout and training beside each other, the sync behind both."""
    trained = train_seconds(training)
    seconds = max(trained, rollout.seconds) + sync
    phases = [RLPhase("rollout", rollout.seconds, "rollout"), *training]
    waits = seconds - sync - trained
    if waits > 0.0:
        phases.append(RLPhase("wait for the rollout", waits, "train", idle=True))
    phases.append(RLPhase("weights to the engine", sync, "both"))
    spans = [PhaseSpan("rollout", "rollout", 0.0, rollout.seconds), *lay_after(phases[1:-1], 0.0)[0]]
    spans.append(PhaseSpan("weights to the engine", "both", seconds - sync, seconds))
    busy = train_seconds(training, idle=False)
    return StepTiming(seconds, tuple(phases), tuple(spans), rollout.seconds / seconds, busy / seconds)


ONE_STEP_OFF = OneStepOff()
