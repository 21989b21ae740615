"""Table look-up and its gradient: m tokens, n columns, k rows of the table on this GPU. The gradient is a whole table."""

from __future__ import annotations

from collections.abc import Iterator

from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run
from windtunnel.profile.kernels.scope import Scope, shards


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Every shard's padded vocabulary and hidden width."""
    seen: set[tuple[int, int]] = set()
    dtype = scope.wide_dtypes[0]
    for shard in shards(scope):
        size = (shard.vocab, shard.model.hidden)
        if size in seen:
            continue
        seen.add(size)
        for tokens in scope.tokens:
            for phase in ("forward", "backward"):
                yield case(tokens, *size, phase, dtype, scope.rank(shard.index, shard.tp, tokens), shard.model.name)


def case(m: int, rows: int, n: int, phase: str, dtype: str, rank: float, model: str | None = None) -> KernelCase:
    """Forward reads and writes m x n; backward reads m x n and writes the table's gradient."""

    def make(bench: Bench) -> Run:
        table, index = bench.randn(rows, n, dtype=dtype), bench.integers(rows, m)
        look_up = bench.torch.nn.functional.embedding
        return (bench.forward if phase == "forward" else bench.backward)(lambda weight: look_up(index, weight), table)

    moved = 2 * m * n if phase == "forward" else m * n + rows * n
    return KernelCase(
        "embedding", "embedding", phase, make, dtype, model=model, m=m, n=n, k=rows, bytes=float(WIDTH[dtype] * moved), rank=rank
    )
