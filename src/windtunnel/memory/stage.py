"""A stage's peak memory: state + activations + buffers, then the allocator's overhead, then the driver's."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import ref

from windtunnel.base.errors import SpecError
from windtunnel.memory.allocator_settings import settings_of
from windtunnel.memory.buffers import buffer_bytes
from windtunnel.memory.habits import habits
from windtunnel.memory.resident import context_bytes, cublas_bytes
from windtunnel.memory.result import USABLE, StageMemory
from windtunnel.memory.state import state_of, step_bytes
from windtunnel.memory.tiers import tiers_of
from windtunnel.memory.walk import Needs, Peak, activation_walk, block_needs, peak_of
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload.graph import Workload


def memory_of(job: Job, workload: Workload) -> tuple[StageMemory, ...]:
    """Memory of every pipeline stage of `job` in bytes, whose graph is `workload`.

    All ranks of a stage are equal but for rounding. Reserved memory exceeds allocated by `runtime.allocator_overhead`, as far as
    the GPU has room: before it fails, PyTorch's caching allocator gives unused segments back. Raises SpecError for a
    `runtime.alloc_conf` that PyTorch would refuse.
    """
    global _last  # a search asks for the memory first, and then predicts what fits
    before = _last
    if before is not None and before[0] is job and before[1]() is workload:
        return before[2]
    settings_of(job.runtime.alloc_conf)  # raises SpecError for what PyTorch would refuse
    needs = block_needs(workload)
    found = tuple(_stage(job, workload, stage, needs) for stage in range(job.plan.pp))
    _last = (job, ref(workload), found)
    return found


_last: tuple[Job, ref[Workload], tuple[StageMemory, ...]] | None = None


def _stage(job: Job, workload: Workload, stage: int, needs: tuple[Needs, ...]) -> StageMemory:
    habit = habits(job.runtime.framework)
    parameters, experts = workload.stage_parameters[stage], workload.stage_experts[stage]
    narrow, frozen = workload.held_weights(stage)
    state = state_of(job, habit, parameters, experts, narrow, workload.stage_states[stage], frozen, workload.resident_bytes(stage))
    peak = peak_of(workload, stage, needs, raw_gradient_bytes(job))
    buffers = buffer_bytes(workload, stage, habit, parameters)
    step = step_bytes(job, parameters, experts)
    if step > peak.total + buffers:  # the update is the peak: activations and most buffers are freed
        peak, buffers = Peak(0.0, 0.0, step), 0.0
    workspace = peak.working + cublas_bytes(job)
    allocated = state.total + peak.activations + peak.logits + workspace + buffers
    context = context_bytes(job, habit)
    capacity = float(job.cluster.gpu.memory)
    room = USABLE * capacity - context
    reserved = max(allocated, min(allocated * (1.0 + job.runtime.allocator_overhead), room))
    tiers = tiers_of(workload, stage, habit, needs)
    return StageMemory(
        stage=stage,
        weights=state.weights,
        gradients=state.gradients,
        optimizer=state.optimizer,
        activations=peak.activations,
        logits=peak.logits,
        buffers=buffers,
        workspace=workspace,
        context=context,
        fragmentation=reserved - allocated,
        allocated=allocated,
        reserved=reserved,
        total=reserved + context,
        capacity=capacity,
        fits=allocated <= room and all(tier.missing <= 0.0 for tier in tiers),
        tiers=tiers,
    )


def raw_gradient_bytes(job: Job) -> float:
    """Bytes per parameter of compute-precision gradients that live beside the accumulated ones until a backward pass ends."""
    runtime, plan = job.runtime, job.plan
    whole_chunk = habits(runtime.framework).raw_gradients == "chunk"
    if not whole_chunk or plan.shards_parameters or runtime.fused_wgrad or runtime.gradient_dtype == runtime.precision:
        return 0.0
    compute = runtime.compute_width
    return compute if DTYPE_BYTES[runtime.gradient_dtype] > compute else 0.0


def curve(workload: Workload, memory: StageMemory, ends: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Allocated bytes over time: `ends` are the seconds at which the stage's actions end, in schedule order.

    The base is what lives through the step. Raises SpecError if the number of ends differs from that of actions.
    """
    levels = activation_walk(workload, memory.stage)
    if len(ends) != len(levels):
        raise SpecError("ends", len(ends), f"one time for each of the stage's {len(levels)} actions")
    base = memory.weights + memory.gradients + memory.optimizer + memory.buffers
    return ((0.0, base), *((float(t), base + float(level)) for t, level in zip(ends, levels, strict=True)))
