"""What the rows of measured kernels call operations and phases, as the estimator knows them; and how reports describe a row of an
operator table."""

from __future__ import annotations

from windtunnel.base.units import show_size
from windtunnel.workload.ops import DTYPES, Kind, OpTable, Phase

KINDS = {
    "gemm": Kind.GEMM,
    "grouped_gemm": Kind.GROUPED_GEMM,
    "attention": Kind.ATTENTION,
    "norm": Kind.NORM,
    "elementwise": Kind.ELEMENTWISE,
    "softmax": Kind.SOFTMAX,
    "cross_entropy": Kind.CROSS_ENTROPY,
    "embedding": Kind.EMBEDDING,
    "permute": Kind.COPY,
    "optimizer": Kind.OPTIMIZER,
    "copy": Kind.COPY,
    "reduce": Kind.REDUCE,
}
PHASES = {
    "forward": Phase.FORWARD,
    "recompute": Phase.RECOMPUTE,
    "backward": Phase.DGRAD,
    "dgrad": Phase.DGRAD,
    "wgrad": Phase.WGRAD,
    "optimizer": Phase.OPTIMIZER,
}


def describe(ops: OpTable, row: int) -> str:
    """Shape of row `row`: `4096x12288x4096 bf16` (m, n, k), `64 heads 2048x2048 hd128 bf16`, `16 MiB` or rows x columns."""
    kind = Kind(int(ops.kind[row]))
    batch, m, n, k = (int(x[row]) for x in (ops.batch, ops.m, ops.n, ops.k))
    dtype = DTYPES[int(ops.dtype[row])]
    times = f" x{int(ops.launches[row])}" if int(ops.launches[row]) > 1 else ""
    if kind in (Kind.GEMM, Kind.GROUPED_GEMM):
        return (f"{batch} of " if batch > 1 else "") + f"{m}x{n}x{k} {dtype}{times}"
    if kind in (Kind.ATTENTION, Kind.ATTENTION_BACKWARD):
        return f"{batch} heads {m}x{n} hd{k} {dtype}{times}"
    if kind is Kind.SCAN:
        return f"{batch} heads {m} tokens, {n}x{k} states {dtype}{times}"
    size = show_size(float(ops.bytes[row]))
    if kind is Kind.OPTIMIZER:
        return f"{n} parameters, {size}{times}"
    return f"{m}x{n} {dtype}, {size}{times}" if m and n else f"{size}{times}"
