"""Two formulas: compute-bound time scales with peak FLOP/s, memory-bound time with bandwidth; launches do not change.

The form that SimAI's authors describe for GPUs that are not out yet ("SimAI-CP-Model"; their own code is not open).
"""

from __future__ import annotations

import numpy as np

from windtunnel.calibrate.transfer.method import Known, Predicted, nearest
from windtunnel.calibrate.transfer.rows import TransferRows
from windtunnel.compute.transfer.law import sheet
from windtunnel.spec.machine.cluster import GPU


def two_formula(kind: str, rows: TransferRows, gpu: GPU, known: Known) -> Predicted:
    """Times of the nearest relative, each scaled by its bound there: FLOP / peak or bytes / bandwidth.

    The time of the relative's shortest kernel is subtracted first and added again unchanged.
    """
    on = sheet(gpu)
    one = nearest(kind, on, known)
    if kind == "gemm":
        launch = np.full(len(rows), one.gemm.latency if one.gemm is not None else 0.0)
    else:
        launch = np.array([one.attention[way].latency for way in rows.way])
    computes = rows.flops / one.on.peak >= rows.moved / one.on.bandwidth
    ratio = np.where(computes, one.on.peak / on.peak, one.on.bandwidth / on.bandwidth)
    return Predicted(launch + (one.seconds(kind, rows) - launch) * ratio, one.on.id)
