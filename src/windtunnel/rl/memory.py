"""Memory of a GPU in each phase of a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from windtunnel.base.errors import PlanError
from windtunnel.memory.result import USABLE, StageMemory
from windtunnel.rl.job import RLJob
from windtunnel.rl.spec import RoleGroup
from windtunnel.rl.sync import BUCKET, parked_bytes
from windtunnel.serving.room import CONTEXT, CacheRoom


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
