"""Rows of a pass: split into halves, concatenated, or interleaved with those of another pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.turns import OperatorSequence, interleave
from windtunnel.spec.job import Job
from windtunnel.workload import Kind, Stream, Workload
from windtunnel.workload.blocks.layer import SCOPES
from windtunnel.workload.ops import OpTable, Phase
from windtunnel.workload.schedules import Pass


@dataclass(frozen=True)
class PassRows:
    """n rows of a workload in the order in which they are enqueued.

    `waits` [n, 2]: earlier positions in this sequence that the row waits for, -1 for none. Rows that are not `live` take no time
    and only wait. `host` [n]: host seconds of the framework before the row, in addition to its launch.
    """

    rows: Int64s
    waits: npt.NDArray[np.int32]
    live: npt.NDArray[np.bool_]
    host: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rows)


def half(ops: OpTable, piece: PassRows, weight: bool) -> PassRows:
    """The weight gradients of a backward pass, or all other rows of it.

    Calls stay between the same computations. A removed row stays as a row without time if it begins or ends the sequence or waits
    for a call that is kept; rows that waited for it wait for the computation before it.
    """
    phase = ops.phase[piece.rows]
    mask = ((phase == Phase.WGRAD) | (phase == Phase.GRADIENT_SYNC)) == weight
    live: list[bool] = mask.tolist()
    compute: list[bool] = (ops.kind[piece.rows] != Kind.COMM).tolist()
    last = len(piece) - 1
    kept: list[int] = []
    place = [-1] * len(piece)  # position in the half: of the row itself, or of the computation that replaces it
    waits: list[tuple[int, int]] = []
    before = -1
    for row, awaited in enumerate(piece.waits.tolist()):
        live_waits = [w for w in awaited if w >= 0 and (compute[w] or live[w])]
        joins = compute[row] and any(not compute[w] for w in live_waits)
        if live[row] or row in (0, last) or joins:
            place[row] = len(kept)
            first, second, *_ = *(place[w] for w in live_waits), -1, -1
            waits.append((first, second))
            kept.append(row)
            before = place[row] if compute[row] else before
        elif compute[row]:
            place[row] = before
    rows = np.array(kept, np.int64)
    return PassRows(piece.rows[rows], np.array(waits, np.int32).reshape(-1, 2), mask[rows], piece.host[rows])


def host_of_pass(job: Job, direction: Pass) -> float:
    """Seconds of the host before a pass. Those of weight gradients are booked with input gradients."""
    return 0.0 if direction is Pass.WEIGHT_GRADIENT else job.runtime.host.micro_batch / job.cluster.node.host_speed


def host_of_blocks(workload: Workload) -> dict[Pass, list[float]]:
    """Seconds of the host before each of the workload's blocks, by pass; those of weight gradients are booked with input gradients.
    A layer's modules share its seconds equally; those that a CUDA graph replays take none."""
    job, ops = workload.job, workload.ops
    host, hooked = job.runtime.host, job.plan.shards_parameters and job.dp * job.plan.cp > 1
    hosts: list[float] = []
    for block in workload.blocks:
        rows = slice(block.forward.start, block.forward.stop)
        module, graphed = ops.module[rows], ops.graphed[rows]
        replayed = [bool(graphed[module == each].all()) for each in (SCOPES if graphed.any() else ()) if each in module]
        eager = 1.0 - sum(replayed) / max(len(replayed), 1)
        hosts.append((host.layer * eager + (host.sharded if hooked else 0.0)) / job.cluster.node.host_speed)
    return {way: [0.0] * len(hosts) if way is Pass.WEIGHT_GRADIENT else hosts for way in Pass}


def in_a_row(parts: list[PassRows], block_host: list[float], pass_host: float) -> PassRows:
    """Concatenates sequences; the host spends `block_host` before each and `pass_host` before the first."""
    if not parts:
        return PassRows(np.zeros(0, np.int64), np.zeros((0, 2), np.int32), np.zeros(0, np.bool_), np.zeros(0))
    sizes = [len(part) for part in parts]
    starts = np.cumsum([0, *sizes[:-1]])
    waits = np.concatenate([part.waits for part in parts])
    waits = np.where(waits >= 0, waits + np.repeat(starts, sizes)[:, None], waits).astype(np.int32)
    host = np.concatenate([part.host for part in parts])
    host[starts] += block_host
    host[0] += pass_host
    return PassRows(np.concatenate([part.rows for part in parts]), waits, np.concatenate([part.live for part in parts]), host)


def interleave_passes(one: PassRows, other: PassRows, streams: npt.NDArray[np.int32], seconds: npt.NDArray[np.float64]) -> PassRows:
    """Interleaves two passes: of the two next rows, the one that can start earlier goes first; ties: communication, then the pass
    that is further behind. `streams`, `seconds` are columns of the workload's rows."""
    first, second = (OperatorSequence(streams[p.rows], np.where(p.live, seconds[p.rows], 0.0), p.waits) for p in (one, other))
    which, row, waits = interleave(first, second, int(Stream.COMPUTE))
    at = row + np.where(which > 0, len(one), 0)
    rows, live = np.concatenate((one.rows, other.rows))[at], np.concatenate((one.live, other.live))[at]
    return PassRows(rows, waits, live, np.concatenate((one.host, other.host))[at])
