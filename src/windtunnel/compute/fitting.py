"""Least squares behind `fit.py`: one function per kernel class, all in log time with a robust loss and bounded constants.

scipy is a development dependency: nothing that predicts imports this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.compute.attention import attention_seconds
from windtunnel.compute.device import Device
from windtunnel.compute.gemm import gemm_seconds
from windtunnel.compute.kernels import AttentionCurve, GemmCurve, MemoryCurve
from windtunnel.compute.memory import memory_seconds
from windtunnel.compute.samples import Sample, column

Array = npt.NDArray[np.float64]
Bounds = dict[str, tuple[float, float, float]]
"""Constant -> lowest, expected, highest. The expected value starts the search and draws weakly where data say nothing."""

GEMM_BOUNDS: Bounds = {
    "fraction": (0.4, 0.95, 1.0),
    "tile_cost": (2.0, 12.0, 60.0),
    "prologue": (20.0, 100.0, 300.0),
    "wave": (0.0, 0.5, 1.0),
    "memory": (0.6, 0.85, 0.95),
    "latency": (1.5e-6, 3e-6, 1e-5),
    "split": (0.0, 3e-6, 2e-5),
    "blend": (1.3, 3.0, 5.0),
    "throttle": (0.0, 0.1, 0.5),
    "settle": (5e-5, 3e-4, 5e-3),
}
LAYOUT_BOUNDS: Bounds = {"dgrad": (0.8, 1.0, 1.3), "wgrad": (0.8, 1.0, 1.3)}
ATTENTION_BOUNDS: Bounds = {
    "fraction": (0.1, 0.8, 1.0),
    "wave": (0.0, 0.5, 1.5),
    "setup": (0.0, 150.0, 1000.0),
    "head": (0.0, 20.0, 150.0),
    "causal": (1.0, 1.05, 1.5),
    "latency": (2e-6, 6e-6, 1.5e-5),
}
MEMORY_BOUNDS: Bounds = {"efficiency": (0.05, 0.8, 1.0), "latency": (5e-7, 2e-6, 1e-4), "cache": (1.0, 1.3, 4.0)}

PULL = 0.01
"""Weight of the expected values: this times the square root of the number of samples, per width of the bounds."""


def log_errors(predicted: Array, samples: Sequence[Sample]) -> Array:
    """ln(predicted / measured): symmetric between too fast and too slow."""
    return np.asarray(np.log(predicted / column(samples, "seconds")), dtype=np.float64)


def solve(
    start: Any, bounds: Bounds, predict: Callable[[Any], Array], samples: Sequence[Sample], weight: Array | None = None
) -> Any:
    """`start` (a curve) with the constants named in `bounds` fitted so that `predict(curve)` matches the samples' seconds."""
    from scipy.optimize import least_squares

    names = list(bounds)
    low, mid, high = (np.array([bounds[name][i] for name in names]) for i in range(3))
    target = np.log(column(samples, "seconds"))
    pull = PULL * np.sqrt(len(samples))

    def curve(x: Array) -> Any:
        return replace(start, **{name: float(v) for name, v in zip(names, low + (high - low) * x, strict=True)})

    expected = (mid - low) / (high - low)

    def residuals(x: Array) -> Array:
        miss = np.log(predict(curve(x))) - target
        return np.concatenate([miss if weight is None else miss * weight, pull * (x - expected)])

    best = None
    for seed in range(3):
        begin = expected + (np.random.default_rng(seed).normal(0.0, 0.1, len(names)) if seed else 0.0)
        found = least_squares(
            residuals, np.clip(begin, 0.01, 0.99), bounds=(0.0, 1.0), loss="soft_l1", f_scale=0.05, diff_step=3e-3, max_nfev=60
        )
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None  # three starts were tried
    return curve(best.x)


def gemm_predict(curve: GemmCurve, dev: Device, samples: Sequence[Sample]) -> Array:
    """Seconds of GEMM samples (a batch is one launch)."""
    layout = np.array([{"forward": 1.0, "dgrad": curve.dgrad, "wgrad": curve.wgrad}[s.layout] for s in samples])
    batch, m, n, k, moved = (column(samples, name) for name in ("batch", "m", "n", "k", "moved"))
    return gemm_seconds(curve, dev, batch, m, n, k, np.full(len(samples), 3, np.int8), moved, layout)


def fit_gemm(start: GemmCurve, dev: Device, samples: Sequence[Sample], layouts: bool) -> GemmCurve:
    """Constants of the tile/wave model; rows with fewer than 512 tokens count half, because training seldom runs them."""
    weight = np.where(column(samples, "m") < 512, 0.5, 1.0)
    found = solve(
        start, {**GEMM_BOUNDS, **(LAYOUT_BOUNDS if layouts else {})}, lambda c: gemm_predict(c, dev, samples), samples, weight
    )
    assert isinstance(found, GemmCurve)
    return found


def attention_predict(curve: AttentionCurve, dev: Device, samples: Sequence[Sample]) -> Array:
    """Seconds of attention samples of one direction."""
    batch, m, n, k, flops = (column(samples, name) for name in ("batch", "m", "n", "k", "flops"))
    return attention_seconds(curve, dev, samples[0].layout, batch, m, n, k, np.full(len(samples), 3, np.int8), flops)


def fit_attention(start: AttentionCurve, dev: Device, samples: Sequence[Sample], names: Sequence[str]) -> AttentionCurve:
    """Fits the constants in `names`; the others stay as in `start`."""
    bounds = {name: ATTENTION_BOUNDS[name] for name in names}
    found = solve(start, bounds, lambda c: attention_predict(c, dev, samples), samples)
    assert isinstance(found, AttentionCurve)
    return found


def memory_predict(curve: MemoryCurve, dev: Device, samples: Sequence[Sample]) -> Array:
    """Seconds of samples that move bytes, forward."""
    return memory_seconds(curve, dev, column(samples, "moved"), np.zeros(len(samples), np.bool_))


def fit_memory(start: MemoryCurve, dev: Device, samples: Sequence[Sample], names: Sequence[str]) -> MemoryCurve:
    """Fits the constants in `names`; the others stay as in `start`."""
    bounds = {name: MEMORY_BOUNDS[name] for name in names}
    found = solve(start, bounds, lambda c: memory_predict(c, dev, samples), samples)
    assert isinstance(found, MemoryCurve)
    return found


def held_out(
    samples: Sequence[Sample], fit: Callable[[list[Sample]], Any], predict: Callable[[Any, list[Sample]], Array], folds: int = 5
) -> Array:
    """Log errors of every sample under constants fitted without its group (a weight shape, a width, a head size)."""
    groups = sorted({s.group for s in samples})
    order = np.random.default_rng(0).permutation(len(groups))
    fold = {groups[g]: i % min(folds, len(groups)) for i, g in enumerate(order)}
    where = np.array([fold[s.group] for s in samples])
    errors = np.zeros(len(samples))
    for i in range(min(folds, len(groups))):
        rest = [s for s, f in zip(samples, where, strict=True) if f != i]
        test = [s for s, f in zip(samples, where, strict=True) if f == i]
        errors[where == i] = log_errors(predict(fit(rest), test), test)
    return errors
