"""Measured times in a terminal."""

from __future__ import annotations

_NO_TIME = 0.5e-9
"""Seconds below which a difference is the rounding of sums: clocks of traces count nanoseconds."""


def signed_seconds(value: float) -> str:
    """A difference of two times, with its sign."""
    return ("-" if value <= -_NO_TIME else "+") + seconds(abs(value))


def seconds(value: float) -> str:
    """A time with four digits and its unit; 0 below half a nanosecond, - for NaN."""
    if value != value:
        return "-"
    if abs(value) < _NO_TIME:
        return "0"
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value * 1e6:.4g} µs"
