"""A lower bound of the memory of every stage, for columns of plans.

State is linear in the elements of a stage, so its bytes per element are read off `memory.state` once for each way to shard it. The
activations of a stage are at least those of the micro batches that it holds at the fullest moment of its schedule, and the working
set of the backward pass that begins then. Left out: communicators' buffers, gathered parameters, fragments.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.memory.habits import habits
from windtunnel.memory.resident import CONTEXT, OTHER_CONTEXT
from windtunnel.memory.result import USABLE
from windtunnel.memory.state import state_of
from windtunnel.search.bound.held import micro_batches_held
from windtunnel.search.bound.layouts import PipelineLayout
from windtunnel.search.bound.stack import CellStack, Staged
from windtunnel.search.bound.step import PlanRows
from windtunnel.spec import Job
from windtunnel.workload.optimizers import OPTIMIZERS


def room(job: Job) -> float:
    """Bytes that the framework's allocator may use at most."""
    gpu = job.cluster.gpu
    context = CONTEXT.get(gpu.architecture, OTHER_CONTEXT) + habits(job.runtime.framework).resident
    return USABLE * float(gpu.memory) - context


class MemoryFloor:
    """Bounds of the plans of one frame."""

    def __init__(self) -> None:
        self._widths: dict[tuple[object, ...], tuple[float, ...]] = {}

    def allocated(
        self, job: Job, layout: PipelineLayout, stack: CellStack, staged: Staged, cells: Int64s, rows: PlanRows
    ) -> Floats:
        """[N] least bytes on the fullest stage, for plans as in `step.StepFloor`."""
        elements = (stack.dense, stack.experts, stack.quantised + stack.frozen_quantised, stack.frozen)
        counts = layout.stage_counts.T
        state = sum((each[cells] @ counts * width for each, width in zip(elements, self._state(job), strict=True)), np.zeros(()))
        least, saved = state + staged.working[cells], staged.saved[cells]  # [K, S], [K, S, V]
        out = np.zeros(len(rows.cell))
        pairs = layout.pairs and layout.copies == 1 and job.runtime.moe_a2a_overlap
        counted, place = np.unique(rows.micro_batches, return_inverse=True)
        for number, count in enumerate(counted.tolist()):
            held = micro_batches_held(layout.schedule, pairs, layout.pp, layout.vpp, count)
            alike = np.flatnonzero(place == number) if len(counted) > 1 else slice(None)
            out[alike] = (least + (saved * held[None]).sum(axis=2)).max(axis=1)[rows.cell[alike]]
        return out

    def _state(self, job: Job) -> tuple[float, ...]:
        """Bytes of state per element: outside of experts, of experts, in low precision (beside that), and frozen."""
        plan = job.plan
        key = (
            plan.sharding,
            job.shard_ranks,
            job.expert_shard_ranks,
            job.copies,
            plan.gradient_accumulation,
            plan.offload,
            plan.pp > 1,
        )
        if key not in self._widths:
            self._widths[key] = _state_widths(job)
        return self._widths[key]


def _state_widths(job: Job) -> tuple[float, ...]:
    habit = habits(job.runtime.framework)
    moments = 0.0 if OPTIMIZERS[job.runtime.optimizer].by_shape else None
    one = 1e9  # elements: state is linear in them
    each = (
        state_of(job, habit, one, moments=moments),
        state_of(job, habit, one, experts=one, moments=moments),
        state_of(job, habit, 0.0, quantised=one, moments=moments),
        state_of(job, habit, 0.0, frozen=one, moments=moments),
    )
    return tuple(state.total / one for state in each)
