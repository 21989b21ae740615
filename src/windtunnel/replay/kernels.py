"""Seconds of computations by windtunnel's own kernels: products by their shapes, the others by the bytes that they move."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.records.trace_graph import TraceGraph
from windtunnel.spec.cluster import GPU
from windtunnel.workload.ops import DTYPES, Kind, Op, Phase

_FORMATS = {1: ("fp8",), 2: ("bf16", "fp16"), 4: ("fp32",)}
"""Number formats of a product by the bytes of an element: the first that the GPU has. fp32 is PyTorch's default."""


_COPIES = ("Memcpy", "Memset", "Copy", "Fill")
"""What the profilers of CUDA and ROCm call copies, which may go to the host: these keep the trace's time."""


def kernel_seconds(graph: TraceGraph, gpu: GPU, rows: Bools) -> tuple[Floats, list[str]]:
    """Seconds [N] of the tasks in `rows` [N] that have a shape or bytes, NaN for the others; and what was assumed."""
    from windtunnel.compute.estimate import estimate  # slow to import
    from windtunnel.spec.load import load_runtime
    from windtunnel.workload.ops import OpTable

    shapes = graph.products if len(graph.products) else np.zeros((len(graph), 5), np.int64)
    formats = {size: name for size, names in _FORMATS.items() for name in reversed(names) if name in gpu.peak}
    product = rows & (shapes[:, :4].min(axis=1) > 0) & np.isin(shapes[:, 4], list(formats))
    copies = np.array([name.startswith(_COPIES) for name in graph.names] or [False])[graph.name]
    moves = rows & ~product & ~copies & (np.nan_to_num(graph.bytes) > 0)
    seconds = np.full(len(graph), np.nan)
    if not (product | moves).any():
        return seconds, ["no computation has a shape or bytes: all take the trace's time"]
    distinct, which = np.unique(shapes[product], axis=0, return_inverse=True)
    sizes, of_size = np.unique(graph.bytes[moves], return_inverse=True)
    ops = [_product(shape, formats[shape[4]]) for shape in distinct.tolist()] + [_copy(size) for size in sizes.tolist()]
    each = estimate(OpTable.of(ops), gpu, load_runtime("megatron-core")).seconds
    seconds[product] = each[: len(distinct)][which.reshape(-1)]
    seconds[moves] = each[len(distinct) :][of_size]
    notes = [f"{int(product.sum()):,} products by their shapes, {int(moves.sum()):,} other kernels by their bytes, on {gpu.name}"]
    if left := int((rows & ~product & ~moves).sum()):
        notes.append(f"{left:,} computations without a shape or bytes take the trace's time")
    return seconds, notes


def _product(shape: list[int], dtype: str) -> Op:
    batch, m, n, k, element = shape
    moved = float(element) * batch * (m * k + k * n + m * n)
    return Op(
        "product", Kind.GEMM, Phase.FORWARD, dtype=DTYPES.index(dtype), batch=batch, m=m, n=n, k=k,
        flops=2.0 * batch * m * n * k, bytes=moved,
    )  # fmt: skip


def _copy(size: float) -> Op:
    return Op("bytes", Kind.ELEMENTWISE, Phase.FORWARD, bytes=size)
