"""The answer of `rl-predict`: the step, its phases, who waits, memory, money.

What published steps say of an answer: how far predictions of steps like it were from what was measured.

`catalog/rl_accuracy.toml` has a line for modes that take turns and one for those whose rollout runs ahead; `benchmarks/rl_rows.py
--record` writes it.

Memory of a GPU in each phase of a step.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.errors import PlanError
from windtunnel.memory.result import USABLE, StageMemory
from windtunnel.predict import Prediction
from windtunnel.rl.job import RLJob
from windtunnel.rl.mode import MODES
from windtunnel.rl.modes.step_mode import StepTiming
from windtunnel.rl.spec import RoleGroup
from windtunnel.rl.sync import BUCKET, parked_bytes
from windtunnel.rl.training import Packing
from windtunnel.serving.lane import PassRecord
from windtunnel.serving.published import FigureErrors
from windtunnel.serving.room import CONTEXT, CacheRoom
from windtunnel.serving.server import ServePlan
from windtunnel.spec.loading.files import ROOT, read_table


@dataclass(frozen=True)
class PhaseMemory:
    """Bytes on the fullest GPU in a phase, by what they are for. `on`: "rollout", "train" or "both" GPUs."""

    phase: str
    on: str
    parts: dict[str, float]
    capacity: float

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        return self.total <= USABLE * self.capacity


HALF = 0.5
"""Share of a GPU that states may take before an engine that found no room beside them is told so."""


def engine_share(whole: RLJob, memory: StageMemory, most: float) -> float:
    """The share of a GPU's memory that an engine has beside sleeping training states, at most `most`, its own default."""
    left = USABLE * memory.capacity - parked_bytes(whole, memory) - memory.context
    return max(0.05, min(most, left / memory.capacity))


def no_room_beside(whole: RLJob, memory: StageMemory) -> PlanError | None:
    """What to change where training states leave an engine on the same GPUs no room; None where they do leave some."""
    kept, gpus = parked_bytes(whole, memory), whole.job.cluster.gpus
    room = USABLE * memory.capacity - memory.context
    if not whole.mode.shares_gpus or kept < room * HALF:
        return None
    more = gpus * 2 ** max(1, math.ceil(math.log2(kept / (room * HALF))))
    return PlanError(
        "cluster.gpus", gpus,
        f"GPUs whose training states leave an engine room: these hold {kept / 1e9:.0f} of {memory.capacity / 1e9:.0f} GB each",
        f"Write --set cluster.gpus={more}" + ("." if whole.rl.offload == "all" else ", or --set rl.offload=all."),
    )  # fmt: skip


def phase_memory(whole: RLJob, memory: StageMemory, room: CacheRoom, wider: float = 1.0) -> tuple[PhaseMemory, ...]:
    """Memory of rollout, log-probabilities, update and sync. On GPUs that do both, an engine that sleeps keeps its context, and
    states that are not offloaded stay. `wider`: tokens of a pack of log-probabilities over those of one of the update."""
    shared = whole.mode.shares_gpus
    capacity = memory.capacity
    engine = {"engine: weights": room.weights, "engine: activations": room.activations, "engine: cache": room.cache}
    engine |= {"contexts": room.context}
    asleep = CONTEXT if shared else 0.0
    states = {"weights": memory.weights, "optimizer": memory.optimizer}
    critic = {"critic": memory.weights + memory.optimizer} if whole.rl.trains_critic_too and whole.rl.offload == "none" else {}
    rollout = dict(engine)
    if shared:
        rollout |= {"training states": parked_bytes(whole, memory), "contexts": room.context + memory.context}
    scoring = {**states, **critic, "logits": wider * memory.logits, "buffers": memory.buffers + memory.workspace}
    scoring |= {"contexts": memory.context + asleep}
    update = {
        **states, **critic, "gradients": memory.gradients, "activations": memory.activations, "logits": memory.logits,
        "buffers": memory.buffers + memory.workspace + memory.fragmentation, "contexts": memory.context + asleep,
    }  # fmt: skip
    sync = {"weights": memory.weights, "bucket": 2.0 * BUCKET, "contexts": memory.context + asleep}
    if shared:
        sync["engine: weights"] = room.weights
    where = ("both",) * 4 if shared else ("rollout", "train", "train", "train")
    tables = (("rollout", rollout), ("log-probabilities", scoring), ("update", update), ("weights to the engine", sync))
    return tuple(PhaseMemory(name, on, parts, capacity) for on, (name, parts) in zip(where, tables, strict=True))


def group_memory(group: RoleGroup, memory: StageMemory) -> PhaseMemory:
    """Memory of the GPUs of a group of roles, each of which keeps its weights; a critic is trained too. `memory`: of the update, on
    as many GPUs."""
    parts = {"weights": memory.weights * len(group.roles), "logits": memory.logits, "buffers": memory.buffers + memory.workspace}
    if "critic" in group.roles:
        parts |= {"optimizer": memory.optimizer, "gradients": memory.gradients, "activations": memory.activations}
        parts["buffers"] += memory.fragmentation
    return PhaseMemory(group.label, group.label, {**parts, "contexts": memory.context}, memory.capacity)


