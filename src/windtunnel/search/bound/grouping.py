"""Rows of plans by the values of their fields."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import WindtunnelError
from windtunnel.search.space import PlanColumns


def group_rows(columns: PlanColumns, rows: Int64s, paths: Sequence[str], members: bool = False) -> list[Int64s]:
    """`rows`, or with `members` the places among them, split by equal values of `paths`."""
    if not len(rows):
        return []
    code = np.zeros(len(rows), np.int64)
    for path in paths:
        code = code * len(columns.values[path]) + columns.codes[path][rows]
    order = np.argsort(code, kind="stable")
    cuts = np.flatnonzero(np.diff(code[order])) + 1
    return np.split(order if members else rows[order], cuts)


def places(numbers: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """The different `numbers` below `count` in order, and the place of each among them."""
    present = np.zeros(count, np.bool_)
    present[numbers] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[numbers]


def count_reason(reasons: dict[str, int], error: WindtunnelError) -> None:
    where = getattr(error, "path", "") or str(error)[:60]
    reasons[where] = reasons.get(where, 0) + 1
