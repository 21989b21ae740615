"""Mode colocated: rollout on the GPUs of the update, before it; the engine sleeps while the update runs."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.base.errors import PlanError
from windtunnel.rl.batch import RLBatch
from windtunnel.rl.job import RLJob
from windtunnel.rl.modes.step_mode import ModeRun, RLPhase, StepMode, lay_in_turn, run_of
from windtunnel.rl.rollout import RolloutServer, roll_out
from windtunnel.rl.spec import PostTraining
from windtunnel.rl.sync import WAKE


class Colocated(StepMode):
    about = "on the GPUs of the update, before it"
    shares_gpus = True
    divided = "split"

    def check(self, rl: PostTraining, gpus: int) -> None:
        asked = rl.rollout.gpus
        if asked not in (None, gpus):
            raise PlanError("rl.rollout.gpus", asked, f"none: in mode colocated it has all {gpus} GPUs", 'Or rl.mode = "split".')

    def run(
        self, whole: RLJob, server: RolloutServer, batch: RLBatch, training: Sequence[RLPhase], sync: float, record: bool
    ) -> ModeRun:
        rollout = roll_out(server, whole, batch, record)
        before = [RLPhase("engine wakes and sleeps", 2.0 * WAKE, "both"), RLPhase("rollout", rollout.seconds, "rollout")]
        after = [RLPhase("weights to the engine", sync, "both")]
        return run_of(lay_in_turn(before, training, after, rollout, shared=True), rollout, record)


COLOCATED = Colocated()
