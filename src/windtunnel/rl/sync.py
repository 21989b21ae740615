"""What lies between phases: weights from the update to the engine, and training states to host memory and back."""

from __future__ import annotations

import math
from typing import NamedTuple

from windtunnel.base.lengths import longest_stated
from windtunnel.memory.result import StageMemory
from windtunnel.memory.tiers import legs
from windtunnel.predict.price.calls import CallBook
from windtunnel.rl.batch import RLBatch
from windtunnel.rl.job import RLJob
from windtunnel.rl.spec import DESERIALISED, PAGEABLE_BACK, PAGEABLE_OUT, RETURNED, SERIALISED, trainer_facts
from windtunnel.rl.training import on_gpus
from windtunnel.spec import Model
from windtunnel.workload.ops import Axis, Comm

BUCKET = 512.0 * 2**20
"""Bytes of weights that are gathered and sent at a time (verl's `update_weights_bucket_megabytes`)."""

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
    facts = trainer_facts(whole.rl.trainer)
    named, sent = facts.tensor_s * tensors_of(whole.model), 0.0
    axis = Axis.SHARD if trainer.plan.shards_parameters else Axis.TP
    book = CallBook(trainer)
    if book.group(axis).ranks > 1:
        named += count * book.price(Comm.ALL_GATHER, axis, size).seconds
    if not whole.mode.shares_gpus:
        sent = count * CallBook(whole.job).price(Comm.BROADCAST, Axis.WORLD, size).seconds
    return max(named, sent) if facts.overlaps_refit else named + sent


def parked_bytes(whole: RLJob, memory: StageMemory) -> float:
    """Bytes of training states that stay on the fullest GPU during rollout."""
    states = {"none": memory.weights + memory.optimizer, "optimizer": memory.weights, "all": 0.0}[whole.rl.offload]
    return states * (2.0 if whole.rl.trains_critic_too else 1.0)


class BetweenPhases(NamedTuple):
    """Seconds that a trainer adds to passes. `offload`: states to host memory and back, in a phase of their own; `scored`,
    `updated`: to a pass of log-probabilities and to the updates; `swapped`: the reference's weights in place of the policy's."""

    offload: float
    scored: float = 0.0
    updated: float = 0.0
    swapped: float = 0.0


def between_phases(whole: RLJob, batch: RLBatch, memory: StageMemory) -> BetweenPhases:
    """What the job's trainer adds to its passes. `memory`: of the fullest GPU of the update."""
    facts = trainer_facts(whole.rl.trainer)
    own = facts.swaps_reference and whole.rl.has_reference and "reference" not in whole.rl.roles_apart
    swapped = swap_seconds(whole, memory) if own else 0.0
    scored, updated = (data_seconds(whole, batch, update) for update in (False, True))
    both, parameters = (offload_seconds(whole, memory, optimizer) for optimizer in (True, False))
    if facts.moves_in_phases:
        return BetweenPhases(parameters, scored + parameters, updated + both, swapped)
    return BetweenPhases(both, scored, updated, swapped)


def offload_seconds(whole: RLJob, memory: StageMemory, optimizer: bool = True) -> float:
    """Seconds in which offloaded training states go to host memory, and come back; without `optimizer` parameters alone."""
    facts, roles = trainer_facts(whole.rl.trainer), 2.0 if whole.rl.trains_critic_too else 1.0
    moved = {False: 0.0, True: 0.0}  # whether their memory is pageable -> bytes
    if whole.rl.offload == "all":
        moved[facts.pageable == "all"] += memory.weights * roles
    if whole.rl.offload != "none" and optimizer:
        moved[facts.pageable != "none"] += memory.optimizer * roles
    return sum(copy_seconds(whole, size, out, pageable) for pageable, size in moved.items() for out in (True, False))


def swap_seconds(whole: RLJob, memory: StageMemory) -> float:
    """Seconds in which the policy's weights go to host memory, the reference's take their place, and the policy's come back."""
    pageable = trainer_facts(whole.rl.trainer).pageable != "none"
    out, back = (copy_seconds(whole, memory.weights, way, pageable) for way in (True, False))
    return out + 2.0 * back


def copy_seconds(whole: RLJob, size: float, out: bool, pageable: bool) -> float:
    """Seconds of a copy of `size` bytes between a GPU and host memory, while all of its node copy; `out`: away from the GPU."""
    if size <= 0.0:
        return 0.0
    seconds = sum(leg.seconds(size) for leg in legs(whole.job.cluster, "host", out))
    return max(seconds, size / (PAGEABLE_OUT if out else PAGEABLE_BACK)) if pageable else seconds


def data_seconds(whole: RLJob, batch: RLBatch, update: bool) -> float:
    """Seconds in which one controller sends the batch of a step, padded or not, to the workers and, from log-probabilities, gets
    what they found. Workers read their parts beside each other."""
    rl, facts = whole.rl, trainer_facts(whole.rl.trainer)
    samples = batch.trained
    each_sent = facts.updated_bytes if update else facts.scored_bytes
    if facts.padded_to == "none":
        tokens, made = float(batch.lengths[:samples].sum()), float(batch.response[:samples].sum())
        return tokens * each_sent / SERIALISED + (0.0 if update or not each_sent else made * RETURNED / DESERIALISED)
    response = longest_stated(rl.response) if facts.padded_to == "cap" else None
    response = int(batch.response.max()) + batch.tools if response is None else response
    prompt = longest_stated(rl.prompt) if facts.padded_to == "cap" else None
    prompt = int(batch.prompt.max()) if prompt is None else prompt
    sent = samples * (prompt + response) * each_sent
    returned = 0.0 if update or not sent else samples * response * RETURNED
    return sent / SERIALISED + returned / DESERIALISED
