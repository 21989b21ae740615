"""Keys of the meetings of a program: ranks with the same key meet at a transfer or a collective.

Ranges of keys:

    < 0                 all-reduces between stages of one pipeline, or of all ranks
    0 .. 2^48           pipeline transfers, 2^32 for each group of equal replicas
    2^48 .. 2^52        calls over a network engine that no other stage takes part in
    2^52 .. 2^56        calls between groups of unequal replicas
    2^56 ..             calls inside passes over a network engine, of which each key stands for many runs
"""

from __future__ import annotations

from typing import TypeVar

from windtunnel.base.arrays import Int64s
from windtunnel.predict.category import Task

T = TypeVar("T", int, Int64s)

OF_GROUP = 1 << 32
"""Number of keys for the pipeline of one group of equal replicas."""
ENGINE_CALLS = 1 << 48
GROUP_CALLS = 1 << 52
LIVE_CALLS = 1 << 56


def transfer(boundary: T, gradient: T, micro_batch: T, micro_batches: int, group: int) -> T:
    """Key of the transfer of an activation (`gradient` 0) or a gradient (1) over a boundary between two parts of the model."""
    return (boundary * 2 + gradient) * micro_batches + micro_batch + group * OF_GROUP


def stages(task: Task, group: int) -> int:
    """Key of an all-reduce between the stages of a pipeline."""
    return -1 - task - group * OF_GROUP


def everyone(task: Task) -> int:
    """Key of an all-reduce of all ranks."""
    return -1 - task


def twins(stage: int, other: int, group: int) -> int:
    """Key of the all-reduce of two stages that hold copies of the same parameters."""
    return -1 - len(Task) - min(stage, other) - group * OF_GROUP
