"""Fits the constants of `compute.forward` by GPU, and the table of their errors.

The command is `windtunnel fit forward [FOLDER]`. Rates are those of TensorRT-LLM, whose products are cuBLASLt's and CUTLASS's, as
Transformer Engine's are. Of recurrences, its rows are nearer than SGLang's to the newest flash-linear-attention
(`published/scans.toml`); those of a decay by channel are SGLang's. Backward is not in the tables: its share is forward's over the
ratio that measured recurrences show.

Rows of imported tables as columns: recurrences, convolutions, and pairs of a product in bf16 and in fewer bits.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.dtypes import FORMATS
from windtunnel.calibrate.engines.catalogue import SYSTEMS
from windtunnel.calibrate.engines.columns import held_out
from windtunnel.calibrate.engines.solve import Bounds, solve_curve
from windtunnel.calibrate.forward.deepep import fit_dispatch
from windtunnel.calibrate.forward.sustained import SYSTEMS as SUSTAINED
from windtunnel.calibrate.forward.sustained import SustainedFit, fit_sustained
from windtunnel.compute.choose import choose
from windtunnel.compute.curves import Provenance
from windtunnel.compute.device import Device
from windtunnel.compute.engines.seconds import engine_device
from windtunnel.compute.forward import DEFAULT, FILE, forward_text
from windtunnel.compute.forward_curves import ConvolutionCurve, ForwardCurves, NarrowRate, ScanConstants, ScanCurve
from windtunnel.compute.kernel_file import FOLDER
from windtunnel.compute.scan import convolution_seconds, scan_seconds
from windtunnel.formats.machines.kernels.measured.importer import MeasuredEngine, read_measured
from windtunnel.formats.machines.kernels.measured.tables import version_key
from windtunnel.network.closed.cost import FILE as DISPATCHES
from windtunnel.network.closed.cost import DispatchCurve, dispatch_text
from windtunnel.records import Dataset
from windtunnel.spec import load_gpu
from windtunnel.workload.mixers.linear_attention import CHUNK, delta_work
from windtunnel.workload.mixers.mamba2 import state_space_work
from windtunnel.workload.ops import DTYPES

TABLES = "NVIDIA aiconfigurator-core 0.12.0, systems/data, Apache-2.0: windtunnel fit forward"
SOURCE = "NVIDIA aiconfigurator-core 0.12.0, systems/data, Apache-2.0; catalog/kernels/published/scans.toml: windtunnel fit forward"
RECIPES = {"fp8": "current", "fp8_block": "blockwise", "nvfp4": "nvfp4"}
"""Formats of the tables -> recipes of a runtime. Delayed scaling has the products of current scaling."""

STATED = ("nvfp4",)
"""Recipes whose rate is compared and not stored: Transformer Engine publishes products that are already quantised
(`device.OVER_WIDE`), while a good part of a layer of the tables is quantising."""

SCAN: Bounds = {"latency": (5e-7, 3e-6, 1e-5), "memory": (0.05, 0.4, 1.0), "step": (1e-8, 2e-6, 2e-5)}
PRODUCTS: Bounds = {**SCAN, "rate": (0.02, 0.15, 1.0), "latency": (5e-7, 3e-6, 1e-5)}
CONVOLUTION: Bounds = {"latency": (5e-7, 3e-6, 3e-5), "memory": (0.05, 0.6, 1.2)}
LAYER: Bounds = {"rate": (0.5, 1.8, 6.0), "share": (0.05, 0.5, 2.0)}
RATES = "trtllm"
"""The engine whose products stand for those of training."""

LEAST = 100
"""Rows that a class needs."""

FLOOR = 0.08
"""Least relative error that a class claims, as of other kernels; assumed."""

RELEASES = 0.2
"""Relative error of a recurrence of another release: flash-linear-attention 0.6.0 is a fifth faster than TensorRT-LLM's copy of it,
SGLang's a third slower."""

CARRIED = 0.2
"""Relative error of a recurrence that another one's ratio between GPUs carries; assumed."""

Line = tuple[str, str, str, int, float, float, float]
"""GPU, class, source, rows, median, 90 % quantile and mean of ln(predicted / measured), per cent."""


