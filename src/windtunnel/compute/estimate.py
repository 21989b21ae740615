"""Operator table -> seconds on one GPU, with how each number is founded."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from windtunnel.compute.attention import attention_seconds
from windtunnel.compute.device import Device, device
from windtunnel.compute.gemm import gemm_bytes, gemm_seconds
from windtunnel.compute.kernels import Choice, Kernels, Provenance, choose
from windtunnel.compute.library import attention_factor, attention_library, memory_class
from windtunnel.compute.memory import memory_seconds
from windtunnel.compute.training import Factors, training_factor
from windtunnel.spec.cluster import GPU
from windtunnel.spec.runtime import Runtime
from windtunnel.workload.ops import Kind, OpTable, Phase

Array = npt.NDArray[np.float64]

CLASSES = {Kind.NORM: "norm", Kind.ELEMENTWISE: "elementwise", Kind.SOFTMAX: "softmax", Kind.CROSS_ENTROPY: "cross_entropy",
           Kind.EMBEDDING: "embedding", Kind.OPTIMIZER: "optimizer", Kind.COPY: "copy", Kind.REDUCE: "reduce"}
"""Kernel classes that only move bytes -> their table in a constants file."""


@dataclass(frozen=True)
class Estimate:
    """Columns over the rows of an OpTable.

    `seconds`: device time of one execution with all its launches, 0 for COMM rows (host time is not in it). `provenance`: codes of
    `Provenance`. `relative_error`: 1 sigma of seconds / true - 1. `source`: index into `sources`, what each number rests on.
    """

    seconds: npt.NDArray[np.float64]
    provenance: npt.NDArray[np.int8]
    relative_error: npt.NDArray[np.float64]
    source: npt.NDArray[np.int16]
    sources: tuple[str, ...]


def estimate(ops: OpTable, gpu: GPU, runtime: Runtime, factors: Factors | None = None) -> Estimate:
    """Device seconds of every row of `ops` on `gpu`; see `Estimate`. `factors` stand in for the stored training factors.

    Raises FileError if a constants file is broken.
    """
    choice = choose(gpu)
    kernels = choice.kernels
    dev = device(gpu, kernels)
    in_training = training_factor(gpu.architecture, factors)
    rows = len(ops)
    seconds = np.zeros(rows)
    table = np.zeros(rows, np.int16)
    names = ["communication: see the network model"]
    founded = [(0.0, Provenance.MODELLED)]

    def put(mask: npt.NDArray[np.bool_], values: Array, key: str) -> None:
        seconds[mask] = values
        table[mask] = len(names)
        names.append(_source(choice, key))
        founded.append(_founding(choice, key))

    launches = ops.launches.astype(np.float64)
    mask = (ops.kind == Kind.GEMM) | (ops.kind == Kind.GROUPED_GEMM)
    if mask.any():
        put(mask, in_training.matmul * _gemm(ops, mask, launches[mask], kernels, dev, runtime, in_training.throttle), "gemm")
    library = attention_library(runtime, kernels)
    for kind, way in ((Kind.ATTENTION, "forward"), (Kind.ATTENTION_BACKWARD, "backward")):
        mask = ops.kind == kind
        if mask.any():
            batch, m, n, k = (x[mask].astype(np.float64) for x in (ops.batch, ops.m, ops.n, ops.k))
            curve = kernels.attention[library][way]
            # Launches beyond the first are the small kernels around the backward: row sums of dO O, casts of dQ.
            around = np.maximum(launches[mask] - 1.0, 0.0) * curve.latency
            core = attention_seconds(curve, dev, way, batch, m, n, k, ops.dtype[mask], ops.flops[mask])
            put(mask, in_training.attention * attention_factor(runtime) * core + around, f"attention.{library}")
    for kind, key in CLASSES.items():
        mask = ops.kind == kind
        if mask.any():
            one = np.maximum(launches[mask], 1.0)
            backward = np.isin(ops.phase[mask], (Phase.DGRAD, Phase.WGRAD))
            name = memory_class(key, runtime)
            put(mask, in_training.memory * one * memory_seconds(kernels.memory[name], dev, ops.bytes[mask] / one, backward), name)
    seconds[launches == 0.0] = 0.0  # a row that only waits
    error = np.array([value for value, _ in founded])
    code = np.array([value for _, value in founded], np.int8)
    return Estimate(seconds, code[table], error[table], table, tuple(names))


def _gemm(ops: OpTable, mask: npt.NDArray[np.bool_], launches: Array, kernels: Kernels, dev: Device, runtime: Runtime,
          throttle: float) -> Array:
    """GEMM rows. Work per launch follows from the FLOPs column, so a loop over experts and one batched call both come out right."""
    launches = np.maximum(launches, 1.0)
    batch, m, n, k = (x[mask].astype(np.float64) for x in (ops.batch, ops.m, ops.n, ops.k))
    dtype, phase = ops.dtype[mask], ops.phase[mask]
    whole = 2.0 * batch * m * n * k
    share = np.where((ops.flops[mask] > 0) & (whole > 0), ops.flops[mask] / np.maximum(whole, 1.0), 1.0)
    each = batch * share / launches
    curve = replace(kernels.gemm, throttle=kernels.gemm.throttle * throttle)
    weight = phase == Phase.WGRAD
    accumulate = weight & (runtime.fused_wgrad and runtime.gradient_dtype == "fp32")
    stated = ops.bytes[mask] / launches
    moved = np.where(stated > 0, stated, gemm_bytes(each, m, n, k, dtype, accumulate))
    factor = np.where(phase == Phase.DGRAD, curve.dgrad, np.where(weight, curve.wgrad, 1.0))
    return np.asarray(launches * gemm_seconds(curve, dev, each, m, n, k, dtype, moved, factor), dtype=np.float64)


def _source(choice: Choice, key: str) -> str:
    found = choice.kernels.tables[key]
    how = "" if choice.provenance is Provenance.MODELLED else f", {choice.provenance.name.lower()}"
    return f"{choice.kernels.id} {key}{how}: {found.source}"


def _founding(choice: Choice, key: str) -> tuple[float, Provenance]:
    found = choice.kernels.tables[key]
    return float(np.hypot(found.error, choice.penalty)), Provenance(max(found.provenance, choice.provenance))
