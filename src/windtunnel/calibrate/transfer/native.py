"""Attention libraries whose kernels use an architecture's own tensor-core instructions."""

from __future__ import annotations

import numpy as np

from windtunnel.calibrate.transfer.rows import MeasuredGpu, TransferRows

MADE_FOR = {
    "volta": ("fa2",),
    "ampere": ("fa2", "cudnn"),
    "ada": ("fa2", "cudnn"),
    "hopper": ("fa3", "cudnn"),
    "blackwell": ("fa4", "cudnn"),
}
"""On Hopper FlashAttention-2 uses Ampere's instructions, at little more than half the speed of Hopper's
(Shah et al. 2024, section 1). No data sheet shows that, so such rows are judged separately."""


def native(case: MeasuredGpu) -> TransferRows:
    """Attention rows of the libraries made for the GPU, and of those that name none."""
    known = MADE_FOR.get(case.gpu.architecture)
    rows = case.attention
    return rows if known is None else rows.where(np.isin(rows.library, ("", *known)))


def foreign(case: MeasuredGpu) -> TransferRows:
    """The others."""
    known = MADE_FOR.get(case.gpu.architecture)
    rows = case.attention
    return rows.where(np.zeros(len(rows), np.bool_)) if known is None else rows.where(~np.isin(rows.library, ("", *known)))
