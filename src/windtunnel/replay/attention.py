"""Seconds of fused attention of known shape by windtunnel's attention kernels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.records.attention import CAUSAL_NOT_RECORDED, COLUMNS, LIBRARIES, AttentionShape
from windtunnel.spec.machine.cluster import GPU
from windtunnel.workload.blocks.core import visible
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable, Phase

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
