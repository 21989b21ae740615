"""Where the ranks of a program repeat, and whether a run of it is steady there (docs/decisions/0058-folded-steady-state.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Bools, Int32s, Int64s
from windtunnel.engine import _core
from windtunnel.engine.program import Program
from windtunnel.engine.timeline import Timeline

_INSTANCES = ("rank_start", "template", "times", "flags")
_MEETINGS = (
    *("wait_start", "waits", "rv_stream", "rv_host", "rv_cat_wait", "rv_cat_transfer"),
    *("part_start", "part_key", "part_seconds", "part_participants"),
)


def find_periods(program: Program, passes: Bools, kind: Int32s, number: Int32s, step: int) -> Int64s:
    """[R, 3] of each rank: the first and last instance + 1 around its middle pass that repeat, and after how many; 0: none do.

    An instance repeats another one if it is the same so many instances later, for number + `step`, waits for those that repeat the
    other's, and meets at the key that follows. By instance [I]: `passes`: whether it is a pass; `kind`: instances of two kinds are
    not alike; `number`: its micro batch, or -1.
    """
    columns = {name: getattr(program, name) for name in (*_INSTANCES, *_MEETINGS)}
    return _core.find_periods(**columns, passes=passes.view(np.uint8), kind=kind, number=number, step=step)


def find_steady(
    program: Program, timeline: Timeline, periods: Int64s, together: Sequence[int], tolerance: float
) -> tuple[int, float] | None:
    """How many of `periods` [R, 3] repeat together at their end, and their seconds; None if they are not steady there.

    The outcomes of `timeline` are named. `together`: numbers that are tried, in this order; `tolerance`: largest difference of
    two times that are the same, as a share of the makespan.
    """
    columns = {name: getattr(program, name) for name in ("template_start", "op_sync", *_INSTANCES)}
    times = {name: getattr(timeline, name) for name in ("begin", "end", "transfer_begin", "host_begin", "outcome")}
    return _core.find_steady(
        **columns, **times, periods=periods.ravel(), makespan=timeline.makespan,
        together=np.array(together, np.int64), tolerance=tolerance,
    )  # fmt: skip
