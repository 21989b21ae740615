"""Mode split: rollout on GPUs of its own, before the update."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.rl.batch import RLBatch
from windtunnel.rl.job import RLJob
from windtunnel.rl.modes.step_mode import ModeRun, RLPhase, StepMode, lay_in_turn, run_of
from windtunnel.rl.rollout import RolloutServer, roll_out


class Split(StepMode):
    about = "on GPUs of its own, before the update"

    def run(
        self, whole: RLJob, server: RolloutServer, batch: RLBatch, training: Sequence[RLPhase], sync: float, record: bool
    ) -> ModeRun:
        rollout = roll_out(server, whole, batch, record)
        before, after = [RLPhase("rollout", rollout.seconds, "rollout")], [RLPhase("weights to the engine", sync, "both")]
        return run_of(lay_in_turn(before, training, after, rollout, shared=False), rollout, record)


SPLIT = Split()
