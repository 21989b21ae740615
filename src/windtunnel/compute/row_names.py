"""What the rows of measured kernels call operations and phases, as the estimator knows them."""

from __future__ import annotations

from windtunnel.workload.ops import Kind, Phase

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