@dataclass(frozen=True)
class _Layer:
    """A linear layer over its bf16 product."""

    rate: float
    share: float

    def seconds(self, rows: NarrowRows, form: str, bandwidth: float) -> Floats:
        """[rows] seconds: product and quantising."""
        return np.asarray(rows.wide / self.rate + (2.0 + FORMATS[form].width) * rows.read / (self.share * bandwidth), np.float64)


@dataclass
class ForwardFit:
    """Constants by GPU, and the errors of held-out rows."""

    gpus: dict[str, ForwardCurves] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    dispatches: dict[str, Mapping[str, DispatchCurve]] = field(default_factory=dict)
    """By GPU and way: DeepEP's kernels."""

    def text(self) -> str:
        """The catalogue's file."""
        return forward_text(SOURCE, self.gpus)

    def as_dict(self) -> dict[str, Any]:
        """The errors as plain data."""
        names = ("gpu", "class", "source", "rows", "median_pct", "p90_pct", "bias_pct")
        return {"errors": [dict(zip(names, line, strict=True)) for line in self.lines]}


def fit_forward(
    folder: str | Path | None = None, systems: Sequence[str] = SYSTEMS, report: Callable[[float], object] = lambda share: None
) -> ForwardFit:
    """Constants of all GPUs of `systems`, from a folder of tables or the wheel. Raises as `read_measured`."""
    made = ForwardFit()
    for count, system in enumerate(systems):
        report(count / len(systems))
        read = read_measured(folder, systems=[system], families=[])
        engines = sorted(
            (one for one in read.engines if one.data is not None), key=lambda one: version_key(one.release), reverse=True
        )
        _fit_gpu(made, engines)
        _fit_dispatches(made, engines[0].gpu, read.engines)
        if system in SUSTAINED and engines[0].gpu in made.gpus:
            _fit_products(made, fit_sustained(folder, system, choose(load_gpu(engines[0].gpu)).kernels.gemm))
    _carry_state_space(made)
    made.gpus = {name: curves for name, curves in made.gpus.items() if "state_space" in curves.scans}
    return made


def write_forward(made: ForwardFit, path: Path = FILE, dispatch: Path = DISPATCHES) -> None:
    """Writes the catalogue's files: kernels, and DeepEP's calls where tables had them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(made.text(), encoding="utf-8")
    if made.dispatches:
        dispatch.write_text(dispatch_text(TABLES, made.dispatches), encoding="utf-8")


def _fit_gpu(made: ForwardFit, engines: Sequence[MeasuredEngine]) -> None:
    gpu = engines[0].gpu
    dev = engine_device(load_gpu(gpu))
    scans: dict[str, ScanCurve] = {}
    for kind, order in (("delta", ("trtllm", "sglang")), ("delta_by_channel", ("sglang",))):
        rows, source = _choose_rows(engines, order, partial(scan_rows, kind=kind))
        if rows is not None:
            scans[kind] = _fit_delta(made, dev, gpu, kind, rows, source)
    rows, source = _choose_rows(engines, ("sglang", "vllm"), convolution_rows)
    if rows is None or not scans:
        return
    made.gpus[gpu] = ForwardCurves(scans, _fit_convolution(made, dev, gpu, rows, source), _fit_rates(made, gpu, engines))


def _fit_dispatches(made: ForwardFit, gpu: str, engines: Sequence[MeasuredEngine]) -> None:
    curves, errors = fit_dispatch(engines)
    if curves:
        made.dispatches[gpu] = curves
    for way, found in errors.items():
        _add_line(made, gpu, f"DeepEP {way} in a node", curves[way].source.removeprefix("aiconfigurator "), found)


def _fit_products(made: ForwardFit, found: SustainedFit | None) -> None:
    if found is None:
        return
    made.gpus[found.gpu] = replace(made.gpus[found.gpu], products=found.products)
    for release, errors in found.errors.items():
        _add_line(made, found.gpu, "products in bf16, sustained", release, errors)


def _choose_rows(
    engines: Sequence[MeasuredEngine], order: Sequence[str], read: Callable[[Any], ScanRows | None]
) -> tuple[ScanRows | None, str]:
    """The rows of the first engine that has enough."""
    for name in order:
        for one in engines:
            rows = read(one.data) if one.engine == name else None
            if rows is not None and len(rows.seconds) >= LEAST:
                return rows, f"{name} {one.release}"
    return None, ""


def predict_scan(way: ScanConstants, dev: Device, rows: ScanRows) -> Floats:
    """[rows] seconds of one direction."""
    curve = ScanCurve(way, way, 0.0, Provenance.MODELLED, "")
    dtype = np.full(len(rows.seconds), DTYPES.index("bf16"), np.int8)
    forward = np.zeros(len(rows.seconds), np.bool_)
    return scan_seconds(curve, dev, forward, rows.tokens, rows.chunk, rows.moved, rows.flops, dtype, rows.launches)


def _solve(way: ScanConstants, bounds: Bounds, dev: Device, rows: ScanRows) -> ScanConstants:
    found: ScanConstants = solve_curve(way, bounds, lambda one: predict_scan(one, dev, rows), rows.seconds)
    return found


def _fit_delta(made: ForwardFit, dev: Device, gpu: str, kind: str, rows: ScanRows, source: str) -> ScanCurve:
    forward = _solve(ScanConstants(3e-6, 0.4, 1.0, 2e-6), SCAN, dev, rows.take(~rows.held))
    held = rows.take(rows.held)
    errors = np.log(predict_scan(forward, dev, held) / held.seconds)
    _add_line(made, gpu, f"{kind} forward", source, errors)
    slower = _backward_over_forward()
    backward = ScanConstants(forward.latency, forward.memory / slower, 1.0, 2.0 * forward.step)
    large = errors[held.tokens >= 1024]
    return ScanCurve(
        forward,
        backward,
        float(np.hypot(_sigma(large), RELEASES)),
        Provenance.MODELLED,
        f"aiconfigurator {source}",
        _median(large),
        len(large),
    )


def _backward_over_forward() -> float:
    """Time of a delta rule's backward over its forward, as measured, over the ratio of their bytes."""
    measured = published_scans("delta")
    if measured is None:
        return 1.0
    ahead, back = measured
    return float(np.median((back.seconds / ahead.seconds) / (back.moved / ahead.moved)))


