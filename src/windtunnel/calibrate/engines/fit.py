"""Constants of an engine's kernels on one GPU, each class fitted on the shapes that are not held out.

What the curves of `compute.engines` give for measured rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.base.dataclasses import dataclass, field, fields, replace
from windtunnel.base.dtypes import FORMATS
from windtunnel.calibrate.engines.columns import (
    EngineRows,
    cache_rows,
    caches_of,
    expert_rows,
    join_experts,
    linear_rows,
    pointwise_rows,
    prefill_rows,
    prompts_of,
    quantising_rows,
    routed_of,
)
from windtunnel.calibrate.engines.solve import Bounds, solve_curve
from windtunnel.compute.curves import ErrorStatistics, GemmCurve
from windtunnel.compute.device import Device
from windtunnel.compute.engines.curves import (
    FITTED,
    DecodeCurve,
    EngineCurves,
    ExpertsCurve,
    LinearCurve,
    PointwiseCurve,
    PrefillCurve,
)
from windtunnel.compute.engines.seconds import (
    decode_seconds,
    experts_seconds,
    pointwise_seconds,
    prefill_seconds,
    product_seconds,
    quantise_seconds,
)


def predict_linear(dev: Device, form: str, curve: LinearCurve, rows: EngineRows) -> Floats:
    """[rows] seconds of linear layers: quantising and product."""
    m, n, k = (rows.what[name] for name in "mnk")
    product = product_seconds(curve, dev, form, m, n, k)
    return np.asarray(product + quantise_seconds(curve, dev, form, m, k), np.float64)


def predict_decode(dev: Device, form: str, curve: DecodeCurve, rows: EngineRows) -> Floats:
    """[rows] seconds of attention over caches that are replayed, so that small ones stay in the L2."""
    return decode_seconds(curve, dev, FORMATS[form].width, caches_of(rows), cold=False)


def predict_prefill(dev: Device, form: str, curve: PrefillCurve, rows: EngineRows) -> Floats:
    """[rows] seconds of attention over prompts."""
    return prefill_seconds(curve, dev, form, prompts_of(rows))


def predict_experts(dev: Device, form: str, curve: ExpertsCurve, rows: EngineRows) -> Floats:
    """[rows] seconds of fused experts."""
    return experts_seconds(curve, dev, form, routed_of(rows))


LEAST = 200
"""Rows that a class needs."""

MOST = 2500
"""Rows that a fit uses, drawn evenly from the others."""

CAPPED = 0.3
"""Log error beyond which a row counts no more where two curves are compared."""

LONGEST_SHORT = 30e-6
"""Seconds. Of products and of attention over caches a tenth takes less on every GPU, unless the host launches them one by one."""

SLOWEST_QUANTISING = 1.5
"""Fitted over timed seconds of quantising beyond which a table's layers are not those that the engine serves. TensorRT-LLM's are
1.04 to 1.14 times as long, vLLM's 2.3 to 3.2 on all six GPUs: its collector (aiconfigurator, collector/vllm/collect_gemm.py) runs
layers outside of a compiled model, on weights that are all the same number, which draw less power: products then pass the peak."""

EARLIER = {"vllm_fused_moe": "triton"}
"""Experts' kernels that an engine ran by default before the quickest of its table, as older tables name them -> what a server says
of it. vLLM's collector called `fused_experts`, which is Triton's, up to 0.19."""

TILES = {
    "ampere": ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64)),
    "ada": ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64)),
    "hopper": ((128, 256), (256, 128), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64)),
    "blackwell": ((256, 256), (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64)),
    "cdna3": ((256, 256), (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64)),
    "cdna4": ((256, 256), (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64)),
}
"""Output tiles of libraries' products by architecture, as in `calibrate.kernels.fit`."""

