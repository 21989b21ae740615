"""Softmax of unfused attention (m = heads x queries, n = keys), and a router's top experts of each token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run
from windtunnel.profile.kernels.grouped_gemm import LAYERS
from windtunnel.profile.kernels.pointwise import PointwiseKernel, one
from windtunnel.profile.kernels.scope import Scope

HEADS = (8, 32)
LONGEST = 8192


def softmax(torch: Any) -> Callable[..., Any]:
    return lambda x: torch.softmax(x, dim=-1)


KERNEL = PointwiseKernel("softmax", "softmax", softmax, (1,), (2, 3))


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Scores of 8 and 32 heads over the scope's sequences up to 8192; routers of known expert layers."""
    for at, heads in enumerate(HEADS if scope.variants else HEADS[:1]):
        for seq in (s for s in scope.sequences if s <= LONGEST):
            for dtype in scope.wide_dtypes:
                for phase, times in zip(("forward", "backward"), KERNEL.moved, strict=True):
                    moved = times * WIDTH[dtype] * heads * seq * seq
                    rank = scope.rank(tokens=seq, dtype=dtype, more=1.0 + 1.5 * at)
                    yield one(KERNEL, phase, heads * seq, seq, dtype, moved, rank)
    for at, layer in enumerate(LAYERS):
        for tokens in scope.tokens[:3]:
            yield router(tokens, layer.experts, layer.top_k, scope.rank(tokens=tokens, more=1.0 + at), layer.name)


def router(tokens: int, experts: int, top_k: int, rank: float, model: str | None = None) -> KernelCase:
    """Probabilities in fp32 and the `top_k` best of each token; k is top_k."""

    def make(bench: Bench) -> Run:
        torch = bench.torch
        logits = bench.randn(tokens, experts, dtype="fp32")
        return bench.forward(lambda x: torch.topk(torch.softmax(x, dim=-1), top_k, dim=-1), logits)

    return KernelCase(
        "softmax",
        "router_topk",
        "forward",
        make,
        "fp32",
        model=model,
        m=tokens,
        n=experts,
        k=top_k,
        bytes=4.0 * tokens * (experts + 3 * top_k),
        rank=rank,
        modes=("compile", "cuda_graph"),
    )
