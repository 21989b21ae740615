"""The unit of a program's durations: on a grid of powers of two, sums of times are exact (decision 79)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.engine.program import Program

BITS = 51
"""Of a float64's 53: rounding to the grid takes two."""


def finest(program: Program, more: Iterable[tuple[int, int, int]] = ()) -> float:
    """Seconds of the finest grid on which all times of a program are exact; 0 for a program that takes no time.

    `more`: instances `begin` to `end`, and how many times more they are to be counted. At any time something goes on at full rate,
    what is computed or what taxes it, so no time is later than the sum of all durations.
    """
    longer = float(program.scales.max(initial=1.0))
    try:
        each = np.append(0.0, np.cumsum(program.op_seconds * longer + program.op_host))
        totals = np.append(np.diff(each[program.template_start]), 0.0)  # -1, a rendezvous, is the last
        seconds: Floats = totals[program.template] * program.times
        parts = np.append(0.0, np.cumsum(program.part_seconds))[program.part_start]
        seconds[program.template < 0] += program.rv_host + np.diff(parts)
    except (IndexError, TypeError, ValueError):
        return 0.0  # the core says what is wrong with the columns
    total = float(seconds.sum()) + sum(times * float(seconds[begin:end].sum()) for begin, end, times in more)
    return math.ldexp(1.0, math.frexp(total)[1] - BITS) if 0.0 < total < math.inf else 0.0
