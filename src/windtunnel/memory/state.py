"""Bytes that live through the whole step: weights, accumulated gradients, optimizer state.

ZeRO (Rajbhandari et al. 2020): stage 1 cuts the optimizer state over the sharding group, stage 2 the gradients too, stage 3 and
FSDP also the weights. Mixed precision with Adam costs 2 + 4 + 12 bytes per parameter with fp32 gradients (Megatron-LM's
theoretical_memory_usage.py counts the same 18).

Bytes of a job's checkpoint.

A checkpoint holds one copy of the weights and of the optimizer's state. With 16-bit weights, fp32 master copies and Adam that is
2 + 4 + 8 = 14 bytes a parameter. Published sizes beside it: BLOOM 176B 2.3 TB (14 B: 2.24 TiB), Llama 3.1 8B ~105 GB (104.7 GiB),
Nemotron-4 340B ~4.4 TB (4.33 TiB).
"""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.spec.plan import Plan
from windtunnel.workload import parameter_count
from windtunnel.workload.blocks.quantise import weight_bytes
from windtunnel.workload.optimizers import OPTIMIZERS, Held, ParameterUpdate
from windtunnel.workload.passes.optimizer import shard_elements, state_bytes, updated_parameters


@dataclass(frozen=True)
class State:
    """Bytes on one GPU; `master`: the part of `optimizer` that is fp32 master weights."""

    weights: float
    gradients: float
    optimizer: float
    master: float = 0.0

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer


def state_of(
    job: Job,
    parameters: float,
    experts: float = 0.0,
    quantised: float = 0.0,
    moments: float | None = None,
    frozen: float = 0.0,
    resident: float = 0.0,
) -> State:
    """State of `parameters` elements (one GPU's part of a stage before data-parallel sharding), `experts` of which belong to
    experts, and of `frozen` further ones, which have only weights; `quantised` of all are of linear layers in low precision.
    `resident`: bytes of packed weights that are not sharded. `moments`: bytes of the optimizer's state (`Workload.stage_states`);
    by default, as if no parameter were a matrix."""
    plan, runtime = job.plan, job.runtime
    shard = shard_elements(job, parameters, experts)
    weight, gradient = DTYPE_BYTES[runtime.weight_dtype], DTYPE_BYTES[runtime.gradient_dtype]
    unsharded_gradients = plan.gradient_accumulation == "local" or job.whole_in_step
    still = weight * frozen / job.shard_ranks
    master = 4.0 if runtime.master_weights and weight < 4.0 else 0.0
    kept = plan.offload.kept_state
    if master and plan.sharding in ("fsdp", "hsdp"):  # FSDP's shards are the master copy; 16-bit weights exist only while gathered
        weight, master = (1.0 - kept) * weight + kept * master, 0.0
    if moments is None:
        moments = state_bytes(job, Held(parameters, experts))
    copies = master * updated_parameters(job, parameters, experts)
    cut = plan.sharding == "zero2" or plan.shards_parameters and not unsharded_gradients
    if runtime.optimizer_in_backward:  # one parameter's at a time: `walk.Arriving`
        gradient = 0.0
    return State(
        weights=resident
        if plan.offload.parameters != "none"
        else weight * shard + still + resident
        if plan.shards_parameters
        else weight_bytes(job, parameters + frozen, quantised) + resident,
        gradients=gradient * (shard * (kept if gradients_leave(plan) else 1.0) if cut else parameters),
        optimizer=(moments + copies) * kept,
        master=copies * kept,
    )


def gradients_leave(plan: Plan) -> bool:
    """Whether shards of gradients are accumulated where their optimizer state is: ZeRO-Offload, ZeRO-Infinity and FSDP's CPUOffload
    do so from ZeRO 2 up, since every backward pass reduces there."""
    cut = plan.sharding == "zero2" or plan.shards_parameters and plan.gradient_accumulation != "local"
    return plan.offload.optimizer != "none" and cut


SUB_GROUP = 1e9
"""Elements of a group that DeepSpeed's ZeRO 3 updates at once: its default of sub_group_size."""


def step_bytes(job: Job, parameters: float, experts: float = 0.0) -> float:
    """Temporary bytes of the parameter update: fp32 copies of 16-bit gradients, and a foreach optimizer's intermediate. DeepSpeed's
    ZeRO 3 updates a group of its shard after the other, and flattens a group's gradients before it widens them (stage3.py,
    _prepare_fp32_grad_for_sub_group)."""
    runtime = job.runtime
    copies = 4.0 if runtime.master_weights and DTYPE_BYTES[runtime.gradient_dtype] < 4.0 else 0.0
    updated = updated_parameters(job, parameters, experts) * job.plan.offload.kept_state
    if copies and runtime.live_parameters is not None:
        copies, updated = copies + DTYPE_BYTES[runtime.gradient_dtype], min(updated, SUB_GROUP)
    return updated * (copies + (0.0 if runtime.fused_optimizer else 4.0))


@dataclass(frozen=True)
class StateBytes:
    """One copy of a job's weights and optimizer state; `copied`: what every data-parallel rank holds whole, and needs at a
    load."""

    weights: float
    optimizer: float
    copied: float

    @property
    def total(self) -> float:
        return self.weights + self.optimizer


def state_bytes_of(job: Job) -> StateBytes:
    """Bytes of the state by the memory model's rules: frozen weights under adapters have no optimizer state, and FSDP's fp32
    shards are weights and master copy at once."""
    runtime, plan = job.runtime, job.plan
    elements = float(parameter_count(job.model))
    weight = DTYPE_BYTES[runtime.weight_dtype]
    master = 4.0 if runtime.master_weights and weight < 4.0 else 0.0
    if master and plan.sharding in ("fsdp", "hsdp"):
        weight, master = master, 0.0
    if getattr(job.model, "lora", None) is not None:  # adapters and their state are less than a hundredth of it
        return StateBytes(weight * elements, 0.0, 0.0 if plan.shards_parameters else weight * elements)
    state = OPTIMIZERS[runtime.optimizer].state(ParameterUpdate(job, Held(elements, 0.0), elements, 4.0, 4.0))
    optimizer = state + master * elements
    whole = 0.0 if plan.shards_parameters else weight * elements
    return StateBytes(weight * elements, optimizer, whole + (optimizer if plan.sharding == "none" else 0.0))
