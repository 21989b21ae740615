"""The GPU of a dataset: the catalogue's entry, or `About.datasheet`, completed from the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.base.errors import SpecError
from windtunnel.calibrate.kernels.samples import Samples
from windtunnel.compute.fitted_gpu import known_gpu
from windtunnel.records import About
from windtunnel.spec.machine import GPU
from windtunnel.workload.ops import DTYPES

HEADROOM = 0.9
"""Best measured rate over the peak, assumed if no data sheet states a peak."""


def reference_gpu(about: About, rows: Samples) -> tuple[GPU, dict[str, Any], list[str]]:
    """(GPU, its data sheet as fields of `spec.GPU` if the catalogue has none, assumptions).

    Peaks and bandwidth that no data sheet states are the best measured rates over `HEADROOM`.
    """
    entry = known_gpu(about.gpu)
    if entry is not None:
        return entry, {}, []
    sheet, assumptions = dict(about.datasheet), []
    peak = {key.removeprefix("peak."): value for key, value in sheet.items() if key.startswith("peak.")}
    for code in sorted(set(rows.dtype[rows.work > 0.0])):
        name, of_dtype = DTYPES[code], (rows.dtype == code) & (rows.work > 0.0)
        best = float((rows.work[of_dtype] / rows.seconds[of_dtype]).max())
        if peak.get(name, 0.0) < best:  # a measured data sheet may be below the best rate
            peak[name] = float(f"{best / HEADROOM:.3g}")
            assumptions.append(f"peak of {name}: {peak[name] / 1e12:g} TFLOP/s, the best measured product's over {HEADROOM}")
    bandwidth = sheet.get("memory_bandwidth")
    if not bandwidth:
        moves = (rows.moved > 0.0) & (rows.work == 0.0)
        if not moves.any():
            raise SpecError(
                "about.datasheet.memory_bandwidth",
                bandwidth,
                "B/s: no kernel of the dataset tells it",
                "Measure kernels that move bytes too, or state it in the datasheet.",
            )
        large = moves & (rows.moved >= np.quantile(rows.moved[moves], 0.75))
        bandwidth = float(f"{(rows.moved[large] / rows.seconds[large]).max() / HEADROOM:.3g}")
        assumptions.append(f"memory bandwidth: {bandwidth / 1e9:g} GB/s, the best measured kernel's over {HEADROOM}")
    if not peak:
        raise SpecError("about.datasheet", "no peak rate", "peak.<dtype> in FLOP/s", "Measure matrix products, or state it.")
    for name, value, what in (("sms", 1.0, "1 core"), ("memory", 2.0**34, "16 GiB of memory")):
        if not sheet.get(name):
            sheet[name] = value
            assumptions.append(f"{what}: the dataset does not say")
    data: dict[str, Any] = {
        "id": about.gpu,
        "name": about.device or about.gpu,
        "vendor": "other",
        "architecture": about.architecture or "other",
        "peak": {name: f"{rate:.9g}FLOP/s" for name, rate in peak.items()},
        "memory": int(sheet["memory"]),
        "memory_bandwidth": f"{bandwidth:.9g}B/s",
        "sms": int(sheet["sms"]),
        "source": about.source or "the dataset's own data sheet",
    }
    data |= {"l2": int(sheet["l2"])} if sheet.get("l2") else {}
    return GPU(**data), data, assumptions


def reference(gpu: GPU, rows: Samples) -> dict[str, Any]:
    """The fields of `KernelCurves` that describe the GPU of the fit."""
    wide = next((gpu.peak[name] for name in ("bf16", "fp16", "fp32") if name in gpu.peak), max(gpu.peak.values()))
    best = gpu.achievable.get("bf16", gpu.achievable.get("fp16"))
    if best is None:
        half = (rows.op == "gemm") & (rows.work > 0.0)
        best = min(float((rows.work[half] / rows.seconds[half]).max()), wide) if half.any() else wide
    narrow = 1.0
    if "fp8" in gpu.achievable and "fp8" in gpu.peak:
        narrow = gpu.achievable["fp8"] / gpu.peak["fp8"] / (best / wide)
    return {
        "peak": wide,
        "achievable": best,
        "sms": float(gpu.sms or 1),
        "l2": float(gpu.l2 or 2**25),
        "power": float(gpu.power_w or 0.0),
        "narrow": narrow,
        "bandwidth": gpu.memory_bandwidth,
    }
