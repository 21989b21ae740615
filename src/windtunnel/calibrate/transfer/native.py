"""Which attention library is made for which architecture: its kernels use that architecture's tensor-core instructions."""

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
"""FlashAttention-2 runs Ampere's instructions on Hopper too, at little more than half the speed of those made for it
(Shah et al. 2024, section 1): no data sheet says so, and such rows are judged apart."""


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