def _carry_state_space(made: ForwardFit) -> None:
    """The state-space scan where it was measured, and on the others by what the delta rule reaches there over here."""
    measured, home = published_scans("state_space"), made.gpus.get(DEFAULT)
    if measured is None or home is None:
        return
    dev = engine_device(load_gpu(DEFAULT))
    start = ScanConstants(3e-6, 0.6, 0.15, 1e-6)
    ways = [_solve(start, PRODUCTS | {"step": (1e-8, 1e-6, 2e-5)}, dev, rows) for rows in measured]
    errors = np.concatenate([_left_out(start, dev, rows) for rows in measured])
    for way, part in zip(
        ("forward", "backward"), (errors[: len(measured[0].seconds)], errors[len(measured[0].seconds) :]), strict=True
    ):
        _add_line(made, DEFAULT, f"state_space {way}", "measured, each left out once", part)
    source = "catalog/kernels/published/scans.toml"
    own = ScanCurve(ways[0], ways[1], _sigma(errors), Provenance.MODELLED, source, _median(errors), len(errors))
    for gpu, curves in made.gpus.items():
        found = own
        if gpu != DEFAULT:
            here, there = _share(curves), _share(home)
            moved = [
                replace(way, memory=min(1.0, way.memory * here / there), rate=min(1.0, way.rate * here / there)) for way in ways
            ]
            found = ScanCurve(
                moved[0], moved[1], float(np.hypot(own.error, CARRIED)), Provenance.TRANSFERRED, f"{source}, {DEFAULT}"
            )
        made.gpus[gpu] = replace(curves, scans={**curves.scans, "state_space": found})


def _left_out(start: ScanConstants, dev: Device, rows: ScanRows) -> Floats:
    """Errors of rows, each by the constants of the others."""
    errors = []
    for row in range(len(rows.seconds)):
        mask = np.arange(len(rows.seconds)) == row
        found = _solve(start, PRODUCTS, dev, rows.take(~mask))
        errors.append(float(np.log(predict_scan(found, dev, rows.take(mask)) / rows.seconds[mask])[0]))
    return np.array(errors)


def _share(curves: ForwardCurves) -> float:
    """Share of bandwidth that a GPU's delta rule reaches, from SGLang's kernels by channel, else from those of a decay a head."""
    scans = curves.scans
    return scans["delta_by_channel" if "delta_by_channel" in scans else "delta"].forward.memory


