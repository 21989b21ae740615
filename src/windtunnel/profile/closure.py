"""The closure check: four ways to time a layer must agree, or none of them is used.

    kernels + gaps  =  sub-modules + time between them  =  layer  =  (step - embedding - final norm - head) / layers

Each measurement is compared with plain passes of the same stack that alternate with it, so that a machine that becomes faster or
slower does not fail the check.
"""

from __future__ import annotations

from dataclasses import dataclass

TOLERANCE = {"cuda": 0.05, "cpu": 0.25}
"""Tolerance relative to the layer, by device. A CPU's cores are shared, and the profiler adds microseconds per operator."""


@dataclass(frozen=True)
class Way:
    """Seconds of one pass over a stack: measured in this way, and the plain run alternated with it (`layer`)."""

    seconds: float
    layer: float


@dataclass(frozen=True)
class Sides:
    """All ways to time one pass; None for a way that was not used.

    `gaps` belong to `kernels`, less the profiler's overhead on a CPU; `host`: host time to enqueue those plain passes, None
    if host and device are one.
    """

    submodules: Way | None = None
    kernels: Way | None = None
    gaps: float = 0.0
    step: Way | None = None
    host: float | None = None


def ways(sides: Sides, tolerance: float) -> dict[str, float]:
    """Each measurement, relative to the layer.

    A host-bound layer takes the host's time, which the profiler stretches: its kernels then only have to fit in.
    """
    closures = {}
    if sides.kernels is not None:
        starved = sides.host is not None and sides.host >= (1 - tolerance) * sides.kernels.layer
        ours = max(sides.kernels.seconds, sides.host or 0.0) if starved else sides.kernels.seconds + sides.gaps
        closures["kernels + gaps"] = ours / sides.kernels.layer
    if sides.submodules is not None:
        closures["sub-modules"] = sides.submodules.seconds / sides.submodules.layer
    if sides.step is not None:
        closures["step / layers"] = sides.step.seconds / sides.step.layer
    return closures


def gate(sides: Sides, tolerance: float) -> str:
    """Empty if every measurement is within `tolerance` of the layer; else a description of those that are not."""
    return ", ".join(
        f"{name} {ratio:.2f} of the layer" for name, ratio in ways(sides, tolerance).items() if not abs(ratio - 1) <= tolerance
    )


def describe(sides: Sides, tolerance: float) -> str:
    """All measurements in one line."""
    return ", ".join(f"{name} {ratio:.3f}" for name, ratio in ways(sides, tolerance).items())
