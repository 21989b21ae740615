"""The data-sheet method: every time scales with the ratio of peak FLOP/s."""

from __future__ import annotations

from windtunnel.calibrate.transfer.method import Known, Predicted, nearest
from windtunnel.calibrate.transfer.rows import TransferRows
from windtunnel.compute.transfer.law import sheet
from windtunnel.spec.machine.cluster import GPU


def naive(kind: str, rows: TransferRows, gpu: GPU, known: Known) -> Predicted:
    """Times of the nearest relative (by its own curves at these shapes) times peak over peak."""
    on = sheet(gpu)
    one = nearest(kind, on, known)
    return Predicted(one.seconds(kind, rows) * one.on.peak / on.peak, one.on.id)
