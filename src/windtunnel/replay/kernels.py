"""Seconds of computations by windtunnel's own kernels: products and attention by their shapes, others by the bytes they move.

Seconds of fused attention of known shape by windtunnel's attention kernels.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.records.trace_graph import CAUSAL_NOT_RECORDED, COLUMNS, LIBRARIES, AttentionShape, TraceGraph, shares
from windtunnel.spec.machine import GPU
from windtunnel.workload.blocks.core import visible
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable, Phase

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
    if tuned := int((moves & _tasks_named(graph, ("triton::",), start=True)).sum()):
        notes.append(f"{tuned:,} Triton kernels by the bytes of their arrays, each once: half to twice that time, assumed")
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


SHAPE = COLUMNS.index(AttentionShape._fields[0])
"""First column of the shape in `TraceGraph.attentions`."""


def operator_seconds(attentions: Int64s, gpu: GPU, formats: Mapping[int, str]) -> Floats:
    """[A] seconds of the whole operator that each row of `TraceGraph.attentions` belongs to; `formats`: number formats by bytes.

    Each library's operators take the curve of that library, if the GPU has one.
    """
    from windtunnel.compute.estimate import estimate  # slow to import
    from windtunnel.spec.loading.load import load_runtime

    seconds = np.zeros(len(attentions))
    distinct, which = np.unique(attentions[:, SHAPE:], axis=0, return_inverse=True)
    shapes = [AttentionShape(*row) for row in distinct.tolist()]
    for number, library in enumerate(LIBRARIES):
        mine = [at for at, shape in enumerate(shapes) if shape.library == number]
        if mine:
            runtime = load_runtime("megatron-core").model_copy(update={"attention_library": library})
            ops = [_operator(shapes[at], formats[shapes[at].element]) for at in mine]
            each = np.zeros(len(shapes))
            each[mine] = estimate(OpTable.of(ops), gpu, runtime).seconds
            seconds += each[which.reshape(-1)]
    return seconds


def assumed_of(attentions: Int64s) -> list[str]:
    """What was assumed for operators whose inputs leave something open."""
    open_ = attentions[:, COLUMNS.index("causal")] == CAUSAL_NOT_RECORDED
    count = len(np.unique(attentions[open_, COLUMNS.index("operator")]))
    return [f"{count:,} attention operators whose causal flag is not recorded are taken as causal"] if count else []


def _operator(shape: AttentionShape, dtype: str) -> Op:
    """As `workload.blocks.core` writes it: backward has five products for the forward's two, and two small kernels around it."""
    batch, window = shape.sequences * shape.heads, shape.window or None
    if shape.causal and shape.queries != shape.keys:
        seen = shape.keys - (shape.queries - 1) / 2
    else:
        seen = visible(shape.keys, window, bool(shape.causal))
    flops = 4.0 * batch * shape.queries * seen * shape.head
    rows = shape.queries * shape.heads + shape.keys * shape.kv_heads
    moved = 2.0 * shape.element * shape.sequences * rows * shape.head
    forward = Op(
        "attention", Kind.ATTENTION, Phase.FORWARD, dtype=DTYPES.index(dtype), batch=batch, m=shape.queries, n=shape.keys,
        k=shape.head, extra=shape.heads // shape.kv_heads, flops=flops, bytes=moved,
    )  # fmt: skip
    if not shape.backward:
        return forward
    return forward._replace(kind=Kind.ATTENTION_BACKWARD, phase=Phase.DGRAD, flops=2.5 * flops, bytes=2.5 * moved, launches=3)
