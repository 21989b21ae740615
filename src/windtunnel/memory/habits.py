"""Memory behaviour of frameworks that no field of the plan states.

Keyed by framework only. From the frameworks' sources, as recalled: Megatron-LM `core/tensor_parallel/cross_entropy.py` and
`core/pipeline_parallel/schedules.py` (deallocates outputs since 2022-05, Korthikanti et al. 2022 appendix B); DeepSpeed
`runtime/bf16_optimizer.py`, `runtime/zero/stage_1_and_2.py`, `runtime/pipe/engine.py`; torchtitan `parallelize_llama.py`;
PyTorch's FSDP2 and `torch.distributed.pipelining`; nanotron `optim/gradient_accumulator.py`, read at 67c5ebb6. docs/memory.md
says which measured rows they were checked against.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class MemoryHabits:
    """How a framework treats buffers."""

    loss: tuple[float, float] = (14.0, 14.0)
    """Bytes per logit at the peak of an unfused loss, without and with a vocabulary sharded over tp. They include tensors of
    different sizes, whose blocks the caching allocator cannot reuse for each other."""
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
    saves_gathered: bool = False
    """Whether the gathered input of a column-parallel layer is kept under sequence parallelism, not gathered again."""
    torch_pipeline: bool = False
    """Whether PyTorch's pipeline runtime over FSDP2 runs: it keeps parameters gathered and gradients unsharded until the last micro
    batch, and the outputs of all micro batches until the end of the step."""
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
_EAGER = MemoryHabits(loss=(14.0, 14.0), checkpoints_outside=True)
_DEEPSPEED = MemoryHabits(
    loss=(8.0, 8.0), keeps_outputs=True, raw_gradients="chunk", bucket=5e8, resident=1.0 * 2**30, flat="all", lazy_moments=False
)
_NANOTRON = MemoryHabits(loss=(14.0, 14.0), raw_gradients="chunk", flat="gradients")
_TORCHTITAN = MemoryHabits(loss=(14.0, 18.0), keeps_outputs=True, saves_gathered=True, torch_pipeline=True)

HABITS: dict[str, MemoryHabits] = {
    "megatron-deepspeed": _DEEPSPEED,
    "deepspeed": replace(_DEEPSPEED, stated_bucket=True),
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
