"""Pipeline schedules: the order in which each stage runs the forward and backward passes of its micro batches.

A schedule is a function `(stages, virtual stages, micro batches) -> actions of each stage`; add one and its line below.
`spec.shapes` states its requirements on the plan, and where its virtual stages sit.
"""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.workload.schedules.action import Action, Order, Pass, StagePasses, table
from windtunnel.workload.schedules.dualpipe import dualpipe, dualpipev
from windtunnel.workload.schedules.in_phases import breadth_first, gpipe
from windtunnel.workload.schedules.interleaved import interleaved_order, one_f_one_b, overlapped_order
from windtunnel.workload.schedules.steady import fewer_micro_batches, micro_batches_of_period
from windtunnel.workload.schedules.zbv import zbv
from windtunnel.workload.schedules.zero_bubble import interleaved_zb, zb_h1, zb_h2

Schedule = Callable[[int, int, int], tuple[Order, ...]]

SCHEDULES: dict[str, Schedule] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved_order,
    "breadth-first": breadth_first,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
    "interleaved-zb": interleaved_zb,
    "zbv": zbv,
    "dualpipe": dualpipe,
    "dualpipev": dualpipev,
}

__all__ = [
    "SCHEDULES",
    "Action",
    "Order",
    "Pass",
    "StagePasses",
    "Schedule",
    "fewer_micro_batches",
    "micro_batches_of_period",
    "overlapped_order",
    "table",
]
