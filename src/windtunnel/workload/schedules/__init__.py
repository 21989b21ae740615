"""Pipeline schedules: the order in which each stage runs the forward and backward passes of its micro batches.

A schedule is a function `(stages, virtual stages, micro batches) -> actions of each stage`; add one file and one line below.
"""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.workload.schedules.action import Action, Pass
from windtunnel.workload.schedules.gpipe import gpipe
from windtunnel.workload.schedules.interleaved import interleaved
from windtunnel.workload.schedules.one_f_one_b import one_f_one_b

Schedule = Callable[[int, int, int], tuple[tuple[Action, ...], ...]]

SCHEDULES: dict[str, Schedule] = {"gpipe": gpipe, "1f1b": one_f_one_b, "interleaved": interleaved}

__all__ = ["SCHEDULES", "Action", "Pass", "Schedule", "gpipe", "interleaved", "one_f_one_b"]
