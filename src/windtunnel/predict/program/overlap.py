"""Which calls of a program run beside computation."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Int64s

CHAIN = 3
"""Longest chain of calls that wait for each other, such as a reduce-scatter and the all-reduce between replicas."""


def calls_beside_computation(place: Int64s, awaited: Int64s, computes: Bools, calls: Bools, inline: Bools) -> Int64s:
    """Those of n tasks in program order that are calls which may run beside computation.

    Task `place[i]` waits for the earlier task `awaited[i]`. `computes` [n]: takes time on the compute stream. `inline` [n]: is on
    that stream, whose tasks run in order. A call runs between the end of the last task that it waits for and the start of the
    first task on the compute stream that waits for it; it runs beside the computation between these two.
    """
    n = len(calls)
    task = np.arange(n)
    after = np.where(inline, task, -1)  # for each task: the last one on the compute stream that has ended when it begins
    until = np.where(inline, task, n)  # and the first one that begins only after its end
    call_waits, awaited_calls = ~inline[place], ~inline[awaited]
    back, ahead = (place[call_waits], awaited[call_waits]), (place[awaited_calls], awaited[awaited_calls])
    for _ in range(CHAIN):
        np.maximum.at(after, back[0], after[back[1]])
        np.minimum.at(until, ahead[1], until[ahead[0]])
    computing_before = np.concatenate([[0], np.cumsum(computes)])  # number of computing tasks before each place
    return np.flatnonzero(calls & ~inline & (computing_before[until] > computing_before[after + 1]))
