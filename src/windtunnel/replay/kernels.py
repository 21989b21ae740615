"""Seconds of computations by windtunnel's own kernels: products and attention by their shapes, others by the bytes they move."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.records.attention import COLUMNS, shares
from windtunnel.records.trace_graph import TraceGraph
from windtunnel.replay.attention import assumed_of, operator_seconds
from windtunnel.spec.machine.cluster import GPU
from windtunnel.workload.ops import DTYPES, Kind, Op, Phase

_FORMATS = {1: ("fp8",), 2: ("bf16", "fp16"), 4: ("fp32",)}
"""Number formats of a product by the bytes of an element: the first that the GPU has. fp32 is PyTorch's default."""


_COPIES = ("Memcpy", "Memset", "Copy", "Fill")
"""What the profilers of CUDA and ROCm call copies, which may go to the host: these keep the trace's time."""

_ATTENTION = ("attention", "attn", "flash", "fmha", "sdpa")
"""Parts of the names of attention's kernels and operators: without a shape these keep the trace's time, which no bytes tell."""


def kernel_seconds(graph: TraceGraph, gpu: GPU, rows: Bools) -> tuple[Floats, list[str]]:
    """Seconds [N] of the tasks in `rows` [N] that have a shape or bytes, NaN for the others; and what was assumed."""
    seconds = np.full(len(graph), np.nan)
    formats = _formats(gpu)
    wide = {size: name for size, name in formats.items() if size > 1}  # attention of 8 bits has no kernel here
    fused = graph.attentions[rows[graph.attentions[:, 0]] & np.isin(graph.attentions[:, COLUMNS.index("element")], list(wide))]
    attention = np.zeros(len(graph), np.bool_)
    attention[fused[:, 0]] = True
    shapes = graph.products if len(graph.products) else np.zeros((len(graph), 5), np.int64)
    product = rows & ~attention & (shapes[:, :4].min(axis=1) > 0) & np.isin(shapes[:, 4], list(formats))
    left = rows & ~product & ~attention
    copies, named = (
        left & _tasks_named(graph, _COPIES, start=True),
        left & _tasks_named(graph, _ATTENTION) & np.isfinite(graph.seconds),
    )
    moves = left & ~copies & ~named & (np.nan_to_num(graph.bytes) > 0)
    if not (product | attention | moves).any():
        return seconds, ["no computation has a shape or bytes: all take the trace's time"]
    seconds[product] = _products(shapes[product], gpu, formats)
    seconds[fused[:, 0]] = operator_seconds(fused, gpu, wide) * shares(fused, graph.seconds)
    seconds[moves] = _by_bytes(graph.bytes[moves], gpu)
    operators = len(np.unique(fused[:, 1]))
    shaped = f"{int(product.sum()):,} products and {operators:,} attention operators ({len(fused):,} kernels)"
    notes = [f"by their shapes: {shaped}; by their bytes: {int(moves.sum()):,} other kernels; on {gpu.name}", *assumed_of(fused)]
    rest = left & ~copies & ~named & ~moves
    kept = [(int(which.sum()), what) for which, what in ((named, "of attention"), (copies, "copies"), (rest, "others"))]
    if any(count for count, _ in kept):
        listed = ", ".join(f"{count:,} {what}" for count, what in kept if count)
        notes.append(f"at the trace's time, without a shape or bytes that tell theirs: {listed}")
    return seconds, notes


def _tasks_named(graph: TraceGraph, parts: tuple[str, ...], start: bool = False) -> Bools:
    """[N] the tasks whose name has one of the parts in it, or begins with it."""
    hits = [name.startswith(parts) if start else any(part in name.lower() for part in parts) for name in graph.names]
    return np.array(hits or [False])[graph.name]


def _formats(gpu: GPU) -> dict[int, str]:
    """The number format that products of so many bytes an element have on a GPU."""
    return {size: name for size, names in _FORMATS.items() for name in reversed(names) if name in gpu.peak}


def _products(shapes: Int64s, gpu: GPU, formats: dict[int, str]) -> Floats:
    """Seconds of products [P, 5]."""
    distinct, which = np.unique(shapes, axis=0, return_inverse=True)
    return _estimate_seconds([_product(shape, formats[shape[4]]) for shape in distinct.tolist()], gpu)[which.reshape(-1)]


def _by_bytes(sizes: Floats, gpu: GPU) -> Floats:
    distinct, which = np.unique(sizes, return_inverse=True)
    ops = [Op("bytes", Kind.ELEMENTWISE, Phase.FORWARD, bytes=size) for size in distinct.tolist()]
    return _estimate_seconds(ops, gpu)[which.reshape(-1)]


def _estimate_seconds(ops: list[Op], gpu: GPU) -> Floats:
    from windtunnel.compute.estimate import estimate  # slow to import
    from windtunnel.spec.loading.load import load_runtime
    from windtunnel.workload.ops import OpTable

    return estimate(OpTable.of(ops), gpu, load_runtime("megatron-core")).seconds


def _product(shape: list[int], dtype: str) -> Op:
    batch, m, n, k, element = shape
    moved = float(element) * batch * (m * k + k * n + m * n)
    return Op(
        "product", Kind.GEMM, Phase.FORWARD, dtype=DTYPES.index(dtype), batch=batch, m=m, n=n, k=k,
        flops=2.0 * batch * m * n * k, bytes=moved,
    )  # fmt: skip
