"""What lies between phases: weights from the update to the engine, and training states to host memory and back."""

from __future__ import annotations

import math

from windtunnel.memory.host_copies import legs
from windtunnel.memory.result import StageMemory
from windtunnel.predict.price.calls import CallBook
from windtunnel.rl.job import RLJob
from windtunnel.rl.training import on_gpus
from windtunnel.spec import Model
from windtunnel.workload.ops import Axis, Comm

BUCKET = 512.0 * 2**20
"""Bytes of weights that are gathered and sent at a time (verl's `update_weights_bucket_megabytes`)."""

TENSOR = 0.3e-3
"""Seconds of host time for a tensor that is gathered, renamed and loaded; assumed (verl's table of syncs: 0.12 s for the 339
tensors of a 7B in one node)."""

WAKE = 0.5
"""Seconds in which an engine gives its memory back, or takes it; assumed (vLLM's blog on sleep mode states 0.1 to 1 s a level)."""


def tensors_of(model: Model) -> int:
    """Weight tensors of a checkpoint: 12 of a layer without experts, and 3 of each expert."""
    experts = sum(3 * (model.experts or 0) + 1 for kind in model.kinds if kind.experts)
    return 12 * model.layers + 3 + experts


def sync_seconds(whole: RLJob, parameters: float) -> float:
    """Seconds in which new weights, in 16 bits, reach the engine: trainers gather them bucket by bucket; in modes with GPUs of
    their own for rollout one of them sends each bucket to all GPUs. The two take turns, as verl's and OpenRLHF's loops do."""
    trainer = on_gpus(whole.job, whole.train_gpus)
    count = max(1, math.ceil(2.0 * parameters / BUCKET))
    size = 2.0 * parameters / count
    seconds = TENSOR * tensors_of(whole.model)
    axis = Axis.SHARD if trainer.plan.shards_parameters else Axis.TP
    book = CallBook(trainer)
    if book.group(axis).ranks > 1:
        seconds += count * book.price(Comm.ALL_GATHER, axis, size).seconds
    if not whole.mode.shares_gpus:
        seconds += count * CallBook(whole.job).price(Comm.BROADCAST, Axis.WORLD, size).seconds
    return seconds


def parked_bytes(whole: RLJob, memory: StageMemory) -> float:
    """Bytes of training states that stay on the fullest GPU during rollout."""
    states = {"none": memory.weights + memory.optimizer, "optimizer": memory.weights, "all": 0.0}[whole.rl.offload]
    return states * (2.0 if whole.rl.trains_critic_too else 1.0)


def offload_seconds(whole: RLJob, memory: StageMemory) -> float:
    """Seconds in which training states go to host memory, and come back."""
    moved = (memory.weights + memory.optimizer) * (2.0 if whole.rl.trains_critic_too else 1.0) - parked_bytes(whole, memory)
    if moved <= 0.0:
        return 0.0
    cluster = whole.job.cluster
    return sum(leg.seconds(moved) for out in (True, False) for leg in legs(cluster, "host", out))
