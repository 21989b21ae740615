"""Products of a mixture of experts: one launch over all experts, and a loop over them. Tokens are spread evenly.

A row is batch = experts on this GPU x (m,k)@(k,n), m = rows of one expert (of a weight gradient: k).

Expert layers whose shapes are measured; the catalogue's models are dense.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run, Unavailable
from windtunnel.profile.kernels.scope import Scope

FASHIONS = {"grouped_mm": 0.0, "expert_loop": 1.5}
"""How experts are run -> cost of the rank."""


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Up and down projections of known expert layers, cut over expert parallelism 1 to 64."""
    for at, shape in enumerate(LAYERS):
        for cut, ep in enumerate(shape.ep):
            for tokens in scope.tokens[:4]:
                for fashion, more in FASHIONS.items():
                    rank = scope.rank(tokens=tokens, more=1.0 * at + 0.8 * cut + more)
                    yield from layer(scope, shape, ep, tokens, fashion, rank)


def layer(scope: Scope, shape: ExpertShapes, ep: int, tokens: int, fashion: str, rank: float) -> Iterator[KernelCase]:
    """Both projections of an expert layer cut over `ep` ranks that hold `tokens` each, all passes."""
    experts = shape.experts // ep
    rows = max(1, tokens * shape.top_k // experts)  # the tokens of ep ranks, of which each holds 1/ep of the experts
    dtype = scope.wide_dtypes[0]
    up = (2 if shape.gated else 1) * shape.ffn
    for name, n, k in ((f"{fashion}_up", up, shape.hidden), (f"{fashion}_down", shape.hidden, shape.ffn)):
        for phase, (m, columns, inner) in {"forward": (rows, n, k), "dgrad": (rows, k, n), "wgrad": (n, k, rows)}.items():
            width = WIDTH[dtype]

            def make(bench: Bench, shape: tuple[int, int, int] = (m, columns, inner), phase: str = phase) -> Run:
                return (_grouped_run if fashion == "grouped_mm" else _loop)(bench, experts, *shape, dtype, phase)

            yield KernelCase(
                "grouped_gemm",
                name,
                phase,
                make,
                dtype,
                library="cutlass" if fashion == "grouped_mm" else "aten",
                model=shape.name,
                batch=experts,
                m=m,
                n=columns,
                k=inner,
                accumulate=False,
                flops=2.0 * experts * m * columns * inner,
                bytes=float(width * experts * (m * inner + inner * columns + m * columns)),
                rank=rank,
            )


def _grouped_run(bench: Bench, experts: int, m: int, n: int, k: int, dtype: str, phase: str) -> Run:
    torch = bench.torch
    if not hasattr(torch, "_grouped_mm"):
        raise Unavailable("torch._grouped_mm")
    each = k if phase == "wgrad" else m
    offsets = torch.arange(1, experts + 1, dtype=torch.int32, device=bench.device.place) * each
    if phase == "wgrad":  # (n_out, tokens) @ (tokens, n_in), one product an expert
        a, b = bench.randn(experts * k, m, dtype=dtype).t(), bench.randn(experts * k, n, dtype=dtype)
    else:
        a = bench.randn(experts * m, k, dtype=dtype)
        forward = phase == "forward"
        b = bench.randn(experts, n, k, dtype=dtype).transpose(1, 2) if forward else bench.randn(experts, k, n, dtype=dtype)
    try:
        torch._grouped_mm(a, b, offs=offsets)
    except RuntimeError as error:
        if bench.device.out_of_memory(error):
            raise
        raise Unavailable(f"torch._grouped_mm in {dtype}") from error
    return lambda: torch._grouped_mm(a, b, offs=offsets)


def _loop(bench: Bench, experts: int, m: int, n: int, k: int, dtype: str, phase: str) -> Run:
    torch = bench.torch
    pairs = []
    for _ in range(experts):
        a = bench.randn(k, m, dtype=dtype).t() if phase == "wgrad" else bench.randn(m, k, dtype=dtype)
        b = bench.randn(n, k, dtype=dtype).t() if phase == "forward" else bench.randn(k, n, dtype=dtype)
        pairs.append((a, b))
    return lambda: [torch.mm(a, b) for a, b in pairs]


class ExpertShapes(NamedTuple):
    """`ffn`: inner width of one expert, gated or not; `ep`: cuts over expert parallelism, the most used first. Source: config.json
    of the released weights."""

    name: str
    hidden: int
    ffn: int
    experts: int
    top_k: int
    ep: tuple[int, ...]
    gated: bool = True


LAYERS = (
    ExpertShapes("mixtral-8x7b", 4096, 14336, 8, 2, (8, 1)),
    ExpertShapes("deepseek-v3", 7168, 2048, 256, 8, (64, 8)),
    ExpertShapes("qwen3-30b-a3b", 2048, 768, 128, 8, (8, 1)),
    ExpertShapes("mixtral-8x22b", 6144, 16384, 8, 2, (8,)),
    ExpertShapes("deepseek-v2-lite", 2048, 1408, 64, 6, (8, 1)),
)
