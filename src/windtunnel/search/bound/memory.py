"""A lower bound of the memory of every stage, for columns of plans.

State is linear in the elements of a stage, so its bytes per element are read off `memory.state` once for each way to shard it. The
activations of a stage are at least those of the micro batches that it holds at the fullest moment of its schedule, and the working
set of the backward pass that begins then. Left out: communicators' buffers, gathered parameters, fragments.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.memory.habits import habits
from windtunnel.memory.resident import CONTEXT, OTHER_CONTEXT
from windtunnel.memory.result import USABLE
from windtunnel.memory.state import state_of
from windtunnel.search.bound.held import micro_batches_held
from windtunnel.search.bound.layouts import Layout
from windtunnel.search.bound.stack import Stack
from windtunnel.spec import Job
from windtunnel.workload.optimizers import OPTIMIZERS


def room(job: Job) -> float:
    """Bytes that the framework's allocator may use at most."""
    gpu = job.cluster.gpu
    context = CONTEXT.get(gpu.architecture, OTHER_CONTEXT) + habits(job.runtime.framework).resident
    return USABLE * float(gpu.memory) - context


def allocated(job: Job, layout: Layout, stack: Stack, cells: Int64s, cell: Int64s, micro_batches: Int64s) -> Floats:
    """[N] least bytes on the fullest stage, for plans as in `step.StepFloor.seconds`."""
    state = _state(job, layout, stack, cells)  # [K, S]
    places = np.array(layout.places)
    saved = np.einsum("kb,svb->ksv", stack.saved[cells], layout.counts[places])  # [K, S, V]
    working = _working(layout, stack, cells).min(axis=2)
    working = np.where(np.isfinite(working), working, 0.0)
    out = np.zeros(len(cell))
    pairs = layout.pairs and layout.copies == 1 and job.runtime.moe_a2a_overlap
    for count in np.unique(micro_batches).tolist():
        rows = micro_batches == count
        held = micro_batches_held(layout.schedule, pairs, layout.pp, layout.vpp, count)
        bytes_ = state + (saved * held[None]).sum(axis=2) + working
        out[rows] = bytes_.max(axis=1)[cell[rows]]
    return out


def fits(job: Job, bytes_: Floats) -> Bools:
    """Whether so many allocated bytes may fit on the job's GPU."""
    return np.asarray(bytes_ <= room(job), np.bool_)


def _working(layout: Layout, stack: Stack, cells: Int64s) -> Floats:
    """[K, S, V] working bytes of each virtual stage's last block; the least of its blocks, since a layout does not order them."""
    used = np.where(layout.counts > 0.0, 0.0, np.inf)  # [parts, B]
    least = (stack.working[cells][:, None, :] + used[None]).min(axis=2)  # [K, parts]
    return np.asarray(least[:, np.array(layout.places)], np.float64)


def _state(job: Job, layout: Layout, stack: Stack, cells: Int64s) -> Floats:
    """[K, S] bytes of weights, gradients and optimizer state."""
    habit = habits(job.runtime.framework)
    counts = layout.stage_counts.T

    def bytes_of(**elements: float) -> float:
        whole = {"parameters": 0.0, "experts": 0.0, "quantised": 0.0, "frozen": 0.0} | elements
        moments = 0.0 if OPTIMIZERS[job.runtime.optimizer].by_shape else None
        return state_of(job, habit, **whole, moments=moments).total

    one = 1e9  # elements; the state of so many over so many is the state of one
    columns = (
        (stack.dense, bytes_of(parameters=one)),
        (stack.experts, bytes_of(parameters=one, experts=one)),
        (stack.quantised + stack.frozen_quantised, bytes_of(quantised=one)),
        (stack.frozen, bytes_of(frozen=one)),
    )
    total = np.zeros((len(cells), layout.pp))
    for elements, bytes_ in columns:
        total += elements[cells] @ counts * (bytes_ / one)
    return total