GEMM: Bounds = {
    "fraction": (0.3, 0.85, 1.1), "tile_cost": (0.0, 8.0, 120.0), "prologue": (0.0, 100.0, 600.0), "wave": (0.0, 0.4, 1.0),
    "memory": (0.3, 0.85, 1.1), "latency": (5e-7, 2.5e-6, 1e-5), "split": (0.0, 2.5e-6, 1e-4), "blend": (1.0, 2.5, 8.0),
    "throttle": (0.0, 0.1, 0.8), "settle": (1e-5, 3e-4, 1e-2), "store": (0.3, 0.9, 1.2),
}  # fmt: skip
DECODE: Bounds = {
    "latency": (1e-6, 8e-6, 6e-5), "memory": (0.1, 0.85, 1.2), "setup": (1e-9, 1.5e-6, 6e-6), "key": (1e-11, 2e-9, 1e-7),
    "merge": (1e-8, 3e-6, 1e-5), "blend": (1.0, 2.0, 8.0), "cache": (1.0, 1.5, 6.0), "rate": (0.05, 0.6, 1.0),
}  # fmt: skip
PREFILL: Bounds = {
    "fraction": (0.05, 0.7, 1.1), "wave": (0.0, 0.6, 1.5), "alone": (0.0, 0.7, 1.5), "setup": (0.0, 150.0, 3000.0),
    "head": (0.0, 60.0, 200.0), "wide": (0.0, 0.1, 1.0), "own": (0.0, 0.05, 1.0), "latency": (1e-6, 8e-6, 5e-5),
}  # fmt: skip
ROWS = (64, 128, 256)
"""Query rows of a block that kernels of attention have."""
EXPERTS: Bounds = {
    "latency": (2e-6, 3e-5, 5e-4), "memory": (0.1, 0.8, 1.1), "fraction": (0.05, 0.6, 1.1), "tile": (0.0, 20.0, 200.0),
    "moved": (0.03, 0.4, 2.0), "spread": (0.03, 5.0, 50.0), "blend": (1.0, 2.5, 8.0),
}  # fmt: skip
POINTWISE: Bounds = {"latency": (2e-7, 2e-6, 3e-5), "memory": (0.02, 0.8, 1.2), "cache": (1.0, 1.3, 8.0)}
QUANTISE: Bounds = {"quantise": (0.0, 2e-6, 3e-5), "bandwidth": (0.02, 0.6, 4.0)}
"""(lowest, expected, highest) of each constant."""

FIRST = GemmCurve(
    fraction=0.85, tiles=TILES["hopper"], tile_cost=8.0, prologue=100.0, wave=0.4, memory=0.85, latency=2.5e-6, split=2.5e-6,
    blend=2.5, throttle=0.1, settle=3e-4,
)  # fmt: skip


@dataclass(frozen=True)
class QuantisedProduct(GemmCurve):
    """A linear layer's constants side by side, as the solver takes them; see `LinearCurve`."""

    quantise: float = 0.0
    bandwidth: float = 1.0

    @classmethod
    def of(cls, product: GemmCurve, quantise: float = 0.0, bandwidth: float = 1.0) -> QuantisedProduct:
        """From a product's constants."""
        return cls(**{one.name: getattr(product, one.name) for one in fields(GemmCurve)}, quantise=quantise, bandwidth=bandwidth)

    def as_linear(self) -> LinearCurve:
        """The product apart from its quantising."""
        product = GemmCurve(**{one.name: getattr(self, one.name) for one in fields(GemmCurve)})
        return LinearCurve(product, self.quantise, self.bandwidth)


@dataclass
class EngineFit:
    """A fit: the curves, and errors ln(predicted / measured) of held-out rows by class, with the rows' tokens."""

    curves: EngineCurves
    errors: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)


