"""Phases of a step, when each runs and on whose GPUs, in the modes that wait for a whole rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from windtunnel.rl.rollout import RolloutResult
from windtunnel.rl.spec import PostTraining
from windtunnel.rl.sync import WAKE
from windtunnel.rl.training import TrainingPasses


class RLPhase(NamedTuple):
    """Seconds of a phase. `on`: "rollout", "train" or "both" GPUs."""

    name: str
    seconds: float
    on: str


class PhaseSpan(NamedTuple):
    """A phase in a step: seconds from its start."""

    name: str
    on: str
    start: float
    end: float


@dataclass(frozen=True)
class StepTiming:
    """`seconds` of a step in the long run. `phases`: seconds of each, `spans`: when each runs. `rollout_busy`, `train_busy`: shares
    of the step in which these GPUs have a phase."""

    seconds: float
    phases: tuple[RLPhase, ...]
    spans: tuple[PhaseSpan, ...]
    rollout_busy: float
    train_busy: float


def train_phases(rl: PostTraining, passes: TrainingPasses, offload: float) -> list[RLPhase]:
    """Phases of the update's GPUs, in order."""
    found = [RLPhase("states from and to host memory", offload, "train")]
    found += [RLPhase("rewards", rl.reward_seconds, "train")]
    found += [RLPhase("old log-probabilities", passes.forward_s if rl.has_old_logprobs else 0.0, "train")]
    found += [RLPhase("reference log-probabilities", passes.forward_s if rl.has_reference else 0.0, "train")]
    found += [RLPhase("values", passes.forward_s if rl.has_critic else 0.0, "train")]
    found += [RLPhase("update of the critic", passes.update_s if rl.has_critic else 0.0, "train")]
    found += [RLPhase("update", passes.update_s, "train")]
    return [phase for phase in found if phase.seconds > 0.0]


def in_turn(rl: PostTraining, rollout: RolloutResult, training: Sequence[RLPhase], sync: float) -> StepTiming:
    """Modes colocated and split: rollout, then training, then the sync."""
    shared = rl.mode == "colocated"
    begun = [RLPhase("engine wakes and sleeps", 2.0 * WAKE, "both")] if shared else []
    phases = [*begun, RLPhase("rollout", rollout.seconds, "rollout"), *training, RLPhase("weights to the engine", sync, "both")]
    spans, now = [], 0.0
    for phase in phases:
        spans.append(PhaseSpan(phase.name, "both" if shared else phase.on, now, now + phase.seconds))
        now += phase.seconds
    trained = sum(phase.seconds for phase in training)
    used = (rollout.seconds / now, trained / now) if not shared else (1.0, 1.0)
    return StepTiming(now, tuple(phases), tuple(spans), *used)


def one_ahead(rollout: RolloutResult, training: Sequence[RLPhase], sync: float) -> StepTiming:
    """Mode one_step_off: a batch is generated while the one before it is learned from; both end before the sync."""
    trained = sum(phase.seconds for phase in training)
    seconds = max(trained, rollout.seconds) + sync
    phases = [RLPhase("rollout", rollout.seconds, "rollout"), *training]
    waits = seconds - sync - trained
    if waits > 0.0:
        phases.append(RLPhase("wait for the rollout", waits, "train"))
    phases.append(RLPhase("weights to the engine", sync, "both"))
    spans, now = [PhaseSpan("rollout", "rollout", 0.0, rollout.seconds)], 0.0
    for phase in phases[1:-1]:
        spans.append(PhaseSpan(phase.name, phase.on, now, now + phase.seconds))
        now += phase.seconds
    spans.append(PhaseSpan("weights to the engine", "both", seconds - sync, seconds))
    return StepTiming(seconds, tuple(phases), tuple(spans), rollout.seconds / seconds, trained / seconds)
