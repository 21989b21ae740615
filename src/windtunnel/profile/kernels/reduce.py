"""The gradient's norm and its clipping over n elements in `batch` tensors, and a plain sum."""

from __future__ import annotations

from collections.abc import Iterator

from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run
from windtunnel.profile.kernels.scope import Scope

SIZES = ((2**28, 64), (2**26, 64), (2**24, 16), (2**22, 16))
"""Elements, tensors."""

WAYS = {"grad_norm": ("reduce", 1), "grad_clip": ("elementwise", 2), "sum": ("reduce", 1)}
"""Name -> (op, how often each element crosses memory)."""


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Every way at every size, fp32 and the 16-bit format."""
    for at, (n, count) in enumerate(SIZES if scope.variants else SIZES[2:]):
        for name in WAYS:
            for dtype in dict.fromkeys(("fp32", scope.wide_dtypes[0])):
                yield case(name, n, count, dtype, scope.rank(dtype=dtype, more=0.7 * at + 0.5))


def case(name: str, n: int, count: int, dtype: str, rank: float) -> KernelCase:
    """n elements in `count` equal tensors."""
    op, times = WAYS[name]

    def make(bench: Bench) -> Run:
        torch = bench.torch
        parts = list(bench.randn(n, dtype=dtype).chunk(count))
        if name == "grad_norm":
            return lambda: torch.linalg.vector_norm(torch.stack(torch._foreach_norm(parts)))
        if name == "grad_clip":
            return lambda: torch._foreach_mul_(parts, 0.999)
        return lambda: parts[0].sum() if count == 1 else [part.sum() for part in parts]

    return KernelCase(
        op,
        name,
        "optimizer",
        make,
        dtype,
        batch=count,
        n=n,
        bytes=float(times * WIDTH[dtype] * n),
        rank=rank,
        modes=("cuda_graph",) if name != "grad_norm" else (),
    )
