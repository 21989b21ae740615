"""Whether two ways to run the same thing compute the same: its outputs beside those of the other way, from the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 4e-2, "fp16": 1e-2, "fp8": 0.2}
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
    allowed = TOLERANCE.get(dtype, TOLERANCE["bf16"])
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
