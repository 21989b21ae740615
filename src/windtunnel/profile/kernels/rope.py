"""Rotary positions over queries and keys together: n is their width on this GPU. In eager mode several kernels, compiled one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run
from windtunnel.profile.kernels.scope import Scope, shards


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Every shard's heads of queries and keys, at every token count. Read once, written once, in both passes."""
    seen: set[tuple[int, int]] = set()
    for shard in shards(scope):
        heads, size = shard.heads + shard.groups, shard.model.dim_per_head
        if shard.model.position != "rope" or size % 2 or (heads, size) in seen:
            continue
        seen.add((heads, size))
        for tokens in scope.tokens:
            for phase in ("forward", "backward"):
                dtype = scope.wide_dtypes[0]
                yield case(tokens, heads, size, phase, dtype, scope.rank(shard.index, shard.tp, tokens), shard.model.name)


def case(tokens: int, heads: int, size: int, phase: str, dtype: str, rank: float, model: str | None = None) -> KernelCase:
    """`tokens` rows of `heads` heads; k is the head size."""

    def make(bench: Bench) -> Run:
        torch = bench.torch
        x = bench.randn(tokens, heads, size, dtype=dtype)
        angle = bench.randn(tokens, 1, size, dtype="fp32")
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)

        def rotate(x: Any) -> Any:
            left, right = x.chunk(2, dim=-1)
            return x * cos + torch.cat((-right, left), dim=-1) * sin

        return (bench.forward if phase == "forward" else bench.backward)(rotate, x)

    return KernelCase(
        "elementwise",
        "rope",
        phase,
        make,
        dtype,
        model=model,
        m=tokens,
        n=heads * size,
        k=size,
        bytes=2.0 * WIDTH[dtype] * tokens * heads * size,
        rank=rank,
        modes=("compile", "cuda_graph"),
    )