@dataclass
class EngineFitter:
    """Fits the classes of one engine on one GPU. `data`: its releases, the newest first; `least`: rows that a class needs;
    `whole`: tables of an engine, with attention, of which some wait for the host; else kernels that a tuner timed; `older`: tables
    of experts of all releases, the newest first, for kernels of EARLIER."""

    dev: Device
    architecture: str
    data: list[Any]
    least: int = LEAST
    whole: bool = True
    older: list[Any] = field(default_factory=list)
    errors: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)

    def fit(self) -> EngineFit | None:
        """All classes with enough rows; None without products or attention."""
        linear = self._linear()
        caches = {form: cached for form in ("bf16", "fp8") if (cached := self._decode(form, False)) is not None}
        prompts = {form: ahead for form in ("bf16", "fp8") if (ahead := self._prefill(form, "prefill")) is not None}
        if not linear or (self.whole and not (caches and prompts)):
            return None
        latent = {form: cached for form in ("bf16", "fp8") if (cached := self._decode(form, True)) is not None}
        latent_prompts = {form: ahead for form in ("bf16",) if (ahead := self._prefill(form, "latent prefill")) is not None}
        windowed = {form: ahead for form in ("bf16", "fp8") if (ahead := self._prefill(form, "windowed")) is not None}
        experts = {form: found for form in FITTED if (found := self._experts(form)) is not None}
        releases = tuple(sorted({one.about.source for one in self.data}))
        others = self._other_experts()
        curves = EngineCurves(releases, linear, caches, prompts, windowed, latent, latent_prompts, experts, others)
        return EngineFit(curves, self.errors)

    @cached_property
    def experts(self) -> dict[bool, Any]:
        """Fused experts of all releases, by quickest kernels and by all: a newer release may have those of new models alone."""
        return {quickest: join_experts(self.data, quickest) for quickest in (True, False)}

    def _best(self, read: Callable[[Any], EngineRows | None]) -> EngineRows | None:
        """The rows of the newest release that has enough of them."""
        return next((rows for one in self.data if (rows := read(one)) is not None and len(rows) >= self.least), None)

    def _fit(
        self, what: str, rows: EngineRows, start: Any, bounds: Bounds, predict: Callable[[Any, EngineRows], Floats]
    ) -> tuple[Any, Mapping[str, ErrorStatistics]]:
        """The curve from `start`, or from the nearest of several."""
        seen = thin_rows(rows.take(~rows.held))
        starts = start if isinstance(start, list) else [start]
        found = [solve_curve(one, bounds, lambda c: predict(c, seen), seen.seconds) for one in starts]
        curve = min(found, key=lambda one: float(np.mean(np.minimum(np.abs(np.log(predict(one, seen) / seen.seconds)), CAPPED))))
        kept = rows.take(rows.held)
        errors = np.log(predict(curve, kept) / kept.seconds)
        self.errors[what] = (errors, kept.tokens)
        return curve, statistics_of(errors, kept.tokens)

    def _linear(self) -> dict[str, LinearCurve]:
        made: dict[str, LinearCurve] = {}
        start = replace(FIRST, tiles=TILES.get(self.architecture, TILES["hopper"]))
        for form in FITTED:
            rows = self._best(lambda one, form=form: linear_rows(one, form))  # type: ignore[misc]
            if rows is None or (self.whole and host_bound(rows)):
                continue
            if form == "bf16":
                flat, found = self._fit("linear bf16", rows, QuantisedProduct.of(start), GEMM, self._linear_of("bf16"))
                start = flat.as_linear().product
                made[form] = replace(flat.as_linear(), held_out=found)
                continue
            if FORMATS[form].weight_only:
                flat, found = self._fit(f"linear {form}", rows, QuantisedProduct.of(start), GEMM, self._linear_of(form))
                made[form] = replace(flat.as_linear(), held_out=found)
                continue
            # A kernel in few bits starts as one in 16; what is longer is the quantising.
            bounds = {name: bound for name, bound in GEMM.items() if name != "latency"}
            begin = QuantisedProduct.of(start, 2e-6, 0.6)
            flat, found = self._fit(f"linear {form}", rows, begin, bounds | QUANTISE, self._linear_of(form))
            if form == "fp8" and self._quantises_otherwise(flat):
                del self.errors[f"linear {form}"]
                continue
            made[form] = replace(flat.as_linear(), held_out=found)
        return made

    def _linear_of(self, form: str) -> Callable[[QuantisedProduct, EngineRows], Floats]:
        return lambda flat, part: predict_linear(self.dev, form, flat.as_linear(), part)

    def _quantises_otherwise(self, flat: QuantisedProduct) -> bool:
        """Whether layers of the table quantise by other kernels than the engine's, which take far less alone."""
        rows = self._best(quantising_rows)
        if rows is None:
            return False
        part = rows.take(rows.tokens >= 1024.0)
        taken = quantise_seconds(flat.as_linear(), self.dev, "fp8", part.what["m"], part.what["k"])
        return bool(np.median(taken / part.seconds) > SLOWEST_QUANTISING)

    def _decode(self, form: str, latent: bool) -> DecodeCurve | None:
        rows = self._best(lambda one: cache_rows(one, form, latent))
        rows = rows.usual_kernel() if rows is not None else None
        if rows is None or host_bound(rows):
            return None
        name = f"{'latent ' if latent else ''}decode {form}"
        start = DecodeCurve(8e-6, 0.85, 1.5e-6, 2e-9, 3e-6, 2.0, 1.5, 0.6)
        curve: DecodeCurve
        curve, found = self._fit(name, rows, start, DECODE, partial(predict_decode, self.dev, form))
        return replace(curve, held_out=found)

    def fit_pointwise(self) -> PointwiseCurve | None:
        """Kernels that move bytes."""
        rows = self._best(pointwise_rows)
        if rows is None:
            return None

        def predict(one: PointwiseCurve, part: EngineRows) -> Floats:
            return pointwise_seconds(one, self.dev, part.what["moved"], cold=False)

        curve: PointwiseCurve
        curve, found = self._fit("pointwise", rows, PointwiseCurve(2e-6, 0.8), POINTWISE, predict)
        return replace(curve, held_out=found)

    def _prefill(self, form: str, kind: str) -> PrefillCurve | None:
        rows = self._best(lambda one: prefill_rows(one, form, kind))
        rows = rows.usual_kernel() if rows is not None else None
        if rows is None or len(rows) < self.least:
            return None
        start = PrefillCurve(0.7, 128, 0.6, 0.7, 150.0, 60.0, 0.1, 0.05, 8e-6)
        curve: PrefillCurve
        starts = [replace(start, rows=count) for count in ROWS]
        curve, found = self._fit(f"{kind} {form}", rows, starts, PREFILL, partial(predict_prefill, self.dev, form))
        return replace(curve, held_out=found)

    def _expert_rows(self, form: str, quickest: bool) -> EngineRows | None:
        """Rows of the usual kernel, if there are enough."""
        rows = expert_rows(self.experts[quickest], form)
        rows = rows.usual_kernel() if rows is not None else None
        return rows if rows is not None and len(rows) >= self.least else None

    def _other_experts(self) -> dict[str, dict[str, ExpertsCurve]]:
        """By kernel and format, where most rows are of another kernel than the quickest."""
        found: dict[str, dict[str, ExpertsCurve]] = {}
        for form in FITTED:
            quick, usual = (self._expert_rows(form, quickest) for quickest in (True, False))
            if usual is not None and (quick is None or quick.kernel[0] != usual.kernel[0]):
                name = str(usual.kernel[0]).rsplit("_", 1)[-1]
                found.setdefault(name, {})[form] = self._fit_experts(f"experts {form} by {name}", form, usual)
            for kernel, name in EARLIER.items():
                rows = self._earlier_rows(form, kernel)
                if rows is not None and (quick is None or quick.kernel[0] != kernel):
                    found.setdefault(name, {})[form] = self._fit_experts(f"experts {form} by {name}", form, rows)
        return found

    def _earlier_rows(self, form: str, kernel: str) -> EngineRows | None:
        """Experts' rows of `kernel` in the table that has most of them, the newest of several; None if these are too few."""
        parts = [rows.take(rows.kernel == kernel) for one in self.older if (rows := expert_rows(one, form)) is not None]
        most = max(parts, key=len, default=None)
        return most if most is not None and len(most) >= self.least else None

    def _experts(self, form: str) -> ExpertsCurve | None:
        rows = self._expert_rows(form, True)
        return None if rows is None else self._fit_experts(f"experts {form}", form, rows)

    def _fit_experts(self, name: str, form: str, rows: EngineRows) -> ExpertsCurve:
        start = ExpertsCurve(3e-5, 0.8, 0.6, 20.0, 0.4, 5.0, 2.5)

        curve: ExpertsCurve
        curve, found = self._fit(name, rows, start, EXPERTS, partial(predict_experts, self.dev, form))
        return replace(curve, held_out=found)


def host_bound(rows: EngineRows) -> bool:
    """Whether calls wait for the host: even the shortest take longer than kernels of a captured graph."""
    return bool(np.quantile(rows.seconds, 0.1) > LONGEST_SHORT)


def thin_rows(rows: EngineRows, most: int = MOST) -> EngineRows:
    """At most `most` rows, drawn in the same way in each run."""
    if len(rows) <= most:
        return rows
    return rows.take(np.sort(np.random.default_rng(0).permutation(len(rows))[:most]))


def statistics_of(errors: Floats, tokens: Floats) -> Mapping[str, ErrorStatistics]:
    """Errors of held-out rows by tokens of a call."""
    parts: dict[str, Bools] = {"below 1024": tokens < 1024, "from 1024": tokens >= 1024}
    return {name: _statistics(errors[mask]) for name, mask in parts.items() if mask.sum() >= 10}


def _statistics(errors: Floats) -> ErrorStatistics:
    size = np.abs(errors)
    figures = (100.0 * np.median(size), 100.0 * np.quantile(size, 0.9), 100.0 * np.mean(errors))
    return ErrorStatistics(float(len(errors)), *(float(f"{value:.3g}") for value in figures))
