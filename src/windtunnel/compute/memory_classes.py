"""Classes of kernels that move bytes: unmeasured ones are derived from plain pointwise kernels."""

from __future__ import annotations

DERIVED = {
    "norm": (1.0, 1.15),
    "softmax": (0.9, 1.0),
    "softmax_native": (0.65, 1.0),
    "cross_entropy": (0.8, 1.0),
    "embedding": (0.2, 1.5),
    "optimizer": (1.0, 1.0),
    "copy": (1.0, 1.0),
    "reduce": (0.95, 1.0),
}
"""Class -> (share of the plain pointwise kernels' bandwidth, time factor of the backward kernel), for unmeasured classes.

Fused norms and the fused softmax read and write once like a pointwise kernel; a norm's backward also reduces over rows; an
embedding's gathers scatter with atomics in backward. Assumed.
"""

NATIVE = "softmax_native"
"""Class of rows of op softmax: PyTorch's kernel. The class `softmax` is Megatron's fused scale-mask-softmax."""


def key_of(name: str, library: str) -> str:
    """Key in `KernelCurves.memory` of one kernel: an inference engine's norm is not a training framework's."""
    return f"{name}@{library}" if library else name
