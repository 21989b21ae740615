"""Measured times in a terminal."""

from __future__ import annotations


def signed_seconds(value: float) -> str:
    """A difference of two times, with its sign."""
    return ("+" if value >= 0 else "-") + seconds(abs(value))


def seconds(value: float) -> str:
    """A time with four digits and its unit; - for NaN."""
    if value != value:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value * 1e6:.4g} µs" if value else "0"
