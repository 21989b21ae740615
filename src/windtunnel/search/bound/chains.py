"""The least time that one pass through a block takes, whatever runs before and after it.

Operators of a stream run in order, and the compute stream runs block after block. So the longest chain of operators that leads from
a free compute stream to the block's last computation adds up over blocks and passes, and so do the host's costs. A schedule that
runs two passes beside each other may hide calls of one behind the other; then only the sum of each stream remains.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.program.passes import PassRows, half
from windtunnel.workload import Kind, Stream, Workload
from windtunnel.workload.schedules import Pass


class Measure(IntEnum):
    """What is counted of a pass; each is a lower bound of its own and adds up over passes.

    CHAIN: longest chain on the device. HOST: seconds of the host. LOCKED: the earlier of host and device, where the host waits for
    the device inside the pass. COMPUTE: computation alone. CALLS: exchanges of tokens with experts alone.
    TENSOR: matrix products and attention alone.
    """

    CHAIN = 0
    HOST = 1
    LOCKED = 2
    COMPUTE = 3
    CALLS = 4
    TENSOR = 5


PRODUCTS = (Kind.GEMM, Kind.GROUPED_GEMM, Kind.ATTENTION, Kind.ATTENTION_BACKWARD)
"""Kernels that keep the tensor cores busy."""

_IS_PRODUCT = np.isin(np.arange(max(Kind) + 1), PRODUCTS)
_COMPUTE, _TOKENS = int(Stream.COMPUTE), int(Stream.EP)


@dataclass(frozen=True)
class _Rows:
    """Columns over all rows of a workload. `tensor`: products and attention."""

    stream: np.ndarray
    seconds: Floats
    host: Floats
    sync: np.ndarray
    tensor: np.ndarray


def block_times(workload: Workload, costs: Costs, halves: bool) -> Floats:
    """[measures, passes, blocks] least seconds; `halves`: also of split backward passes, which are 0 without."""
    runtime, speed = workload.job.runtime, workload.job.cluster.node.host_speed
    block_host, ops = runtime.host.layer / speed, workload.ops
    out = np.zeros((len(Measure), len(Pass), len(workload.blocks)))
    ways = tuple(Pass) if halves else (Pass.FORWARD, Pass.BACKWARD)
    pairs = np.array([(w + (-1, -1))[:2] for w in workload.waits], np.int32).reshape(-1, 2)
    rows = _Rows(ops.stream, costs.seconds, costs.host, ops.sync, _IS_PRODUCT[ops.kind])
    for place, block in enumerate(workload.blocks):
        for way in ways:
            part = block.forward if way is Pass.FORWARD else block.backward
            index = np.arange(part.start, part.stop)
            piece = PassRows(index, pairs[part.start : part.stop], np.ones(len(index), np.bool_), np.zeros(len(index)))
            if way in (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT):
                piece = half(ops, piece, weight=way is Pass.WEIGHT_GRADIENT)
            extra = 0.0 if way is Pass.WEIGHT_GRADIENT else block_host
            out[:, way, place] = _measured(rows, piece, extra, runtime.launch_blocking)
    return out


def _measured(of: _Rows, piece: PassRows, extra: float, blocking: bool) -> list[float]:
    """The measures of one pass; the host, or with `blocking` the device, spends `extra` seconds before it."""
    rows = piece.rows
    seconds, host = of.seconds[rows] * piece.live, of.host[rows] * piece.live
    if len(rows):
        (seconds if blocking else host)[0] += extra
    streams = of.stream[rows]
    sync = of.sync[rows] & piece.live
    chain, _ = _ends(streams, seconds, piece.waits, None, sync)
    locked = 0.0
    if sync.any():
        device, launched = _ends(streams, seconds, piece.waits, host, sync)
        locked = min(device, launched)
    alone = (float(seconds[which].sum()) for which in (streams == _COMPUTE, streams == _TOKENS, of.tensor[rows]))
    return [chain, float(host.sum()), locked, *alone]


def _ends(streams: np.ndarray, seconds: Floats, waits: np.ndarray, host: Floats | None, sync: np.ndarray) -> tuple[float, float]:
    """When the compute stream and the host are done, if both are free at 0 and so is every other stream."""
    free: dict[int, float] = {}
    ends: list[float] = []
    launched = 0.0
    launches = [0.0] * len(seconds) if host is None else host.tolist()
    for stream, took, (first, second), launch, blocks in zip(
        streams.tolist(), seconds.tolist(), waits.tolist(), launches, sync.tolist(), strict=True
    ):
        launched += launch
        start = max(launched, free.get(stream, 0.0))
        if first >= 0:
            start = max(start, ends[first])
        if second >= 0:
            start = max(start, ends[second])
        ends.append(start + took)
        free[stream] = start + took
        if blocks and host is not None:
            launched = start + took
    return free.get(int(Stream.COMPUTE), 0.0), launched
