"""Mode async: rollout goes on while the update learns from samples as they come.

Between two syncs `sync_every` x `require` mini batches are learned from. Rollout may be `staleness` of so many samples ahead, then
it waits for the next sync. One lane stands for all: it gets its share of each window's samples, those of a window when the sync
before it is done. When syncs are done depends on when samples are, so both are computed in turn until they agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import PlanError
from windtunnel.rl.batch import RLBatch
from windtunnel.rl.job import RLJob
from windtunnel.rl.modes.step_mode import ModeRun, PhaseSpan, RLPhase, StepMode, StepTiming, lay_after, train_seconds
from windtunnel.rl.rollout import RolloutServer, lane_load
from windtunnel.rl.spec import PostTraining, trainer_facts
from windtunnel.serving.lengths import Passing
from windtunnel.serving.simulate import LaneResult, run_lane

WINDOWS = 4
"""Windows between syncs that are simulated; the first fills the pipeline and is not counted."""

ROUNDS = 3
"""Times that rollout and syncs are computed in turn."""

SAMPLES = 512
"""Samples of a window that a lane gets at most: more are of no more use for its mean."""


class Asynchronous(StepMode):
    about = "on GPUs of its own, without waiting, as far as staleness allows"
    takes_turns = False
    runs_ahead = True
    old_logprobs = False
    fields = frozenset({"staleness", "sync_every", "require", "partial"})

    def check(self, rl: PostTraining, gpus: int) -> None:
        updates = rl.prompts // rl.mini
        if updates % rl.require:
            raise PlanError("rl.require", rl.require, f"a divisor of the {updates} mini batches of a step")

    def run(
        self, whole: RLJob, server: RolloutServer, batch: RLBatch, training: Sequence[RLPhase], sync: float, record: bool
    ) -> ModeRun:
        rl = whole.rl
        timing, ran = run_continuously(whole, server, batch, training, sync, record)
        share_of_step = rl.prompts / (rl.sync_every * rl.require * rl.mini)
        return ModeRun(timing, ran.result, ran.window * share_of_step, 0.0, ran.result.mean_batch, ran.result.log)


@dataclass(frozen=True)
class AsyncRollout:
    """A lane in the long run: `result` of the last simulation, `window`: seconds between syncs, `wait`: those in which the update
    has no samples, `resumed`: seconds in which a lane computes the cache of interrupted samples again."""

    result: LaneResult
    window: float
    wait: float
    resumed: float


def run_continuously(
    whole: RLJob, at: RolloutServer, batch: RLBatch, training: Sequence[RLPhase], sync: float, record: bool = False
) -> tuple[StepTiming, AsyncRollout]:
    """The step in the long run (fully asynchronous, off-policy), and the rollout behind it."""
    rl = whole.rl
    trained = train_seconds(training)
    share = rl.sync_every * rl.require * rl.mini / rl.prompts  # of a step, between two syncs
    ran = _settle(whole, at, batch, trained * share / rl.sync_every, sync, record)
    seconds = ran.window / share
    syncs = (sync + ran.resumed) / share
    waits = ran.wait / share
    phases = [RLPhase("rollout", seconds - syncs, "rollout"), *training]
    if waits > 0.0:
        phases.append(RLPhase("wait for samples", waits, "train", idle=True))
    phases.append(RLPhase("weights to the engine", syncs, "both"))
    spans = [PhaseSpan("rollout", "rollout", 0.0, seconds - syncs), *lay_after(phases[1:], 0.0)[0]]
    used = min(1.0, ran.result.busy / max(float(ran.result.last.max()), 1e-12))
    return StepTiming(seconds, tuple(phases), tuple(spans), used, train_seconds(training, idle=False) / seconds), ran


def _settle(whole: RLJob, at: RolloutServer, batch: RLBatch, piece: float, sync: float, record: bool) -> AsyncRollout:
    """Rollout and update in turn until the moments of the syncs agree. `piece`: seconds of an update with its log-probabilities."""
    rl = whole.rl
    each = rl.sync_every * rl.require * rl.mini * rl.samples / at.server.lanes / rl.keep
    count = max(rl.sync_every, round(min(each, SAMPLES)))
    ahead = round(rl.staleness * count)
    total = count * WINDOWS + ahead
    samples = np.random.default_rng(rl.seed).permutation(np.resize(np.arange(len(batch)), total))
    guess = piece * rl.sync_every + sync
    moments = guess * np.arange(1, WINDOWS)
    result, done = None, np.zeros(WINDOWS)
    for _ in range(ROUNDS):
        sent = np.concatenate([np.zeros(count + ahead), np.repeat(moments, count)])
        load = lane_load(whole, batch, samples, at.server.engine.block, sent)
        result = run_lane(at.times, load, at.room.lane_tokens, record)
        finished = result.last[-total:]
        done = _end_syncs(finished, sent, count, rl.sync_every, piece, sync, rl.partial)
        moments = done[:-1]
    assert result is not None
    window = float(done[-1] - done[0]) / (WINDOWS - 1)
    resumed = _resume_seconds(at, batch, result) if rl.partial and not trainer_facts(rl.trainer).keeps_cache else 0.0
    return AsyncRollout(result, window + resumed, max(0.0, window - sync - piece * rl.sync_every), resumed)


def _end_syncs(finished: Floats, sent: Floats, count: int, updates: int, piece: float, sync: float, partial: bool) -> Floats:
    """[WINDOWS] moments at which the syncs behind `updates` updates, each of its part of `count` samples, are done."""
    now, ordered = 0.0, np.sort(finished)
    done: list[float] = []
    for window in range(WINDOWS):
        for update in range(updates):
            last = window * count + round((update + 1) * count / updates) - 1
            now = max(now, float(ordered[last])) + piece
        if not partial:  # all that was sent before must end first
            earlier = finished[sent <= (done[-1] if done else 0.0)]
            now = max(now, float(earlier.max()))
        now += sync
        done.append(now)
    return np.array(done)


def _resume_seconds(at: RolloutServer, batch: RLBatch, result: LaneResult) -> float:
    """Seconds in which the samples of a mean pass are computed again after a sync: weights changed, so the cache is stale."""
    held = result.mean_batch * float((batch.prompt + batch.response / 2.0).mean())
    tokens = at.server.engine.step_tokens
    pass_ = at.times.seconds(Passing(tokens, 1, tokens * tokens / 2.0, 0, 0.0), 1)
    return held / tokens * pass_


ASYNCHRONOUS = Asynchronous()
