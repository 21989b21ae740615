"""Curves of one GPU, and curves shared by several, from measured rows: least squares in log time with a robust loss.

Constants have bounds and an expected value, which starts the search and is a weak prior. Every GPU has the same weight, however
many rows it has.

Attention libraries whose kernels use an architecture's own tensor-core instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.errors import SpecError
from windtunnel.calibrate.transfer import evaluate
from windtunnel.calibrate.transfer.rows import MeasuredGpu, TransferRows
from windtunnel.compute.curves import AttentionCurve, GemmCurve
from windtunnel.compute.transfer.joint import JointCurves
from windtunnel.compute.transfer.law import Sheet, attention_with, frugal, gemm_held, sheet

Bounds = Mapping[str, tuple[float, float, float]]
AnyCurve = TypeVar("AnyCurve", GemmCurve, AttentionCurve)

TILES = ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))
"""Output tiles that BLAS libraries of every generation have."""

GEMM: Bounds = {
    "fraction": (0.4, 0.95, 1.0),
    "tile_cost": (2.0, 12.0, 60.0),
    "prologue": (20.0, 100.0, 300.0),
    "wave": (0.0, 0.5, 1.0),
    "memory": (0.6, 0.85, 0.95),
    "latency": (1.5e-6, 3e-6, 1e-5),
    "split": (0.0, 3e-6, 2e-5),
    "blend": (1.3, 3.0, 5.0),
}
LAYOUTS: Bounds = {"dgrad": (0.8, 1.0, 1.3), "wgrad": (0.8, 1.0, 1.3)}
THROTTLE: Bounds = {"throttle": (0.0, 0.1, 0.5), "settle": (5e-5, 3e-4, 5e-3)}
ATTENTION: Bounds = {
    "fraction": (0.1, 0.8, 1.0),
    "wave": (0.0, 0.5, 1.5),
    "setup": (0.0, 150.0, 1000.0),
    "head": (0.0, 20.0, 150.0),
    "causal": (1.0, 1.05, 1.5),
}
SHARED: Bounds = {"exposed": (0.0, 0.5, 2.0), "latency": (2e-6, 6e-6, 5e-5)}
"""Shared by both directions: the exposed share of exponentials, and the shortest kernel."""

PULL = 0.01
MOST = 200
"""Maximum of rows of one GPU and class in a fit; more are thinned out evenly."""

ENOUGH = 30
FEW = 10
"""Minimum of products, and of attention rows of a direction, for a curve."""

WAYS = ("forward", "backward")
BLOCK = 128
"""Query rows of a block of attention."""


def gemm_curve(on: Sheet, rows: TransferRows) -> GemmCurve:
    """One GPU's own curve, including throttling."""
    start = _gemm_start(0.1)
    some = _thin_rows(rows)
    bounds = {**GEMM, **THROTTLE, **(LAYOUTS if (rows.way != "forward").any() else {})}
    fitted = _least(bounds, lambda x: [_miss(evaluate.gemm(_with(start, x), on, some), some)])
    return _with(start, fitted)


def attention_curves(on: Sheet, rows: TransferRows) -> dict[str, AttentionCurve]:
    """One GPU's own curves of one library; `head` includes the exponentials."""
    curves = {}
    bounds = {**ATTENTION, "latency": SHARED["latency"]}
    for way in WAYS:
        some = _thin_rows(rows.where(rows.way == way))
        start = AttentionCurve(rows=BLOCK, **{name: mid for name, (_, mid, _) in bounds.items()})

        def miss(x: dict[str, float], start: AttentionCurve = start, way: str = way, some: TransferRows = some) -> list[Floats]:
            return [_miss(evaluate.attention({way: _with(start, x)}, on, some), some)]

        curves[way] = _with(start, _least(bounds, miss))
    return curves


