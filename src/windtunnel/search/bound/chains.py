"""The least time that one pass through a block takes, whatever runs before and after it.

Operators of a stream run in order, and the compute stream runs block after block. So the longest chain of operators that leads from
a free compute stream to the block's last computation adds up over blocks and passes, and so do the host's costs. A schedule that
runs two passes beside each other may hide calls of one behind the other; then only the sum of each stream remains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.program.passes import PassRows, half, host_of_pass
from windtunnel.workload import Kind, Stream, Workload
from windtunnel.workload.ops import OpTable
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


@dataclass
class _Waiting:
    """Passes of equal form that are not measured yet: `seconds` and `host` of the rows of each, and where its measures go."""

    piece: PassRows
    streams: np.ndarray
    sync: np.ndarray
    tensor: np.ndarray
    seconds: list[Floats]
    host: list[Floats]
    places: list[Floats]


class Chains:
    """Measures passes of many workloads, all those of one form at once: the same rows in the same order, with other seconds."""

    def __init__(self, halves: bool) -> None:
        """`halves`: also of split backward passes."""
        self.ways = tuple(Pass) if halves else (Pass.FORWARD, Pass.BACKWARD)
        self._waiting: dict[tuple[object, ...], _Waiting] = {}

    def add(self, workload: Workload, costs: Costs) -> Floats:
        """[measures, passes, blocks] least seconds, which are there after `measure`; 0 for passes that are not measured."""
        runtime, ops = workload.job.runtime, workload.ops
        block_host = {way: host_of_pass(workload.job, way)[0] for way in self.ways}
        out = np.zeros((len(Measure), len(Pass), len(workload.blocks)))
        pairs = np.array([(w + (-1, -1))[:2] for w in workload.waits], np.int32).reshape(-1, 2)
        for place, block in enumerate(workload.blocks):
            for way in self.ways:
                part = block.forward if way is Pass.FORWARD else block.backward
                waiting = self._of_form(ops, slice(part.start, part.stop), pairs, way)
                rows, live = part.start + waiting.piece.rows, waiting.piece.live
                seconds, host = costs.seconds[rows] * live, costs.host[rows] * live
                if len(rows):
                    (seconds if runtime.launch_blocking else host)[0] += block_host[way]
                waiting.seconds.append(seconds)
                waiting.host.append(host)
                waiting.places.append(out[:, way, place])
        return out

    def _of_form(self, ops: OpTable, part: slice, pairs: np.ndarray, way: Pass) -> _Waiting:
        """Where passes wait that look like this one."""
        columns = (ops.kind[part], ops.phase[part], ops.stream[part], ops.sync[part], pairs[part])
        form = (way, *(column.tobytes() for column in columns))
        if form not in self._waiting:
            index = np.arange(part.start, part.stop)
            piece = PassRows(index, pairs[part], np.ones(len(index), np.bool_), np.zeros(len(index)))
            if way in (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT):
                piece = half(ops, piece, weight=way is Pass.WEIGHT_GRADIENT)
            streams, sync, tensor = ops.stream[piece.rows], ops.sync[piece.rows] & piece.live, _IS_PRODUCT[ops.kind[piece.rows]]
            self._waiting[form] = _Waiting(replace(piece, rows=piece.rows - part.start), streams, sync, tensor, [], [], [])
        return self._waiting[form]

    def measure(self) -> None:
        """Measures all that was added."""
        for waiting in self._waiting.values():
            if waiting.places:
                for place, measures in zip(waiting.places, _measure_passes(waiting), strict=True):
                    place[:] = measures
            waiting.seconds, waiting.host, waiting.places = [], [], []


def _measure_passes(of: _Waiting) -> Floats:
    """[passes, measures] of passes of one form."""
    seconds, host = np.stack(of.seconds), np.stack(of.host)
    chain, _ = _ends(of.streams, seconds, of.piece.waits, None, of.sync)
    locked = np.zeros_like(chain)
    if of.sync.any():
        device, launched = _ends(of.streams, seconds, of.piece.waits, host, of.sync)
        locked = np.minimum(device, launched)
    alone = (seconds[:, which].sum(axis=1) for which in (of.streams == _COMPUTE, of.streams == _TOKENS, of.tensor))
    return np.stack([chain, host.sum(axis=1), locked, *alone], axis=1)


def _ends(streams: np.ndarray, seconds: Floats, waits: np.ndarray, host: Floats | None, sync: np.ndarray) -> tuple[Floats, Floats]:
    """[passes] when the compute stream and the host are done, if both are free at 0 and so is every other stream."""
    launched = none = np.zeros(len(seconds))
    free: dict[int, Floats] = {}
    ends: list[Floats] = []
    took = np.ascontiguousarray(seconds.T)
    launches = None if host is None else np.ascontiguousarray(host.T)
    stream_of = streams.tolist()
    for row, (stream, awaited, blocks) in enumerate(zip(stream_of, waits.tolist(), sync.tolist(), strict=True)):
        start = free.get(stream, none)
        if launches is not None:
            launched = launched + launches[row]
            start = np.maximum(start, launched)
        for before in awaited:
            if before >= 0 and stream_of[before] != stream:  # rows of a stream end in order
                start = np.maximum(start, ends[before])
        free[stream] = start + took[row]
        ends.append(free[stream])
        if blocks and launches is not None:
            launched = free[stream]
    return free.get(_COMPUTE, none), launched