def _fit_convolution(made: ForwardFit, dev: Device, gpu: str, rows: ScanRows, source: str) -> ConvolutionCurve:
    rows = rows.take(rows.moved > 1.5 * dev.l2)
    start = ConvolutionCurve(3e-6, 0.6, 0.0, Provenance.MODELLED, "")

    def predict(curve: ConvolutionCurve, part: ScanRows) -> Floats:
        return convolution_seconds(curve, dev, part.moved, part.launches)

    seen, held = rows.take(~rows.held), rows.take(rows.held)
    curve: ConvolutionCurve = solve_curve(start, CONVOLUTION, lambda one: predict(one, seen), seen.seconds)
    errors = np.log(predict(curve, held) / held.seconds)
    _add_line(made, gpu, "short convolution", source, errors)
    return replace(curve, error=_sigma(errors), source=f"aiconfigurator {source}", held_out=_median(errors), rows=len(errors))


def _fit_rates(made: ForwardFit, gpu: str, engines: Sequence[MeasuredEngine]) -> Mapping[str, NarrowRate]:
    """The rate of each recipe in the newest release of `RATES`."""
    bandwidth = load_gpu(gpu).memory_bandwidth
    found: dict[str, NarrowRate] = {}
    for form, recipe in RECIPES.items():
        for one in engines:
            rows = narrow_rows(one.data, form) if one.engine == RATES and one.data is not None else None
            if rows is None or len(rows.seconds) < LEAST:
                continue
            seen, held = (_part(rows, mask) for mask in (~rows.held, rows.held))
            layer: _Layer = solve_curve(
                _Layer(1.8, 0.5), LAYER, partial(_Layer.seconds, rows=seen, form=form, bandwidth=bandwidth), seen.seconds
            )
            errors = np.log(layer.seconds(held, form, bandwidth) / held.seconds)
            source = f"aiconfigurator {one.engine} {one.release}"
            if recipe not in STATED:
                found[recipe] = NarrowRate(layer.rate, _sigma(errors), source, _median(errors), len(errors))
            _add_line(made, gpu, f"{recipe}: {layer.rate:.2f} of bf16, quantising apart", f"{one.engine} {one.release}", errors)
            break
    return found


def _part(rows: NarrowRows, mask: np.ndarray[Any, Any]) -> NarrowRows:
    return NarrowRows(*(column[mask] for column in vars(rows).values()))


def _sigma(errors: Floats) -> float:
    """One standard deviation of the middle of errors, at least FLOOR."""
    return float(max(FLOOR, np.quantile(np.abs(errors), 0.68))) if len(errors) else 4.0 * FLOOR


def _median(errors: Floats) -> float:
    return float(100.0 * np.median(np.abs(errors))) if len(errors) else 0.0


def _line(gpu: str, what: str, source: str, errors: Floats) -> Line:
    if not len(errors):
        return gpu, what, source, 0, 0.0, 0.0, 0.0
    size = np.abs(errors)
    median, most, bias = (float(f"{100.0 * one:.3g}") for one in (np.median(size), np.quantile(size, 0.9), np.mean(errors)))
    return gpu, what, source, len(errors), median, most, bias


def _add_line(made: ForwardFit, gpu: str, what: str, source: str, errors: Floats) -> None:
    made.lines.append(_line(gpu, what, source, errors))


PUBLISHED = FOLDER / "published" / "scans.toml"
KERNELS = {"delta": ("chunk_gated_delta_rule",), "delta_by_channel": ("chunk_kda",)}
"""Recurrence -> kernels of the tables that training frameworks launch too: those of flash-linear-attention."""

CONVOLUTIONS = ("causal_conv1d_fn",)
LARGE = 2e11
"""FLOP from which a product's rate is its own and not its start's."""

SIDE = 1024


@dataclass(frozen=True)
class ScanRows:
    """Columns over calls of a recurrence in one direction: tokens of a sequence and of a chunk, bytes, FLOP, kernels."""

    tokens: Floats
    chunk: Floats
    moved: Floats
    flops: Floats
    launches: Floats
    seconds: Floats
    held: Bools

    def take(self, rows: Bools) -> ScanRows:
        """The rows of a mask."""
        return ScanRows(*(column[rows] for column in vars(self).values()))


