"""The closure gate: four ways to time a layer must agree, or none of them is used.

    kernels + gaps  =  sub-modules + what lies between them  =  layer  =  step ÷ layers

Each side is its own run: the layer is the slope over the series of stacks, timed without anything inside; sub-modules by hooks;
kernels by the profiler; the step with embedding, final norm and head taken off.
"""

from __future__ import annotations

from dataclasses import dataclass

TOLERANCE = {"cuda": 0.05, "cpu": 0.25}
"""Relative to the layer, by device. A CPU shares its cores with others, and the profiler costs it microseconds an operator."""


@dataclass(frozen=True)
class Sides:
    """Seconds a layer takes in one pass, by each way; None where that way was not taken.

    `host`: time the host needs to enqueue a layer, None where host and device are one.
    """

    layer: float
    submodules: float | None = None
    kernels: float | None = None
    gaps: float = 0.0
    step: float | None = None
    host: float | None = None


def ways(sides: Sides, tolerance: float) -> dict[str, float]:
    """Each way that was taken, relative to the layer.

    A layer that the host is too slow to feed takes the host's time, which the profiler stretches: its kernels then only have to
    fit in.
    """
    found = {}
    if sides.kernels is not None:
        starved = sides.host is not None and sides.host >= (1 - tolerance) * sides.layer
        whole = max(sides.kernels, sides.host or 0.0) if starved else sides.kernels + sides.gaps
        found["kernels + gaps"] = whole / sides.layer
    if sides.submodules is not None:
        found["sub-modules"] = sides.submodules / sides.layer
    if sides.step is not None:
        found["step / layers"] = sides.step / sides.layer
    return found


def gate(sides: Sides, tolerance: float) -> str:
    """Empty if every way is within `tolerance` of the layer; else those that are not, in words."""
    if sides.layer <= 0:
        return f"one more layer takes {sides.layer:.3g} s"
    return ", ".join(f"{name} {ratio:.2f} of the layer" for name, ratio in ways(sides, tolerance).items()
                     if not abs(ratio - 1) <= tolerance)


def describe(sides: Sides, tolerance: float) -> str:
    """All ways in one line."""
    if sides.layer <= 0:
        return ""
    return ", ".join(f"{name} {ratio:.3f}" for name, ratio in ways(sides, tolerance).items())