@dataclass(frozen=True)
class PublishedRL:
    """Errors of the step of `rows` published configurations of `studies` studies, in `modes`: those that take turns, whose
    step is the sum of its phases ("in_turn"), or whose rollout runs ahead ("ahead")."""

    modes: str
    rows: int
    studies: int
    step: FigureErrors

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys."""
        return {"modes": self.modes, "rows": self.rows, "studies": self.studies, "step": vars(self.step)}


def steps_like(mode: str) -> PublishedRL | None:
    """The catalogue's line for a mode; None where no step of its kind was compared."""
    return catalogue_steps().get("in_turn" if MODES[mode].takes_turns else "ahead")


@functools.cache
def catalogue_steps() -> Mapping[str, PublishedRL]:
    """The catalogue's lines by modes."""
    found = {}
    for entry in read_table(ROOT / "rl_accuracy.toml")["steps"]:
        errors = FigureErrors.of_table(entry["step"])
        found[entry["modes"]] = PublishedRL(entry["modes"], entry["rows"], entry["studies"], errors)
    return found


def rl_record_text(lines: list[PublishedRL], source: str) -> str:
    """The catalogue's file as text."""
    parts = [
        "# Written by `benchmarks/rl_rows.py --record`; do not edit. Errors in percent of the measured step.\n"
        f'source = "{source}"\n'
    ]
    parts += [
        f'[[steps]]\nmodes = "{line.modes}"\nrows = {line.rows}\nstudies = {line.studies}\nstep = {line.step.as_text()}\n'
        for line in lines
    ]
    return "\n".join(parts)


SCHEMA = 1
"""Rises when a key of `RLStep.as_dict` changes its meaning."""


@dataclass(frozen=True)
class RolloutFacts:
    """The rollout: its plan, how many copies, generated `tokens` of a step and as many a second and GPU; `tail`: seconds at its end
    in which less than half of the samples that fit at once are left; `longest` and `mean` response, and the share that was cut at
    the `capped` length. `preempted`: how often a sample lost its cache to others."""

    plan: ServePlan
    copies: int
    tokens: float
    tokens_per_s_gpu: float
    seconds: float
    tail: float
    batch: float
    mean: float
    longest: int
    capped: float
    preempted: int
    recomputed: int
    cache_peak: float
    room: CacheRoom


@dataclass(frozen=True)
class RLStep:
    """A step of reinforcement learning. `tokens`: prompts and responses that are learned from. `waits`: who waits for whom, in
    words. `dollars`, `joules`: of a step; None without a price or watts. For pages, if asked for: `rollout_log`, what passes of
    one lane did, and `rollout_ends`, seconds at which samples ended, ascending."""

    rl_job: RLJob
    timing: StepTiming
    rollout: RolloutFacts
    update: Prediction
    packing: Packing
    updates: int
    memory: tuple[PhaseMemory, ...]
    tokens: float
    waits: tuple[str, ...]
    dollars: float | None
    joules: float | None
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    rollout_log: tuple[PassRecord, ...] = ()
    rollout_ends: tuple[float, ...] = ()

    @property
    def step_time_s(self) -> float:
        """Seconds of a step."""
        return self.timing.seconds

    @property
    def published_steps(self) -> PublishedRL | None:
        """Errors of predictions of the published steps nearest to this one; None where none was compared."""
        return steps_like(self.rl_job.rl.mode)

    @property
    def relative_error(self) -> float | None:
        """The error to state of the step's seconds and of its price, as a share: about seven of ten published steps lay inside."""
        return None if self.published_steps is None else self.published_steps.step.error

    @property
    def fits(self) -> bool:
        """Whether every phase has room on its GPUs."""
        return all(one.fits for one in self.memory)

    def seconds_of(self, phase: str) -> float:
        """Seconds of a phase, 0 for one that the step has not."""
        return sum(one.seconds for one in self.timing.phases if one.name == phase)

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys, SI units."""
        whole, timing = self.rl_job, self.timing
        return {
            "schema": SCHEMA,
            "name": whole.name,
            "model": whole.model.name,
            "machine": whole.job.cluster.id,
            "gpus": whole.job.cluster.gpus,
            "mode": whole.rl.mode,
            "algorithm": whole.rl.algorithm,
            "train_gpus": whole.train_gpus,
            "rollout_gpus": whole.rollout_gpus,
            "step_time_s": timing.seconds,
            "phases": [{"name": phase.name, "seconds": phase.seconds, "on": phase.on} for phase in timing.phases],
            "spans": [span._asdict() for span in timing.spans],
            "rollout_busy": timing.rollout_busy,
            "train_busy": timing.train_busy,
            "speculate": whole.rl.rollout.speculate,
            "rollout": asdict(self.rollout),
            "update": {"step_time_s": self.update.step_time_s, "updates": self.updates, **asdict(self.packing)},
            "memory": [
                {"phase": one.phase, "on": one.on, **one.parts, "total": one.total, "capacity": one.capacity, "fits": one.fits}
                for one in self.memory
            ],
            "fits": self.fits,
            "tokens": self.tokens,
            "tokens_per_s_gpu": self.tokens / timing.seconds / whole.job.cluster.gpus,
            "waits": list(self.waits),
            "relative_error": self.relative_error,
            "published": None if self.published_steps is None else self.published_steps.as_dict(),
            "dollars_per_step": self.dollars,
            "joules_per_step": self.joules,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }
