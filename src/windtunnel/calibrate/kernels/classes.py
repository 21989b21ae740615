"""The fit of each kernel class: its free constants, their bounds, and a curve's predictions for measured rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.files import table_beside
from windtunnel.calibrate.kernels.samples import BACKWARD, Samples
from windtunnel.calibrate.kernels.solve import Bounds, log_errors, solve, thin_samples
from windtunnel.compute.attention import attention_seconds
from windtunnel.compute.curves import AttentionCurve, GemmCurve, MemoryCurve
from windtunnel.compute.device import Device
from windtunnel.compute.gemm import gemm_seconds
from windtunnel.compute.memory import memory_seconds

GEMM_BOUNDS: Bounds = {name: tuple(bounds) for name, bounds in table_beside(__file__)["gemm"].items()}
LAYOUT_BOUNDS: Bounds = {"dgrad": (0.8, 1.0, 1.3), "wgrad": (0.8, 1.0, 1.3)}
ATTENTION_BOUNDS: Bounds = {name: tuple(bounds) for name, bounds in table_beside(__file__)["attention"].items()}
MEMORY_BOUNDS: Bounds = {name: tuple(bounds) for name, bounds in table_beside(__file__)["memory"].items()}

CPU_GEMM: Bounds = {
    "fraction": (0.01, 0.85, 1.0),
    "latency": (0.0, 5e-6, 1e-4),
    "memory": (0.02, 0.5, 1.0),
    "prologue": (0.0, 20.0, 300.0),
    "blend": (1.0, 1.5, 3.0),
}
CPU_ATTENTION: Bounds = {"fraction": (0.005, 0.4, 1.0), "setup": (0.0, 20.0, 300.0), "latency": (0.0, 2e-5, 3e-4)}
FULL = 0.98
"""Share of memory bandwidth above which a processor's operator is limited by it."""

CPU_MEMORY: Bounds = {"efficiency": (0.002, 0.4, 1.0), "latency": (0.0, 1e-5, 3e-4), "cache": (1.0, 1.3, 8.0)}
"""Bounds for a processor, whose operators may be far slower than the best product or copy and cost microseconds; without waves and
throttling. In the order in which constants become free as the number of rows grows."""

CPU_ROWS = 4
"""Rows of a processor's class for each constant that is fitted."""

FEW = 40
"""Number of rows below which only constants are fitted that any row determines; the others are taken from a relative."""

LONG = 1e-5
"""Seconds from which a kernel that moves bytes has full weight in the fit: a timer resolves shorter ones to a tenth at best."""

INFERENCE = ("sarathi", "vllm", "sglang", "tensorrt_llm")
"""Libraries whose kernels no training framework runs."""

SCALE = ("fraction", "latency", "memory")
"""Bounds of those constants of a matrix product."""


def _determined_constants(table: Bounds, rows: int) -> Bounds:
    """The first constants of a processor's class, as many as its rows determine; at least one."""
    return dict(list(table.items())[: max(1, rows // CPU_ROWS)])


def trains(library: str) -> bool:
    """Whether training frameworks run kernels of this library."""
    return library not in INFERENCE


def gemm_predict(curve: GemmCurve, dev: Device, rows: Samples) -> Floats:
    """Seconds of products (a batch is one launch)."""
    layout = np.where(rows.phase == "dgrad", curve.dgrad, np.where(rows.phase == "wgrad", curve.wgrad, 1.0))
    return gemm_seconds(curve, dev, rows.batch, rows.m, rows.n, rows.k, rows.dtype, rows.moved, layout)


def fit_gemm(start: GemmCurve, dev: Device, rows: Samples, cpu: bool = False, starts: int = 3) -> GemmCurve:
    """Constants of the tile/wave model; rows with fewer than 512 tokens have half the weight, because training seldom runs them."""
    rows = thin_samples(rows)
    bounds = _determined_constants(CPU_GEMM, len(rows)) if cpu else dict(GEMM_BOUNDS)
    if not cpu and len(rows) < FEW:
        bounds = {name: bounds[name] for name in SCALE if name in bounds}
    for name in LAYOUT_BOUNDS:
        if np.count_nonzero(rows.phase == name) >= 8:
            bounds[name] = LAYOUT_BOUNDS[name]
    weight = np.where(rows.tokens < 512, 0.5, 1.0)
    curve = solve(start, bounds, lambda c: gemm_predict(c, dev, rows), rows.seconds, weight, starts)
    return curve if isinstance(curve, GemmCurve) else start


def attention_predict(curve: AttentionCurve, dev: Device, rows: Samples) -> Floats:
    """Seconds of attention rows of one direction."""
    way = "backward" if len(rows) and rows.phase[0] in BACKWARD else "forward"
    return attention_seconds(curve, dev, way, rows.batch, rows.m, rows.n, rows.size, rows.dtype, rows.work)


def determined_by_direction(start: AttentionCurve, dev: Device, rows: Samples) -> tuple[str, ...]:
    """The constants that rows of one direction determine: lengths, head sizes and masks must differ; few blocks show the
    latency."""
    names = ["fraction", "wave"]
    if len(rows) >= 12:
        share = rows.work / np.maximum(rows.batch * rows.m * rows.n * rows.size, 1.0)
        names += ["setup"] if len(set(rows.m)) >= 3 else []
        names += ["head"] if float(rows.size.max()) >= 1.5 * float(rows.size.min()) else []
        names += ["causal"] if float(np.ptp(share)) > 0.1 * float(share.max()) else []
        names += ["latency"] if np.count_nonzero(rows.batch * rows.m / start.rows < 4.0 * dev.sms) >= 4 else []
    return tuple(names)


def fit_attention(start: AttentionCurve, dev: Device, rows: Samples, names: tuple[str, ...], cpu: bool = False) -> AttentionCurve:
    """Fits the constants in `names`; the others stay as in `start`."""
    bounds = _determined_constants(CPU_ATTENTION, len(rows)) if cpu else {name: ATTENTION_BOUNDS[name] for name in names}
    curve = solve(start, bounds, lambda c: attention_predict(c, dev, rows), rows.seconds)
    return curve if isinstance(curve, AttentionCurve) else start


def memory_predict(curve: MemoryCurve, dev: Device, rows: Samples) -> Floats:
    """Seconds of rows that move bytes."""
    return memory_seconds(curve, dev, rows.moved, np.isin(rows.phase, BACKWARD), rows.m, rows.n)


def fit_memory(start: MemoryCurve, dev: Device, rows: Samples, by_row: bool = True, cpu: bool = False) -> MemoryCurve:
    """Bandwidth share, latency, cache gain and a block's time from forward rows; the backward factor is the median ratio of
    backward rows.

    `by_row`: whether each of m rows of n elements is the work of one block, as in norms.
    """
    backward = np.isin(rows.phase, BACKWARD)
    ahead = thin_samples(rows if backward.all() else rows.take(~backward))
    start = replace(start, backward=1.0, row=0.0, element=0.0)
    names = ["efficiency", "latency"] if not cpu or len(ahead) >= CPU_ROWS else ["efficiency"]
    if float(ahead.moved.min()) < dev.l2 < float(ahead.moved.max()) and len(ahead) >= 6:
        names += ["cache", "reach"] if float(ahead.moved.max()) > 2.0 * dev.l2 and len(ahead) >= 20 else ["cache"]
    if by_row and len(ahead) >= 20 and min(len(set(ahead.m)), len(set(ahead.n))) >= 2:
        names += ["row", "element"]

    def fit_constants(first: MemoryCurve, free: list[str]) -> object:
        bounds = {name: CPU_MEMORY.get(name, MEMORY_BOUNDS[name]) if cpu else MEMORY_BOUNDS[name] for name in free}
        return solve(first, bounds, lambda c: memory_predict(c, dev, ahead), ahead.seconds, np.minimum(1.0, ahead.seconds / LONG))

    curve = fit_constants(start, names)
    if cpu and "cache" not in names and isinstance(curve, MemoryCurve) and curve.efficiency > FULL:
        # no operator moves more than memory does: what is beyond came from the cache
        curve = fit_constants(replace(start, efficiency=1.0), ["cache", *names[1:]])
    if not isinstance(curve, MemoryCurve) or backward.all() or not backward.any():
        return curve if isinstance(curve, MemoryCurve) else start
    behind = rows.take(backward)
    factor = float(np.exp(-np.median(log_errors(memory_predict(curve, dev, behind), behind))))
    return replace(curve, backward=max(factor, 0.1))
