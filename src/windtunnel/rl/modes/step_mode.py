"""A mode that runs steps: what it is given, and what it returns. What modes that wait for a whole rollout share: rollout, then
training, then the sync.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from windtunnel.base.dataclasses import dataclass
from windtunnel.rl.batch import RLBatch
from windtunnel.rl.job import RLJob
from windtunnel.rl.mode import RLMode
from windtunnel.rl.rollout import RolloutResult, RolloutServer
from windtunnel.serving.lane import PassRecord
from windtunnel.serving.simulate import LaneResult


class RLPhase(NamedTuple):
    """Seconds of a phase. `on`: "rollout", "train" or "both" GPUs, or the label of a group of roles; `idle`: whether these wait in
    it. `beside`: for a phase of such a group, seconds from the moment at which samples are there to its start; None for phases that
    follow one another."""

    name: str
    seconds: float
    on: str
    idle: bool = False
    beside: float | None = None


class PhaseSpan(NamedTuple):
    """A phase in a step: seconds from its start."""

    name: str
    on: str
    start: float
    end: float


def train_seconds(training: Sequence[RLPhase], idle: bool = True) -> float:
    """Seconds in which phases of the update's GPUs follow one another; without those in which they wait unless `idle`."""
    return sum(phase.seconds for phase in training if phase.beside is None and (idle or not phase.idle))


def lay_after(training: Sequence[RLPhase], start: float, on: str = "") -> tuple[list[PhaseSpan], float]:
    """Phases of the update's GPUs one after the other from `start` on, those of groups beside them, and the end of the former.
    `on`: of which GPUs these are said to be, by default their own."""
    spans, now = [], start
    for phase in training:
        if phase.beside is not None:
            spans.append(PhaseSpan(phase.name, phase.on, start + phase.beside, start + phase.beside + phase.seconds))
            continue
        spans.append(PhaseSpan(phase.name, on or phase.on, now, now + phase.seconds))
        now += phase.seconds
    return spans, now


@dataclass(frozen=True)
class StepTiming:
    """`seconds` of a step in the long run. `phases`: seconds of each, `spans`: when each runs. `rollout_busy`, `train_busy`: shares
    of the step in which these GPUs have a phase."""

    seconds: float
    phases: tuple[RLPhase, ...]
    spans: tuple[PhaseSpan, ...]
    rollout_busy: float
    train_busy: float


@dataclass(frozen=True)
class ModeRun:
    """A step as a mode ran it. `rollout`: what the engine did; `seconds` of the rollout of one step, `tail` of them at its end with
    few samples left; `batch`: requests of a mean pass; `log`, `ends`: for pages, if asked for."""

    timing: StepTiming
    rollout: RolloutResult | LaneResult
    seconds: float
    tail: float
    batch: float
    log: tuple[PassRecord, ...] = ()
    ends: tuple[float, ...] = ()


class StepMode(RLMode, ABC):
    """A member of `rl.mode.MODES`."""

    @abstractmethod
    def run(
        self, whole: RLJob, server: RolloutServer, batch: RLBatch, training: Sequence[RLPhase], sync: float, record: bool
    ) -> ModeRun:
        """One step. `training`: phases of the update's GPUs, in order; `sync`: seconds in which weights reach the engine; `record`:
        whether the run has a log for pages."""


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
