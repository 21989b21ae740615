"""The closure check: four ways to time a layer must agree, or none of them is used.

    kernels + gaps  =  sub-modules + time between them  =  layer  =  (step - embedding - final norm - head) / layers

Each measurement is compared with plain passes of the same stack that alternate with it, so that a machine that becomes faster or
slower does not fail the check.

Whether two ways to run the same thing compute the same: its outputs beside those of the other way, from the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from windtunnel.base.dataclasses import dataclass

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


AGREES = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 4e-2, "fp16": 1e-2, "fp8": 0.2}
"""Difference allowed, as a share of the largest expected number: sums in another order, and rounding in another place."""


@dataclass(frozen=True)
class Agreement:
    """`what` was compared with (empty: nothing), the largest `error` as a share of the largest number, and in words how it
    `differs` where that is above the tolerance."""

    what: str = ""
    error: float | None = None
    differs: str = ""


def agreement(what: str, ours: object, theirs: object, dtype: str) -> Agreement:
    """The outputs of `theirs`, the way that is trusted, beside those of `ours`; tensors alone and in nested lists count.

    Another number of tensors, another shape, and a number that is not finite where the other's is, differ.
    """
    largest = 0.0
    pairs = list(zip(tensors_of(ours), tensors_of(theirs), strict=False))
    if not pairs:
        return Agreement()
    if len(list(tensors_of(ours))) != len(list(tensors_of(theirs))) or any(a.shape != b.shape for a, b in pairs):
        return Agreement(what, 1.0, f"differs from {what}: not the same shapes")
    for mine, expected in pairs:
        a, b = mine.detach().float(), expected.detach().float()
        scale = float(b.abs().max()) or 1.0
        error = float((a - b).abs().max()) / scale
        largest = max(largest, error if error == error else float("inf"))
    finite = min(largest, 1e9)
    allowed = AGREES.get(dtype, AGREES["bf16"])
    return Agreement(what, finite, f"differs from {what} by {finite:.2g} of the largest" if finite > allowed else "")


def tensors_of(value: object) -> Iterator[Any]:
    """The tensors of what a run returns, in order."""
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_of(part)
    elif hasattr(value, "detach"):
        yield value


def run_seeded(torch: Any, make: Callable[[], Callable[[], object]], seed: int = 0) -> object:
    """What a run returns whose operands are drawn from `seed`."""
    torch.manual_seed(seed)
    run = make()
    torch.manual_seed(seed + 1)
    return run()
