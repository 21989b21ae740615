"""Products that do not run on tensor cores: batches of strided 16-bit matrices whose rows are not aligned to 16 bytes.

NVIDIA's "Matrix Multiplication Background User's Guide" requires multiples of 8 numbers. Heads are slices of one tensor, so the
head size determines the alignment of a row of a query or key. With a head size of 108 the attention products of
A100-JeanZay-BLOOM's runs T0780, T0811, T0814 and T0816, compared with the same models with 96 heads of 144, take as long as the
GPU's fp32 units at 56 % of their peak. Held out: 28 runs of that family with heads of 225, whose error this changes from 36 % too
fast to 11 % too fast, like all others. Newer cuBLAS has tensor-core kernels for narrower loads; they are not measured here, and the
same is assumed.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats, Int8s
from windtunnel.compute.device import Device
from windtunnel.workload.ops import DTYPES

WHOLE = 8
"""16-bit numbers in 16 bytes."""

SIMT = 0.56
"""Share of the fp32 peak that such products achieve; fitted on the four rows above."""

HALF = (DTYPES.index("fp16"), DTYPES.index("bf16"))


def unaligned_seconds(dev: Device, batch: Floats, n: Floats, k: Floats, dtype: Int8s, flops: Floats) -> Floats:
    """Least seconds of each row's `flops`: those of the fp32 units where the product is strided and unaligned, else 0."""
    slow = (batch > 1.0) & np.isin(dtype, HALF) & ((n % WHOLE != 0) | (k % WHOLE != 0))
    return np.where(slow, flops / (SIMT * dev.peak[DTYPES.index("fp32")]), 0.0)
