"""The compute tax: the share of a GPU's SMs that communication holds while it runs beside computation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.base.arrays import Bools, Int64s
from windtunnel.predict.price.calls import CallBook, CallKey
from windtunnel.workload import Axis, Comm

if TYPE_CHECKING:
    from windtunnel.predict.program.stage import Stage

MOST = 0.5
"""Largest share that calls are taken to hold; assumed."""
DEFAULT = 0.1
"""For accelerators whose compute units are not known; assumed."""
CHAIN = 3
"""Calls that wait for each other one after the other, such as a reduce-scatter and the all-reduce between replicas."""


def beside(waits: Int64s, computes: Bools, calls: Bools, inline: Bools) -> Int64s:
    """Which of n tasks in program order are calls that may run while something computes.

    `waits` [n, w]: earlier tasks whose end a task awaits, -1 for none. `computes`: takes time on the compute stream. `inline`: is
    on that stream, whose tasks run in order. A call runs between the end of the last task that it awaits and the start of the
    first task on the compute stream that awaits it; it is beside what computes between these two.
    """
    n = len(waits)
    task = np.arange(n)
    after = np.where(inline, task, -1)  # of each task: the last one on the compute stream that has ended when it begins
    until = np.where(inline, task, n)  # and the first one that begins only when it has ended
    place, slot = np.nonzero(waits >= 0)
    awaited = waits[place, slot]
    mine = ~inline[place]
    theirs = ~inline[awaited]
    for _ in range(CHAIN):
        np.maximum.at(after, place[mine], after[awaited[mine]])
        np.minimum.at(until, awaited[theirs], until[place[theirs]])
    done = np.concatenate([[0], np.cumsum(computes)])  # computing tasks before each place
    return np.flatnonzero(calls & ~inline & (done[until] > done[after + 1]))


def compute_tax(stages: Sequence[Stage]) -> float:
    """The tax of a program: of all calls beside computation, inside passes or between them, the one that holds most SMs counts."""
    return max(tax_of(stage.costs.calls, _overlapping(stage)) for stage in stages)


def tax_of(book: CallBook, calls: Iterable[CallKey]) -> float:
    """NCCL runs one block, and so holds one SM, a channel; DeepEP and HybridEP hold as many as they are told to."""
    job = book.job
    sms, own = job.cluster.gpu.sms, job.runtime.moe_dispatch_sms
    if not sms:
        return DEFAULT

    def held(call: CallKey) -> int:
        dispatch = own is not None and call.axis is Axis.EP and call.comm is Comm.ALL_TO_ALL
        return own if own is not None and dispatch else book.price(*call).channels

    return min(MOST, max((held(call) for call in calls), default=0) / sms)


def _overlapping(stage: Stage) -> set[CallKey]:
    """Calls of a stage that run beside computation."""
    calls = stage.templates.calls_beside(stage.rank.templates)
    if stage.collectives:
        at = {instance: key for instance, key in stage.collectives}
        template, waits = stage.rank.templates, stage.rank.waits_by_instance()
        inline, computes = stage.templates.on_compute_stream(template)
        is_call = np.zeros(len(template), np.bool_)
        is_call[list(at)] = True
        calls |= {at[instance] for instance in beside(waits, computes, is_call, inline).tolist()}
    return calls
