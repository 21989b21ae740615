"""All of a stage's memory in one figure: state + activations + buffers, then the allocator, then the driver."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from windtunnel.base.errors import SpecError
from windtunnel.memory.allocator_settings import settings_of
from windtunnel.memory.buffers import buffer_bytes
from windtunnel.memory.habits import habits
from windtunnel.memory.replay import Replays
from windtunnel.memory.resident import context_bytes, cublas_bytes
from windtunnel.memory.result import StageMemory
from windtunnel.memory.state import raw_gradient_bytes, state_of, step_bytes
from windtunnel.memory.walk import Needs, Peak, activation_walk, block_needs, peak_of
from windtunnel.spec.job import Job
from windtunnel.workload.graph import Workload

USABLE = 0.989
"""Share of the data sheet's memory that CUDA offers: PyTorch's out-of-memory texts print 79.15 of 80 GiB on A100, 79.10 on H100."""


def memory_of(job: Job, workload: Workload) -> tuple[StageMemory, ...]:
    """Memory of every pipeline stage of `job` in bytes, whose graph is `workload`.

    All ranks of a stage are equal but for rounding. Raises SpecError or UnknownName for a `runtime.alloc_conf` that PyTorch would
    not take.
    """
    settings_of(job.runtime.alloc_conf)
    needs = block_needs(workload)
    stages = tuple(_stage(job, workload, stage, needs) for stage in range(job.plan.pp))
    limits = tuple(s.usable - s.context if s.fits else math.inf for s in stages)
    replays = Replays(workload, tuple(s.allocated for s in stages), limits)
    return tuple(replace(stage, replays=replays) for stage in stages)


def _stage(job: Job, workload: Workload, stage: int, needs: tuple[Needs, ...]) -> StageMemory:
    habit = habits(job.runtime.framework)
    parameters = workload.stage_parameters[stage]
    state = state_of(job, habit, parameters)
    peak = peak_of(workload, stage, needs, raw_gradient_bytes(job))
    buffers = buffer_bytes(workload, stage, habit, parameters)
    step = step_bytes(job, parameters)
    if step > peak.total + buffers:  # the update is the highest point: activations and most buffers are gone
        peak, buffers = Peak(0.0, 0.0, step), 0.0
    workspace = peak.working + cublas_bytes(job)
    allocated = state.total + peak.activations + peak.logits + workspace + buffers
    context = context_bytes(job, habit)
    capacity = float(job.cluster.gpu.memory)
    usable = USABLE * capacity
    return StageMemory(
        stage=stage, weights=state.weights, gradients=state.gradients, optimizer=state.optimizer, activations=peak.activations,
        logits=peak.logits, buffers=buffers, workspace=workspace, context=context, allocated=allocated,
        capacity=capacity, usable=usable, fits=allocated + context <= usable, overhead=job.runtime.allocator_overhead,
    )


def curve(workload: Workload, memory: StageMemory, ends: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Allocated bytes over time: `ends` are the seconds at which the stage's actions end, in schedule order.

    The base is what lives through the step; raises SpecError if there are not as many ends as actions.
    """
    levels = activation_walk(workload, memory.stage)
    if len(ends) != len(levels):
        raise SpecError("ends", len(ends), f"one time for each of the stage's {len(levels)} actions")
    base = memory.weights + memory.gradients + memory.optimizer + memory.buffers
    return ((0.0, base), *((float(t), base + float(level)) for t, level in zip(ends, levels, strict=True)))