@dataclass(frozen=True)
class NarrowRows:
    """Linear layers of a recipe beside the product of the same shape in bf16. `read`: numbers that are quantised."""

    seconds: Floats
    wide: Floats
    read: Floats
    held: Bools


def scan_rows(data: Dataset, kind: str) -> ScanRows | None:
    """Prompts of at least a chunk through a recurrence; sequences x heads are held out."""
    part = _context(data, KERNELS[kind])
    if not len(part.table):
        return None
    batch, m, v, k, seconds = (_numbers(part, name) for name in ("batch", "m", "n", "k", "seconds"))
    shapes = zip(m.tolist(), batch.tolist(), k.tolist(), v.tolist(), strict=True)
    work = [delta_work(tokens, int(heads), int(key), int(value), 2.0) for tokens, heads, key, value in shapes]
    moved, flops, launches = (
        np.array([getattr(one, name)[0] for one in work], np.float64) for name in ("moved", "flops", "launches")
    )
    rows = ScanRows(m, np.full(len(m), float(CHUNK)), moved, flops, launches, seconds, held_out(batch, v, k))
    return rows.take(m >= CHUNK)


def convolution_rows(data: Dataset) -> ScanRows | None:
    """Convolutions of whole prompts, large enough that the L2 holds none of it; channels are held out."""
    part = _context(data, CONVOLUTIONS)
    if not len(part.table):
        return None
    batch, m, n, seconds = (_numbers(part, name) for name in ("batch", "m", "n", "seconds"))
    moved, one = 4.0 * batch * m * n, np.ones(len(m))
    rows = ScanRows(m, one, moved, 0.0 * one, one, seconds, held_out(batch, n))
    return rows.take(m >= CHUNK)


def narrow_rows(data: Dataset, form: str) -> NarrowRows | None:
    """Large products; weights' shapes are held out."""
    wide = data.where(level="kernel", op="gemm", name="linear", dtype="bf16")
    part = data.where(level="submodule", op="linear", shape=f"recipe={form}")
    if not len(wide.table) or not len(part.table):
        return None
    known = dict(zip(zip(*(_numbers(wide, name).tolist() for name in "mnk"), strict=True), _numbers(wide, "seconds"), strict=True))
    m, n, k, seconds = (_numbers(part, name) for name in ("m", "n", "k", "seconds"))
    beside = np.array([known.get(shape, np.nan) for shape in zip(m.tolist(), n.tolist(), k.tolist(), strict=True)])
    good = np.isfinite(beside) & (np.minimum(np.minimum(m, n), k) >= SIDE) & (2.0 * m * n * k >= LARGE)
    return NarrowRows(seconds[good], beside[good], (m * k)[good], held_out(n, k)[good])


def published_scans(kind: str, path: Path = PUBLISHED) -> tuple[ScanRows, ScanRows] | None:
    """Forward and backward rows of the catalogue's own measurements; None without any of this kind."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    found = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"] if row[0] == kind]
    if not found:
        return None
    work = [
        state_space_work(one["batch"] * one["tokens"], one["heads"], one["groups"], one["value"], one["key"], one["chunk"], 2.0)
        if kind == "state_space"
        else delta_work(one["batch"] * one["tokens"], one["heads"], one["key"], one["value"], 2.0)
        for one in found
    ]
    tokens, chunk = (np.array([one[name] for one in found], np.float64) for name in ("tokens", "chunk"))
    ways = []
    for way, name in enumerate(("forward_us", "backward_us")):
        moved, flops, launches = (
            np.array([getattr(one, column)[way] for one in work], np.float64) for column in ("moved", "flops", "launches")
        )
        seconds = 1e-6 * np.array([one[name] for one in found], np.float64)
        ways.append(ScanRows(tokens, chunk, moved, flops, launches, seconds, np.zeros(len(found), np.bool_)))
    return ways[0], ways[1]


def _context(data: Dataset, names: tuple[str, ...]) -> Dataset:
    """Rows of scans over prompts by these kernels."""
    import pyarrow as pa

    part = data.where(level="kernel", op="scan")
    wanted = {f"{name} context" for name in names}
    mask = [name in wanted for name in part.table["name"].to_pylist()]
    return Dataset(part.about, part.table.filter(pa.array(mask, pa.bool_())))


def _numbers(data: Dataset, name: str) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(pc.cast(data.table[name], pa.float64()), 0.0).to_numpy(), np.float64)
