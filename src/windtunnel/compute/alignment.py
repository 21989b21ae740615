"""Products that tensor cores do not take: batches of strided 16-bit matrices whose rows are not whole 16-byte pieces.

NVIDIA's "Matrix Multiplication Background User's Guide" asks for multiples of 8 numbers; heads are slices of one tensor, so each
row of a query or a key begins where the head size puts it. With a head size of 108 the attention products of A100-JeanZay-BLOOM's
runs T0780, T0811, T0814 and T0816, beside the same models with 96 heads of 144, take as long as the GPU's fp32 units at 56 % of
their peak. Held out: 28 runs of that family with heads of 225, which this moves from 36 % too fast to 11 %, as all others are.
Newer cuBLAS has tensor-core kernels for narrower loads; none is measured here, and the same is assumed.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats, Int8s
from windtunnel.compute.device import Device
from windtunnel.workload.ops import DTYPES

WHOLE = 8
"""16-bit numbers in 16 bytes."""

SIMT = 0.56
"""Share of the fp32 peak that such products reach; fitted on the four rows above."""

HALF = (DTYPES.index("fp16"), DTYPES.index("bf16"))


def unaligned_seconds(dev: Device, batch: Floats, n: Floats, k: Floats, dtype: Int8s, flops: Floats) -> Floats:
    """Least seconds of each row's `flops`: those of the fp32 units where the product is strided and unaligned, else 0."""
    slow = (batch > 1.0) & np.isin(dtype, HALF) & ((n % WHOLE != 0) | (k % WHOLE != 0))
    return np.where(slow, flops / (SIMT * dev.peak[DTYPES.index("fp32")]), 0.0)
