"""Sums over the hidden width: the residual add, and a 16-bit gradient added to its fp32 total."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run
from windtunnel.profile.kernels.pointwise import PointwiseKernel, rows_of
from windtunnel.profile.kernels.scope import Scope

SIZES = (2**24, 2**26, 2**28)
"""Elements of one weight gradient."""


def cases(scope: Scope) -> Iterator[KernelCase]:
    """The add at every model's hidden width (its gradient needs no kernel), the accumulation at powers of two."""
    widths: dict[int, tuple[float, str | None]] = {}
    for index, model in enumerate(scope.models):
        widths.setdefault(model.hidden, (float(index), model.name))
    yield from rows_of(scope, (PointwiseKernel("elementwise", "residual_add", add, (1, 1), (3, 0)),), widths)
    for at, size in enumerate(SIZES if scope.variants else SIZES[:1]):
        for dtype in scope.wide_dtypes:
            yield accumulation(size, dtype, scope.rank(dtype=dtype, more=0.5 + at))


def add(torch: Any) -> Callable[..., Any]:
    return lambda x, residual: x + residual


def accumulation(n: int, dtype: str, rank: float) -> KernelCase:
    """total += gradient, n elements."""

    def make(bench: Bench) -> Run:
        total, gradient = bench.randn(n, dtype="fp32"), bench.randn(n, dtype=dtype)
        return lambda: total.add_(gradient)

    return KernelCase(
        "elementwise",
        "grad_accumulate",
        "wgrad",
        make,
        dtype,
        "fp32",
        n=n,
        accumulate=True,
        bytes=float(n * (WIDTH[dtype] + 8)),
        rank=rank,
    )
