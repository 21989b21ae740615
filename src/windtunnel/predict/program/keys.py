"""Keys by which ranks of a program meet at a transfer: which range of numbers is whose.

< 0                 all-reduces that stages of one pipeline, or all ranks, meet for
0 .. 2^48           pipeline transfers, 2^32 for each group of equal replicas
2^48 .. 2^52        calls over a network engine that no other stage takes part in
2^52 ..             calls that groups of unequal replicas meet for
"""

from __future__ import annotations

from typing import TypeVar

from windtunnel.base.arrays import Int64s
from windtunnel.predict.category import Task

T = TypeVar("T", int, Int64s)

OF_GROUP = 1 << 32
"""Keys that one group of equal replicas has for its pipeline."""
ENGINE_CALLS = 1 << 48
GROUP_CALLS = 1 << 52


def transfer(boundary: T, gradient: T, micro_batch: T, micro_batches: int, group: int) -> T:
    """Of an activation (`gradient` 0) or a gradient (1) over a boundary between two parts of the model."""
    return (boundary * 2 + gradient) * micro_batches + micro_batch + group * OF_GROUP


def stages(task: Task, group: int) -> int:
    """Of an all-reduce that the stages of a pipeline meet for."""
    return -1 - task - group * OF_GROUP


def everyone(task: Task) -> int:
    """Of an all-reduce that all ranks meet for."""
    return -1 - task


def twins(stage: int, other: int, group: int) -> int:
    """Of two stages that hold copies of the same parameters."""
    return -1 - len(Task) - min(stage, other) - group * OF_GROUP
