"""A graph of tasks over ranks: what a Chakra trace, a GOAL schedule or a simulator's workload holds, in columns.

A task is an operator on a rank, or a rank's part of a call. Times that are NaN are not known; whoever replays the graph finds them.

Shapes of fused attention operators, and which tasks of a trace graph are their kernels.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s, Uint8s
from windtunnel.base.dataclasses import dataclass, field

LIBRARIES = ("fa2", "cudnn")
"""Libraries of the operators, as `compute` names their curves."""

CAUSAL_NOT_RECORDED = 2


class AttentionShape(NamedTuple):
    """One forward or backward operator. `sequences` of equal length.

    Under a causal mask the last query sees all keys, and each query one key less than the one after it.
    """

    sequences: int
    heads: int
    kv_heads: int
    queries: int
    """Tokens of a sequence."""
    keys: int
    head: int
    """The mean width of keys and values."""
    causal: int
    """0 no mask, 1 causal, 2 not recorded."""
    window: int
    """Keys that a query sees at most; 0 all."""
    backward: int
    element: int
    """Bytes; 0 unknown."""
    library: int
    """Index of `LIBRARIES`."""


COLUMNS = ("task", "operator", *AttentionShape._fields)
"""Columns of `TraceGraph.attentions`: a kernel, a number that all kernels of its operator have, and the operator's shape."""


def no_attentions() -> Int64s:
    """[0, 13] of a graph without attention of known shape."""
    return np.empty((0, len(COLUMNS)), np.int64)


def shares(attentions: Int64s, seconds: Floats) -> Floats:
    """[A] each kernel's share of its operator's time, by the `seconds` [N] of all tasks; equal parts where these are unknown."""
    took = np.nan_to_num(seconds[attentions[:, 0]])
    _, which, count = np.unique(attentions[:, 1], return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    total = np.bincount(which, weights=took, minlength=len(count))[which]
    return np.where(total > 0, took / np.where(total > 0, total, 1.0), 1.0 / count[which])


class TaskKind(IntEnum):
    """What a task of a trace graph does."""

    COMPUTE = 0
    COLLECTIVE = 1
    SEND = 2
    RECEIVE = 3
    LOAD = 4  # from a memory beyond the device's own
    STORE = 5
    MARK = 6  # takes no time: metadata, a label, a dependency that stands for nothing else


@dataclass(frozen=True)
class TraceGraph:
    """N tasks in columns, rank by rank; indices of tasks count over the whole graph. Seconds, bytes, FLOPs.

    `rank_start[r]:rank_start[r+1]` are the tasks of rank r, in the order of the source. A task starts after all of
    `deps[dep_start[i]:dep_start[i+1]]` have ended, and after the task before it in its `lane` (a stream or a thread of its
    rank); lane -1: only its dependencies order it. `group` is an index of `groups`, -1 none: the n-th collective of a group on
    one rank meets the n-th on the others. A SEND meets the RECEIVE of rank `peer` with the same `tag`, in order. `groups` and
    `peer` are numbers of the job's ranks, of which the graph may hold a part (`rank_ids`).
    """

    rank_start: Int64s  # [R+1]
    name: Int32s
    """[N] index of `names`."""
    kind: Uint8s
    """[N] TaskKind."""
    on_host: Bools
    """[N] runs on the CPU."""
    lane: Int32s  # [N]
    seconds: Floats
    """[N] as stated or measured; NaN unknown."""
    flops: Floats
    """[N] NaN unknown."""
    bytes: Floats
    """[N] a call's total buffer as nccl-tests counts it; what a computation reads and writes; NaN unknown."""
    comm: Uint8s
    """[N] base.comm.Comm."""
    group: Int32s  # [N]
    peer: Int32s
    """[N] -1 none."""
    tag: Int64s  # [N]
    dep_start: Int64s  # [N+1]
    deps: Int64s
    names: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    """Ranks of each group, in ring order."""
    begin: Floats = field(default_factory=lambda: np.empty(0))
    """[N] measured begin from the rank's first, or empty."""
    ids: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """[N] the source's own numbers, or empty."""
    rank_ids: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """[R] the job's number of each rank; empty: 0 to R-1."""
    products: Int64s = field(default_factory=lambda: np.empty((0, 5), np.int64))
    """[N, 5] batch, m, n, k and bytes of an element of a matrix product, zeros for other tasks; or empty."""
    attentions: Int64s = field(default_factory=no_attentions)
    """[A, 13] kernels of fused attention of known shape; `records.trace_graph.COLUMNS`."""

    def __len__(self) -> int:
        return len(self.name)

    @property
    def ranks(self) -> int:
        return len(self.rank_start) - 1

    @property
    def numbers(self) -> Int64s:
        """The job's number of each rank [R]."""
        return self.rank_ids if len(self.rank_ids) else np.arange(self.ranks, dtype=np.int64)

    def rank_of(self) -> Int32s:
        """The rank of every task [N]."""
        return np.repeat(np.arange(self.ranks, dtype=np.int32), np.diff(self.rank_start))
