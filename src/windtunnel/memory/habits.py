"""Memory behaviour of frameworks that no field of the plan states.

Keyed by framework only. From the frameworks' sources, as recalled: Megatron-LM `core/tensor_parallel/cross_entropy.py` and
`core/pipeline_parallel/schedules.py` (deallocates outputs since 2022-05, Korthikanti et al. 2022 appendix B); DeepSpeed
`runtime/bf16_optimizer.py`, `runtime/zero/stage_1_and_2.py`, `runtime/pipe/engine.py`; torchtitan `parallelize_llama.py`;
PyTorch's FSDP2 and `torch.distributed.pipelining`; nanotron `optim/gradient_accumulator.py`, read at 67c5ebb6. docs/memory.md
says which measured rows they were checked against.

What a process holds on the GPU outside the framework's allocator: the CUDA context and NCCL's buffers.
"""

from __future__ import annotations

from typing import Literal

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.spec.job import Job


@dataclass(frozen=True)
class MemoryHabits:
    """How a framework treats buffers."""

    loss: tuple[float, float] = (14.0, 14.0)
    """Bytes per logit at the peak of an unfused loss, without and with a vocabulary sharded over tp."""
    loss_holes: tuple[float, float] = (0.0, 0.0)
    """Bytes per logit of blocks that the loss has freed by then and that are too small for its other tensors: reserved, not
    allocated."""
    fused_loss: float = 8.0
    """Bytes per logit at the peak of a fused loss."""
    keeps_outputs: bool = False
    """Whether a stage's output stays allocated until its backward pass."""
    raw_gradients: Literal["layer", "chunk"] = "layer"
    """Gradients in compute precision that exist beside the accumulated ones: of one layer, or of the whole virtual stage until the
    micro batch ends."""
    bucket: float = 0.0
    """Elements of the flat reduction buffer; 0: gradients already lie in one."""
    stated_bucket: bool = False
    """Whether that buffer has the size of `runtime.bucket` (DeepSpeed's reduce_bucket_size) in place of `bucket`."""
    resident: float = 0.0
    """Bytes of the process on the GPU beside tensors, context and NCCL: eagerly loaded kernels, as before CUDA 11.7."""
    flat: Literal["none", "gradients", "all"] = "none"
    """What is in one buffer in place of a tensor for each parameter: the accumulated gradients, or weights and optimizer state as
    well."""
    checkpoints_outside: bool = False
    """Whether checkpointing is around FSDP2's units, so that recompute runs their forward hooks again: the all-gather's output then
    stays beside the parameters copied out of it until the next unit has been gathered (torch `_fsdp_param_group.py`,
    wait_for_unshard; transformers' GradientCheckpointingLayer). torchtitan has checkpointing inside the units."""
    lazy_moments: bool = True
    """Whether the optimizer allocates its moments in its first update, after the first step's activations are freed."""


_MEGATRON = MemoryHabits(loss=(8.0, 8.0), flat="gradients")
# torch's cross_entropy over an fp32 copy of the logits saves the logarithm of the softmax; its backward pass writes that one's
# gradient and that of the fp32 logits: 3 x 4. The 16-bit logits are freed when the model's output is, before backward (a Trainer
# returns the loss alone, torchtitan says `del pred`), and leave a hole of 2 bytes.
_EAGER = MemoryHabits(loss=(12.0, 12.0), loss_holes=(2.0, 2.0), checkpoints_outside=True)
_DEEPSPEED = MemoryHabits(
    loss=(8.0, 8.0), keeps_outputs=True, raw_gradients="chunk", bucket=5e8, resident=1.0 * 2**30, flat="all", lazy_moments=False
)
_NANOTRON = MemoryHabits(loss=(14.0, 14.0), raw_gradients="chunk", flat="gradients")
_TORCHTITAN = MemoryHabits(loss=(12.0, 18.0), loss_holes=(2.0, 0.0), keeps_outputs=True)

