"""How many micro batches each virtual stage holds at the fullest moment of a schedule."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.workload.schedules import SCHEDULES, Pass, overlapped_order, table

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
