"""Shapes of fused attention operators, and which tasks of a trace graph are their kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Floats, Int64s

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
