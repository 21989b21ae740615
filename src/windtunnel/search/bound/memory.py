"""A lower bound of the memory of every stage, for columns of plans.

State is linear in the elements of a stage, so its bytes per element are read off `memory.state` once for each way to shard it. The
activations of a stage are at least those of the micro batches that it holds at the fullest moment of its schedule, and the working
set of the backward pass that begins then. Left out: communicators' buffers, gathered parameters, fragments.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.memory.habits import habits
from windtunnel.memory.resident import CONTEXT, OTHER_CONTEXT
from windtunnel.memory.result import USABLE
from windtunnel.memory.state import state_of
from windtunnel.search.bound.held import micro_batches_held
from windtunnel.search.bound.stack import ELEMENTS
from windtunnel.search.bound.step import Cases, Pairs, PlanRows
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
        self._widths: dict[tuple[object, ...], Floats] = {}

    def least_bytes(self, cases: Cases, pairs: Pairs, rows: PlanRows) -> Floats:
        """[N] least bytes on the fullest stage, for plans as in `step.StepFloor`."""
        staged, runtime = pairs.staged, cases.jobs[0].runtime
        counted, place = np.unique(rows.micro_batches, return_inverse=True)
        different, row = np.unique(rows.pair * len(counted) + place, return_inverse=True)
        pair, count = np.divmod(different, len(counted))
        wanted, of = np.unique(pairs.layout[pair] * len(counted) + count, return_inverse=True)
        most = np.zeros((len(wanted), *staged.saved.shape[2:]), np.int64)  # [layouts and counts, S, V]
        for number, both in enumerate(wanted.tolist()):
            layout = staged.layouts[both // len(counted)]
            beside = layout.pairs and layout.copies == 1 and runtime.moe_a2a_overlap
            held = micro_batches_held(layout.schedule, beside, layout.pp, layout.vpp, int(counted[both % len(counted)]))
            most[number, :, : held.shape[1]] = held
        cell, at = pairs.cell[pair], pairs.layout[pair]
        widths = np.stack([self._state(job) for job in cases.jobs])
        used, of_pair = np.unique(cases.of * len(staged.elements) + pairs.stack.of[pairs.cell], return_inverse=True)
        case, elements = np.divmod(used, len(staged.elements))
        state = (widths[case][:, None] @ staged.elements[elements].reshape(len(used), len(ELEMENTS), -1))[:, 0]
        state = state.reshape(len(used), *staged.elements.shape[2:])  # [U, L, S]
        least = state[of_pair[pair], at] + staged.working[cell, at] + (staged.saved[cell, at] * most[of]).sum(axis=2)
        return np.asarray(least.max(axis=1)[row], np.float64)

    def _state(self, job: Job) -> Floats:
        """[6] bytes of state per element of each of `ELEMENTS`; those in low precision are counted beside the others."""
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


def _state_widths(job: Job) -> Floats:
    habit = habits(job.runtime.framework)
    moments = 0.0 if OPTIMIZERS[job.runtime.optimizer].by_shape else None
    one = 1e9  # elements: state is linear in them
    narrow = state_of(job, habit, 0.0, quantised=one, moments=moments)
    each = {
        "dense": state_of(job, habit, one, moments=moments),
        "experts": state_of(job, habit, one, experts=one, moments=moments),
        "quantised": narrow,
        "frozen": state_of(job, habit, 0.0, frozen=one, moments=moments),
        "frozen_quantised": narrow,
    }
    return np.array([each[name].total / one if name in each else 0.0 for name in ELEMENTS])