def joint(cases: Sequence[MeasuredGpu], own: Mapping[str, GemmCurve]) -> JointCurves:
    """Curves of all cases together. `own`: each GPU's gemm curve, from which the energy per FLOP follows."""
    sheets = {case.gpu.id: sheet(case.gpu) for case in cases}
    if not cases:
        raise SpecError("--leave", "every GPU", "at least one that stays")
    energy = frugal((sheets[name], curve) for name, curve in own.items() if name in sheets)
    products = [(sheets[case.gpu.id], _thin_rows(case.gemm)) for case in cases if len(case.gemm) >= ENOUGH]
    fused = [(sheets[case.gpu.id], _thin_rows(native(case))) for case in cases if len(native(case)) >= FEW]
    gemm = _gemm_start(0.0)
    solution = _least(
        {**GEMM, **LAYOUTS},
        lambda x: [_miss(evaluate.gemm(gemm_held(_with(gemm, x), on, energy), on, rows), rows) for on, rows in products],
    )
    bounds = {f"{way}.{name}": value for way in WAYS for name, value in ATTENTION.items()} | dict(SHARED)

    def curves(x: Mapping[str, float]) -> dict[str, AttentionCurve]:
        return {
            way: AttentionCurve(rows=BLOCK, latency=x["latency"], **{name: x[f"{way}.{name}"] for name in ATTENTION})
            for way in WAYS
        }

    def misses(x: dict[str, float]) -> list[Floats]:
        both_ways = curves(x)
        return [
            _miss(evaluate.attention({way: attention_with(both_ways[way], way, on, x["exposed"]) for way in WAYS}, on, rows), rows)
            for on, rows in fused
        ]

    shared = _least(bounds, misses)
    return JointCurves(
        _with(gemm, solution), curves(shared), shared["exposed"], energy, tuple(sorted({on.id for on, _ in (*products, *fused)}))
    )


def _gemm_start(throttle: float) -> GemmCurve:
    plain: dict[str, Any] = {name: mid for name, (_, mid, _) in GEMM.items()}
    return GemmCurve(tiles=TILES, throttle=throttle, settle=3e-4, **plain)


def _with(curve: AnyCurve, constants: Mapping[str, float]) -> AnyCurve:
    values: dict[str, Any] = dict(constants)
    return replace(curve, **values)


def _miss(predicted: Floats, rows: TransferRows) -> Floats:
    return np.asarray(np.log(predicted / rows.seconds), dtype=np.float64)


def _thin_rows(rows: TransferRows) -> TransferRows:
    """At most `MOST` of them, spread evenly over the sizes."""
    if len(rows) <= MOST:
        return rows
    order = np.lexsort((rows.m, rows.k, rows.n, rows.way))
    return rows.where(order[np.linspace(0, len(rows) - 1, MOST).round().astype(np.int64)])


def _least(bounds: Bounds, misses: Callable[[dict[str, float]], list[Floats]]) -> dict[str, float]:
    """The constants that minimise the groups' log errors; each group has the weight of `MOST` rows."""
    from scipy.optimize import least_squares

    names = list(bounds)
    low, mid, high = (np.array([bounds[name][i] for name in names]) for i in range(3))
    expected = (mid - low) / (high - low)

    def constants(x: Floats) -> dict[str, float]:
        return {name: float(value) for name, value in zip(names, low + (high - low) * x, strict=True)}

    def residuals(x: Floats) -> Floats:
        groups = misses(constants(x))
        pull = PULL * np.sqrt(float(MOST * len(groups)))
        return np.concatenate([*(miss * np.sqrt(MOST / len(miss)) for miss in groups), pull * (x - expected)])

    solution = least_squares(
        residuals, np.clip(expected, 0.01, 0.99), bounds=(0.0, 1.0), loss="soft_l1", f_scale=0.05, diff_step=3e-3, max_nfev=60
    )
    return constants(solution.x)


MADE_FOR = {
    "volta": ("fa2",),
    "ampere": ("fa2", "cudnn"),
    "ada": ("fa2", "cudnn"),
    "hopper": ("fa3", "cudnn"),
    "blackwell": ("fa4", "cudnn"),
}
"""On Hopper FlashAttention-2 uses Ampere's instructions, at little more than half the speed of Hopper's
(Shah et al. 2024, section 1). No data sheet shows that, so such rows are judged separately."""


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
