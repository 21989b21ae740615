"""What the kernel models need to know about a GPU: ceilings, bandwidth, SMs, after a transfer from the fitted one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from windtunnel.compute.kernels import Kernels
from windtunnel.records import work
from windtunnel.spec.cluster import GPU
from windtunnel.workload.ops import DTYPES

ELEMENT = np.array([work.ELEMENT[name] for name in DTYPES])
"""`records.work.ELEMENT`, bytes of an operand element, by dtype."""

RESULT = np.array([4.0, 4.0, 2.0, 2.0, 2.0, 2.0, 2.0])
"""Bytes of a matmul result element by operand dtype: 8- and 4-bit products are stored in bf16."""

FALLBACK = {"fp32": ("fp32", "tf32", "bf16", "fp16"), "tf32": ("tf32", "fp32"), "fp16": ("fp16", "bf16", "fp32"),
            "bf16": ("bf16", "fp16", "fp32"), "fp8": ("fp8", "bf16", "fp16"), "mxfp8": ("mxfp8", "fp8", "bf16", "fp16"),
            "nvfp4": ("nvfp4", "fp4", "mxfp8", "fp8", "bf16", "fp16")}
"""Number format -> keys of `GPU.peak` in the order they are tried: hardware without a format computes in a wider one."""

WIDE = ("bf16", "fp16")
NARROW = ("fp8", "mxfp8", "nvfp4")


@dataclass(frozen=True)
class Device:
    """Numbers of one GPU. Arrays are by dtype code (`workload.ops.DTYPES`)."""

    peak: npt.NDArray[np.float64]  # FLOP/s the data sheet states
    ceiling: npt.NDArray[np.float64]  # what a matmul could reach, relative to the fitted GPU's bf16: FLOP/s before `fraction`
    bandwidth: float  # B/s
    sms: float
    l2: float  # bytes


def device(gpu: GPU, kernels: Kernels) -> Device:
    """`Device` of `gpu` under the curves of `kernels`, which already hold how far half precision falls short of peak.

    8- and 4-bit products fall short by another share: that of the best measured matmuls of this GPU, else of the fitted one.
    """
    peak = np.array([_peak(gpu.peak, name) for name in DTYPES])
    factor = np.ones(len(DTYPES))
    wide = next((gpu.achievable[key] / gpu.peak[key] for key in WIDE if key in gpu.achievable and key in gpu.peak), None)
    for name in NARROW:
        if not any(key in gpu.peak for key in FALLBACK[name] if key not in WIDE):
            continue  # computed in bf16
        key = next((key for key in FALLBACK[name] if key in gpu.achievable and key in gpu.peak and key not in WIDE), None)
        factor[DTYPES.index(name)] = gpu.achievable[key] / gpu.peak[key] / wide if key and wide else kernels.narrow
    sms = float(gpu.sms) if gpu.sms is not None else max(1.0, round(kernels.sms * peak[DTYPES.index("bf16")] / kernels.peak))
    l2 = gpu.l2 if gpu.l2 is not None else kernels.l2
    return Device(peak=peak, ceiling=peak * factor, bandwidth=gpu.memory_bandwidth, sms=sms, l2=l2)


def _peak(table: dict[str, float], name: str) -> float:
    for key in FALLBACK[name]:
        if key in table:
            return table[key]
    return max(table.values()) if table else 1e12
