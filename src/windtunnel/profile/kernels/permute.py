"""Tokens to the order of their experts and back: m tokens, n columns, batch = experts of each token.

Permuting reads the tokens and writes `batch` copies; its gradient, and going back, read the copies and write their (weighted) sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run
from windtunnel.profile.kernels.grouped_gemm import LAYERS
from windtunnel.profile.kernels.scope import Scope


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Known expert layers at every token count."""
    dtype = scope.wide_dtypes[0]
    for at, layer in enumerate(LAYERS):
        for tokens in scope.tokens:
            for name in ("moe_permute", "moe_unpermute"):
                for phase in ("forward", "backward"):
                    yield case(name, tokens, layer.hidden, layer.top_k, phase, dtype, scope.rank(at, 1, tokens), layer.name)


def case(name: str, m: int, n: int, top_k: int, phase: str, dtype: str, rank: float, model: str | None = None) -> KernelCase:
    """One direction, one pass."""

    def make(bench: Bench) -> Run:
        torch = bench.torch
        order = torch.randperm(m * top_k, device=bench.device.place)
        token = order // top_k
        if name == "moe_permute":
            tensors: list[Any] = [bench.randn(m, n, dtype=dtype)]

            def function(*given: Any) -> Any:
                return given[0].index_select(0, token)
        else:
            back = torch.argsort(order)
            tensors = [bench.randn(m * top_k, n, dtype=dtype), bench.randn(m, top_k, 1, dtype=dtype)]

            def function(*given: Any) -> Any:
                return (given[0].index_select(0, back).view(m, top_k, n) * given[1]).sum(1)

        return (bench.forward if phase == "forward" else bench.backward)(function, *tensors)

    return KernelCase(
        "permute",
        name,
        phase,
        make,
        dtype,
        model=model,
        batch=top_k,
        m=m,
        n=n,
        bytes=float(WIDTH[dtype] * (1 + top_k) * m * n),
        rank=rank,
        modes=("compile", "cuda_graph"),
    )
