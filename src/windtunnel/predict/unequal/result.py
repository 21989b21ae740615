"""What is told of unequal ranks. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Class:
    """Equal replicas. Per pipeline stage: `gpus` (names; several where ranks of one group differ), `slow` (time of a kernel over
    that of a good GPU), `computing_s`, `waiting_s` (for slower ranks at calls between replicas), `bubble_s` (in the pipeline),
    `fits`. `breakdown` is that of the stage that sets the group's pace and adds up to the step.
    """

    name: str
    replicas: tuple[int, ...]
    micro_batches: int
    gpus: tuple[str, ...]
    slow: tuple[float, ...]
    computing_s: tuple[float, ...]
    waiting_s: tuple[float, ...]
    bubble_s: tuple[float, ...]
    breakdown: dict[str, float]


@dataclass(frozen=True)
class Unequally:
    """A step of unequal ranks beside one of equal ones.

    `equal_step_time_s`: were all ranks as the job's cluster has them, without pauses and chance. `culprit` says in words who is
    waited for. `steps`: (share of all steps, seconds) of each step that was drawn; classes, timeline, critical path and kernels are
    those of the step nearest to the mean. `class_of_replica` [dp] indexes `classes`: with their numbers by stage, the map of who
    waits.
    """

    equal_step_time_s: float
    culprit: str
    classes: tuple[Class, ...]
    class_of_replica: tuple[int, ...]
    steps: tuple[tuple[float, float], ...]

    @property
    def slowest(self) -> float:
        """Seconds of the longest step that was drawn."""
        return max(seconds for _, seconds in self.steps)
