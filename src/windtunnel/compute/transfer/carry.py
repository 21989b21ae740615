"""Constants of an unmeasured GPU: the result of `choose` if there is no file for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from windtunnel.compute.curves import AttentionCurve, Basis, Choice, KernelCurves, Provenance
from windtunnel.compute.transfer.joint import Stored, stored_curves
from windtunnel.compute.transfer.law import attention_for, gemm_for, sheet, sheet_of
from windtunnel.spec import load_gpu
from windtunnel.spec.loading.catalog import names
from windtunnel.spec.machine.cluster import GPU

SHARED = "shared"
"""Key of the attention curves shared by all measured GPUs; not a library's name, so every framework uses it."""

SAME = 0.005
"""Figures of a data sheet that differ by less are equal, because catalogues round."""


def has_same_figures(gpu: GPU, found: KernelCurves) -> bool:
    """Whether `gpu` equals the GPU that `found` was fitted on in all figures of the data sheet that the laws use."""
    mine, fitted = sheet(gpu), sheet_of(found)
    pairs = ((mine.peak, fitted.peak), (mine.bandwidth, fitted.bandwidth), (mine.sms, fitted.sms), (mine.power, fitted.power))
    return all(a is None or b is None or abs(a / b - 1.0) < SAME for a, b in pairs)


def carry_curves(found: KernelCurves, gpu: GPU, provenance: Provenance = Provenance.TRANSFERRED) -> Choice:
    """`found`'s constants scaled to `gpu`: its curves within an architecture, else shared ones with its memory-bound classes.

    Errors are those of leaving a measured GPU out (`Stored.error`); `assumed` adds those of other vendors' best matmuls.
    """
    laws, base, gpu = stored_curves(), sheet_of(found), _without_foreign_best(gpu)
    near = found.architecture == gpu.architecture
    added = laws.error["foreign"] if provenance is Provenance.ASSUMED else 0.0
    gemm = gemm_for(gpu, laws.every, (found.gemm, base) if near else None)
    grouped = gemm_for(gpu, laws.every, (found.grouped, base)) if near and found.grouped is not None else None
    attention: Mapping[str, Mapping[str, AttentionCurve]]
    if near:
        attention = {name: attention_for(gpu, laws.every, (ways, base)) for name, ways in found.attention.items()}
    else:
        attention = {SHARED: attention_for(gpu, laws.every, None)}
    kernels = replace(
        found,
        id=found.id if near else f"shared curves and {found.id}",
        gemm=gemm,
        grouped=grouped,
        attention={name: dict(ways) for name, ways in attention.items()},
        tables=_tables(found, laws, near, added),
    )
    return Choice(kernels, provenance)


def _tables(found: KernelCurves, laws: Stored, near: bool, added: float) -> dict[str, Basis]:
    side = "same" if near else "other"
    every = f"curves shared by {', '.join(laws.every.fitted_on)}"
    tables = {}
    for name, table in found.tables.items():
        kind = "gemm" if name in ("gemm", "grouped_gemm") else "attention" if name.startswith("attention.") else "memory"
        if kind == "memory" or near:
            sigma = laws.error[f"{kind} {side}"]
            tables[name] = replace(table, error=float(np.hypot(max(table.error, sigma), added)), held_out={}, trained={})
    if not near:
        for key, kind in (("gemm", "gemm"), (f"attention.{SHARED}", "attention")):
            tables[key] = Basis(float(np.hypot(laws.error[f"{kind} other"], added)), Provenance.TRANSFERRED, every)
    return tables


def _without_foreign_best(gpu: GPU) -> GPU:
    """`gpu` without the best matmul of its catalogue entry, if a job changed the peak but not the measurement."""
    if gpu.achievable and gpu.id in names("gpus"):
        listed = load_gpu(gpu.id)
        if gpu.achievable == listed.achievable and gpu.peak != listed.peak:
            return gpu.model_copy(update={"achievable": {}})
    return gpu