HABITS: dict[str, MemoryHabits] = {
    "megatron-deepspeed": _DEEPSPEED,
    "deepspeed": replace(_DEEPSPEED, loss=_EAGER.loss, loss_holes=_EAGER.loss_holes, stated_bucket=True),
    "torchtitan": _TORCHTITAN,
    "fsdp": _EAGER,
    "llm-foundry": _EAGER,
    "composer": _EAGER,
    "pytorch": _EAGER,
    "nanotron": _NANOTRON,
    "maxtext": MemoryHabits(loss=(8.0, 8.0), lazy_moments=False),
}


def habits(framework: str) -> MemoryHabits:
    """Habits of a framework, by its name in the catalogue; Megatron's for others, since most frameworks descend from it."""
    return HABITS.get(framework.lower().replace("_", "-"), _MEGATRON)


MIB = 2.0**20
CONTEXT = {"volta": 350 * MIB, "turing": 300 * MIB, "ampere": 450 * MIB, "hopper": 550 * MIB, "blackwell": 650 * MIB}
"""CUDA context with kernels loaded on demand, by architecture: it grows with the number of multiprocessors.
Assumed, from the commonly seen 0.3 to 0.6 GiB; not measured on each."""

OTHER_CONTEXT = 500 * MIB
CHANNELS = {"volta": 12, "ampere": 24, "hopper": 24, "blackwell": 32}
"""Rings that NCCL builds inside an NVSwitch domain."""

NET_CHANNELS_PER_NIC = 2
RECEIVE, SEND = 10 * MIB, 2 * MIB
"""Per connection: 4 MiB for Simple, 4.4 for LL128, 0.5 for LL rounded up at the receiver; 2 MiB at the sender
(allocation sizes in NVIDIA/nccl issue 1685). Over a network both ends stage in a receive-sized buffer."""

CUBLAS = {"hopper": 32 * MIB, "blackwell": 32 * MIB}
"""cuBLAS workspace that PyTorch allocates per handle and stream (default of CUBLAS_WORKSPACE_CONFIG); older GPUs below."""

CUBLAS_ELSE = 8.125 * MIB


def context_bytes(job: Job, habit: MemoryHabits) -> float:
    """Context, modules of kernels and all communicators."""
    return CONTEXT.get(job.cluster.gpu.architecture, OTHER_CONTEXT) + habit.resident + nccl_bytes(job)


def cublas_bytes(architecture: str) -> float:
    """Bytes of cuBLAS's workspace on a stream of a GPU of `architecture`."""
    return CUBLAS.get(architecture, CUBLAS_ELSE)


def nccl_bytes(job: Job) -> float:
    """Buffers of the communicators: one for each parallel axis in use, one for all ranks.

    Each channel of a communicator has a ring (one receiver, one sender) and a tree (two more of each; Jeaugey 2019).
    """
    plan, domain = job.plan, job.cluster.domain
    sizes = {"tp": plan.tp, "cp": plan.cp, "dp": job.dp, "pp": plan.pp}
    total, stride = 0.0, 1
    for axis in (a for a in plan.placement if a in sizes):
        ranks = sizes[axis]
        if ranks > 1:
            inside = stride * ranks <= domain
            total += _communicator(job, inside, point_to_point=axis == "pp" or axis == "cp" and job.cp_kind != "all_gather")
        stride *= ranks
    if plan.ep * plan.etp > 1:  # experts' axes: tokens over ep, copies of experts over the rest
        span = plan.ep * plan.etp
        total += _communicator(job, span <= domain, point_to_point=plan.ep > 1 and job.runtime.moe_dispatch != "allgather")
        if job.expert_dp > 1:
            total += _communicator(job, span * job.expert_dp <= domain, point_to_point=False)
    if stride > 1:
        total += _communicator(job, stride <= domain, point_to_point=False)
    return total


def _communicator(job: Job, inside: bool, point_to_point: bool) -> float:
    node = job.cluster.node
    if inside:
        channels, connection = CHANNELS.get(node.gpu.architecture, 16), RECEIVE + SEND
    else:
        channels, connection = NET_CHANNELS_PER_NIC * (node.nic.count if node.nic else 1), 2 * RECEIVE
    if point_to_point:  # send and receive share one staging buffer per direction, over few channels
        return 2 * NET_CHANNELS_PER_NIC * connection
    return 3.0 * channels * connection
