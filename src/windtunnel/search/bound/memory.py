"""A lower bound of the memory of every stage, for columns of plans.

State is linear in the elements of a stage, so its bytes per element are read off `memory.state` once for each way to shard it. The
activations of a stage are at least those of the micro batches that it holds at the fullest moment of its schedule, and the working
set of the backward pass that begins then. Left out: communicators' buffers, gathered parameters, fragments.

How many micro batches each virtual stage holds at the fullest moment of a schedule.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.memory.habits import CONTEXT, OTHER_CONTEXT, habits
from windtunnel.memory.result import USABLE
from windtunnel.memory.state import state_of
from windtunnel.memory.walk import gradients_arrive
from windtunnel.search.bound.stack import ELEMENTS
from windtunnel.search.bound.step import Cases, Pairs, PlanRows
from windtunnel.spec import Job
from windtunnel.workload.optimizers import OPTIMIZERS
from windtunnel.workload.schedules import SCHEDULES, Pass, overlapped_order, table


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
    moments = 0.0 if OPTIMIZERS[job.runtime.optimizer].by_shape else None
    one = 1e9  # elements: state is linear in them
    narrow = state_of(job, 0.0, quantised=one, moments=moments)
    each = {
        "dense": state_of(job, one, moments=moments),
        "experts": state_of(job, one, experts=one, moments=moments),
        "quantised": narrow,
        "frozen": state_of(job, 0.0, frozen=one, moments=moments),
        "frozen_quantised": narrow,
    }
    late = gradients_arrive(job, micro_batches=1)  # they may not be there when activations are at their most
    return np.array([(each[name].total - late * each[name].gradients) / one if name in each else 0.0 for name in ELEMENTS])


GROWING = ("gpipe", "breadth-first")
"""Schedules whose stages hold more the more micro batches there are."""

SETTLED = 2
"""Micro batches, in multiples of the stages, beyond which other schedules hold no more."""


def micro_batches_held(schedule: str, pairs: bool, pp: int, vpp: int, micro_batches: int) -> Int64s:
    """[stages, virtual stages]: micro batches held before the backward pass at which their sum is largest.

    `pairs`: layers of a forward and a backward pass alternate, so that the forward pass reuses what the other frees.
    """
    settled = SETTLED * pp
    if schedule not in GROWING and micro_batches > settled and micro_batches % pp == 0:
        micro_batches = settled
    return _count_held(schedule, pairs, pp, vpp, micro_batches)


@lru_cache(maxsize=4096)
def _count_held(schedule: str, pairs: bool, pp: int, vpp: int, micro_batches: int) -> Int64s:
    orders = (overlapped_order if pairs else SCHEDULES[schedule])(pp, vpp, micro_batches)
    chunks = 1 + max(action.chunk for action in orders[0])
    most = np.zeros((pp, chunks), np.int64)
    for stage, order in enumerate(orders):
        direction, chunk, _, beside = table(order).T
        step = np.where(direction == Pass.FORWARD, 1, np.where(direction == Pass.WEIGHT_GRADIENT, 0, -1))
        changes = np.zeros((len(order), chunks), np.int64)
        changes[np.arange(len(order)), chunk] = step
        before = np.cumsum(changes, axis=0) - changes
        if pairs:
            second = np.flatnonzero(beside) + 1
            before[second] = before[second - 1]
        backward = np.flatnonzero((direction == Pass.BACKWARD) | (direction == Pass.INPUT_GRADIENT))
        if len(backward):
            most[stage] = before[backward[np.argmax(before[backward].sum(axis=1))]]
    return most
