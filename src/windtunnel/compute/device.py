"""The inputs of the kernel models from a GPU: ceilings, bandwidth, SMs, relative to the fitted GPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.base.dataclasses import dataclass
from windtunnel.compute.curves import KernelCurves
from windtunnel.compute.forward_curves import ForwardChoice
from windtunnel.records import work
from windtunnel.spec.machine import GPU
from windtunnel.workload.ops import DTYPES

ELEMENT = np.array([work.ELEMENT[name] for name in DTYPES])
"""`records.work.ELEMENT`, bytes of an operand element, by dtype."""

RESULT = np.array([4.0, 4.0, 2.0, 2.0, 2.0, 2.0, 2.0])
"""Bytes of a matmul result element by operand dtype: 8- and 4-bit products are stored in bf16."""

FALLBACK = {
    "fp32": ("fp32", "tf32", "bf16", "fp16"),
    "tf32": ("tf32", "fp32"),
    "fp16": ("fp16", "bf16", "fp32"),
    "bf16": ("bf16", "fp16", "fp32"),
    "fp8": ("fp8", "bf16", "fp16"),
    "mxfp8": ("mxfp8", "fp8", "bf16", "fp16"),
    "nvfp4": ("nvfp4", "fp4", "mxfp8", "fp8", "bf16", "fp16"),
}
"""Number format -> keys of `GPU.peak` in the order they are tried: hardware without a format computes in a wider one."""

WIDE = ("bf16", "fp16")
NARROW = ("fp8", "mxfp8", "nvfp4")

OVER_WIDE: dict[str, dict[str, float]] = {
    "blackwell": {"mxfp8": 1.83, "nvfp4": 3.48, "blockwise": 1.83},
    "hopper": {"blockwise": 1.55, "rowwise": 1.55},
}
"""Rate of large products over that of bf16, by architecture and recipe, for GPUs without a published best product.

Transformer Engine's documentation, docs/examples/gemm_profiling: 12 products of a 5B model, 15,872 tokens, already quantised. B300:
13.10 ms in bf16, 7.16 in MXFP8, 3.76 in NVFP4, whose peak there is 6 times that of bf16; taken as the limit of other Blackwells
too. Blocks of 128 are emulated with MXFP8 there. H200: 31.97 ms in bf16, and 22.88 with blocks of 128 with quantising, which moves
4 bytes a number at the bandwidth of its other recipes, 3.5 TB/s: 20.6 without. Rowwise is assumed as blocks of 128.
"""


@dataclass(frozen=True)
class Device:
    """Numbers of one GPU. Arrays are by dtype code (`workload.ops.DTYPES`)."""

    peak: npt.NDArray[np.float64]
    """FLOP/s that the data sheet states."""
    ceiling: npt.NDArray[np.float64]
    """Ceiling of a matmul relative to the fitted GPU's bf16: FLOP/s before `fraction`."""
    bandwidth: float
    """B/s."""
    sms: float
    l2: float
    """Bytes."""
    integers: float = 0.0
    """Operations a second of 8-bit integers; 0: those of FP8."""
    forward: ForwardChoice | None = None
    """Recurrences, convolutions and rates of low precision; None for engines' kernels."""


def device(gpu: GPU, kernels: KernelCurves, recipe: str = "", forward: ForwardChoice | None = None) -> Device:
    """`Device` of `gpu` under the curves of `kernels`, which already contain the achieved share of peak in half precision.

    8- and 4-bit products achieve another share: that of this GPU's measured products of the recipe (`forward.py`), else that of the
    best measured matmuls of this GPU, else that of `OVER_WIDE` for its architecture, else that of the fitted GPU. `recipe`: how
    inputs in fp8 are scaled (`Runtime.recipe`).
    """
    peak = np.array([_peak(gpu.peak, name) for name in DTYPES])
    factor = np.ones(len(DTYPES))
    wide = next((gpu.achievable[key] / gpu.peak[key] for key in WIDE if key in gpu.achievable and key in gpu.peak), None)
    rates, half = OVER_WIDE.get(gpu.architecture, {}), peak[DTYPES.index("bf16")]
    for name in NARROW:
        if not any(key in gpu.peak for key in FALLBACK[name] if key not in WIDE):
            continue  # computed in bf16
        measured = None if forward is None else forward.rate_of(recipe if name == "fp8" else name)
        if measured is not None and name in gpu.peak:
            factor[DTYPES.index(name)] = min(1.0, measured.rate * half / gpu.peak[name])
            continue
        rate = rates.get(recipe if name == "fp8" else name)
        if rate is not None and name in gpu.peak and (name == "fp8" or name not in gpu.achievable):
            factor[DTYPES.index(name)] = min(1.0, rate * half / gpu.peak[name])
            continue
        key = next((key for key in FALLBACK[name] if key in gpu.achievable and key in gpu.peak and key not in WIDE), None)
        factor[DTYPES.index(name)] = gpu.achievable[key] / gpu.peak[key] / wide if key and wide else kernels.narrow
    # Units that a sheet does not state are as many as those of the fitted GPU: more FLOP/s are faster units, in the same waves.
    sms = float(gpu.sms) if gpu.sms is not None else kernels.sms
    l2 = gpu.l2 if gpu.l2 is not None else kernels.l2
    return Device(peak=peak, ceiling=peak * factor, bandwidth=gpu.memory_bandwidth, sms=sms, l2=l2, forward=forward)


def _peak(table: dict[str, float], name: str) -> float:
    for key in FALLBACK[name]:
        if key in table:
            return table[key]
    return max(table.values()) if table else 1e12
