"""Shared by kernels that only move bytes: a function over rows, its passes, and the measured sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run
from windtunnel.profile.kernels.scope import Scope


class PointwiseKernel(NamedTuple):
    """`build(torch)` gives the function; `inputs` the columns of each of its tensors, in units of n (0: a vector of n).

    `moved`: how often m x n elements must cross memory, forward and backward (0: no backward kernel).
    """

    op: str
    name: str
    build: Callable[[Any], Callable[..., Any]]
    inputs: tuple[int, ...]
    moved: tuple[float, float]
    more: float = 0.0


def rows_of(scope: Scope, kernels: Sequence[PointwiseKernel], columns: dict[int, tuple[float, str | None]]) -> Iterator[KernelCase]:
    """Cases of `kernels` for every token count and each of `columns` (width -> cost of the rank, model)."""
    for kernel in kernels:
        for n, (cost, model) in columns.items():
            for tokens in scope.tokens:
                for dtype in scope.wide_dtypes:
                    for phase, times in zip(("forward", "backward"), kernel.moved, strict=True):
                        if times:
                            rank = scope.rank(tokens=tokens, dtype=dtype, more=cost + kernel.more)
                            yield one(kernel, phase, tokens, n, dtype, times * WIDTH[dtype] * tokens * n, rank, model)


def one(
    kernel: PointwiseKernel, phase: str, m: int, n: int, dtype: str, moved: float, rank: float, model: str | None = None
) -> KernelCase:
    """`kernel` over m rows of n columns."""

    def make(bench: Bench) -> Run:
        tensors = [bench.randn(m, times * n, dtype=dtype) if times else bench.randn(n, dtype=dtype) for times in kernel.inputs]
        return (bench.forward if phase == "forward" else bench.backward)(kernel.build(bench.torch), *tensors)

    return KernelCase(
        kernel.op,
        kernel.name,
        phase,
        make,
        dtype,
        library="aten",
        model=model,
        m=m,
        n=n,
        bytes=moved,
        rank=rank,
        modes=("compile", "cuda_graph"),
    )
