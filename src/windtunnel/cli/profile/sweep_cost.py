"""Estimated duration of a sweep: the model's estimate of each kernel, times its number of runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.compute import estimate
from windtunnel.compute.row_names import KINDS, PHASES
from windtunnel.profile.kernels import KernelCase
from windtunnel.profile.timing import Protocol
from windtunnel.spec import GPU, load_runtime
from windtunnel.workload.identity import Module
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable

LAUNCH = 3e-6
"""s of an empty kernel."""

SETTING_UP = {"eager": 0.02, "cuda_graph": 0.05, "compile": 4.0}
"""s to allocate a case's operands, and to capture or compile it."""

PAGEABLE = 1e10
"""B/s between host and device, approximately."""


def kernel_seconds(cases: Sequence[KernelCase], gpu: GPU) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Estimated seconds of one execution of each case on `gpu`."""
    estimable = [(index, case) for index, case in enumerate(cases) if case.op in KINDS]
    seconds = np.full(len(cases), LAUNCH)
    if estimable:
        runtime = load_runtime("torchtitan")
        seconds[[index for index, _ in estimable]] = estimate(
            OpTable.of([_row(case) for _, case in estimable]), gpu, runtime
        ).seconds
    for index, case in enumerate(cases):
        if "host" in case.name and case.op == "copy":
            seconds[index] = (case.bytes or 0.0) / PAGEABLE
        seconds[index] = max(seconds[index], LAUNCH * (case.launches or 1))
    return seconds


def sweep_seconds(cases: Sequence[KernelCase], gpu: GPU, protocol: Protocol) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Estimated seconds that measuring each case takes, warm-up and set-up included."""
    flush = 2.0 * float(gpu.l2 or 2**26) / gpu.memory_bandwidth
    return np.array(
        [
            protocol.lasts(float(one), flush) + SETTING_UP[case.mode]
            for one, case in zip(kernel_seconds(cases, gpu), cases, strict=True)
        ]
    )


def _row(case: KernelCase) -> Op:
    kind = KINDS[case.op]
    if kind is Kind.ATTENTION and case.phase == "backward":
        kind = Kind.ATTENTION_BACKWARD
    dtype = case.dtype if case.dtype in DTYPES else "bf16"
    return Op(
        case.name,
        kind,
        PHASES[case.phase],
        Module.NONE,
        DTYPES.index(dtype),
        case.batch or 1,
        case.m or 1,
        case.n or 1,
        case.k or 1,
        case.heads_per_kv or 1,
        case.flops or 0.0,
        case.bytes or 0.0,
    )
