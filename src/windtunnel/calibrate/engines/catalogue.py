"""The catalogue's curves of inference engines from aiconfigurator's tables, of AMD's GPUs from AITER's, and the table of errors.

The command is `windtunnel fit engines [FOLDER] --write`. GB300 and RTX PRO 6000 are never fitted: their tables show how well curves
carry to GPUs that no fit saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import UnknownName
from windtunnel.calibrate.engines.columns import HELD, held_out
from windtunnel.calibrate.engines.fit import LEAST, EngineFit, EngineFitter, statistics_of
from windtunnel.calibrate.engines.solve import Bounds, solve_curve
from windtunnel.compute.curves import GemmCurve
from windtunnel.compute.engines.curves import LinearCurve, PointwiseCurve, ReduceCurve
from windtunnel.compute.engines.file import FOLDER, engines_text
from windtunnel.compute.engines.seconds import engine_device, reduce_seconds
from windtunnel.formats.machines.kernels.measured.importer import MeasuredEngine, MeasuredTables, read_measured
from windtunnel.formats.machines.kernels.measured.tables import version_key
from windtunnel.formats.machines.kernels.measured.tuned import ENGINE, is_tuned, read_tuned
from windtunnel.serving.engine import ENGINES
from windtunnel.spec import load_gpu

SYSTEMS = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "l40s")
"""Systems that are fitted."""

SOURCE = "NVIDIA aiconfigurator-core 0.12.0, systems/data, Apache-2.0: windtunnel fit engines"

TUNED = "ROCm/aiter, aiter/configs, MIT: windtunnel fit engines"

MOVES = {"mi300x": PointwiseCurve(latency=1.1e-5, memory=0.67)}
"""Kernels that move bytes on a GPU whose tables have none. MI300X: in vLLM's step of Llama 3.1 405B in FP8 for 32 users on 8 of
them, two norms and an activation of a layer take 15 % and products 60 %; these are known to take 148 us, so the three take 12 us
each, of which bytes explain 0.8. Alone, one after the other in a graph, they take 5.1, 5.1 and 3.6 and have two thirds of the
bandwidth."""

MARLIN = LinearCurve(
    GemmCurve(
        fraction=0.608, tiles=((16, 256), (32, 256), (64, 256)), tile_cost=16.9, prologue=20.0, wave=0.5, memory=0.74,
        latency=8.889e-6, split=1.089e-5, blend=7.86, throttle=0.0, settle=3e-4, store=0.7417,
    )
)  # fmt: skip
"""Weight-only products of vLLM and SGLang on Ampere, fitted on Marlin's own bench there to 1 % (vllm-project/vllm pull request
2497): it reads weights at 1.16 TB/s up to 16 rows, and from 64 rows on runs blocks of 64, at 141 TFLOP/s, 0.6 of cuBLAS'. The
GPU's memory is not stated; a bandwidth between both A100s is assumed."""

MARLIN_GPU, MARLIN_ENGINES = "a100-sxm-80gb", {"vllm", "sglang"}

MARLIN_SOURCE = "; weight-only products of vLLM and SGLang: vllm-project/vllm pull request 2497"

MOVES_SOURCE = "; kernels that move bytes: huggingface.co/blog/mi300kernels"

LEAST_TUNED = 40
"""Rows that a class of a tuner's tables needs: each is the best kernel for its shape, and there are fewer."""

LINKS = {"ampere": 300e9, "hopper": 450e9, "blackwell": 900e9}
"""B/s of a GPU's NVLink each way, by architecture."""

REDUCE: Bounds = {
    "start": (1e-6, 4e-6, 3e-5), "rank": (0.0, 2e-7, 3e-6), "one": (0.05, 0.6, 2.0), "starts": (1.0, 2.5, 5.0),
    "two": (0.05, 0.65, 2.0),
}  # fmt: skip


@dataclass(frozen=True)
class GpuEngines:
    """The fitted engines of one GPU."""

    gpu: str
    engines: dict[str, EngineFit]
    source: str

    def text(self) -> str:
        """The catalogue's file."""
        curves = {name: one.curves for name, one in self.engines.items()}
        return engines_text(self.gpu, load_gpu(self.gpu).architecture, self.source, curves)

    def as_dict(self) -> dict[str, Any]:
        """Errors of held-out rows by engine and class, per cent."""
        return {"gpu": self.gpu, "engines": {name: _error_table(one) for name, one in self.engines.items()}}


def fit_engines(
    folder: str | Path | None = None, systems: Sequence[str] = SYSTEMS, report: Callable[[float], object] = lambda share: None
) -> list[GpuEngines]:
    """Curves of all engines on the GPUs of `systems`, from a folder of tables or the wheel. Raises as `read_measured`."""
    if folder is not None and is_tuned(folder):
        tuned = read_tuned(folder)
        return [
            fit_gpu(replace(tuned, engines=(one,)), (ENGINE,), TUNED + MOVES_SOURCE * (one.gpu in MOVES)) for one in tuned.engines
        ]
    made = []
    for count, system in enumerate(systems):
        report(count / len(systems))
        made.append(fit_gpu(read_measured(folder, systems=[system]), older=_read_experts(folder, system)))
    return made


def fit_gpu(
    read: MeasuredTables, names: Iterable[str] = tuple(ENGINES), source: str = SOURCE, older: MeasuredTables | None = None
) -> GpuEngines:
    """The engines of one system's tables; `older`: its experts in all releases."""
    gpu = read.engines[0].gpu
    engines: dict[str, EngineFit] = {}
    for name in names:
        parts = [one for one in read.engines if one.engine == name]
        data, whole = _newest_first(parts), name in ENGINES
        earlier = _newest_first([one for one in older.engines if one.engine == name]) if older is not None else []
        dev, least = engine_device(load_gpu(gpu)), LEAST if whole else LEAST_TUNED
        fitter = EngineFitter(dev, load_gpu(gpu).architecture, data, least, whole, earlier)
        fitted = fitter.fit() if data else None
        if fitted is not None:
            reduced = _fit_reduce(parts, load_gpu(gpu).architecture, fitted)
            engines[name] = with_shared(fitted, reduced, fitter.fit_pointwise() or MOVES.get(gpu))
    if gpu == MARLIN_GPU:
        source += MARLIN_SOURCE
        for name in MARLIN_ENGINES & engines.keys():
            engines[name] = with_marlin(engines[name])
    return GpuEngines(gpu, _share_fastest(engines), source)


def _read_experts(folder: str | Path | None, system: str) -> MeasuredTables | None:
    """A system's tables of experts in all releases; None where the folder has none."""
    try:
        return read_measured(folder, systems=[system], families=["moe"], release="all")
    except UnknownName:
        return None


def _newest_first(parts: list[MeasuredEngine]) -> list[Any]:
    """Datasets of releases of an engine."""
    newest = sorted(parts, key=lambda one: version_key(one.release), reverse=True)
    return [one.data for one in newest if one.data is not None]


def with_marlin(fitted: EngineFit) -> EngineFit:
    """The fit with Marlin's weight-only products."""
    linear = {**fitted.curves.linear, "int4": MARLIN, "int8": MARLIN}
    return EngineFit(replace(fitted.curves, linear=linear), fitted.errors)


def _share_fastest(engines: dict[str, EngineFit]) -> dict[str, EngineFit]:
    """Kernels that move bytes are the same task in each engine: the fastest that was measured stands for all. One engine's table
    times several kernels of PyTorch."""
    found = [one.curves.pointwise for one in engines.values() if one.curves.pointwise is not None]
    best = max(found, key=lambda curve: curve.memory, default=None)
    return {name: EngineFit(replace(one.curves, pointwise=best), one.errors) for name, one in engines.items()}


def with_shared(fitted: EngineFit, reduced: ReduceCurve | None, pointwise: PointwiseCurve | None) -> EngineFit:
    """The fit with its all-reduce, and its kernels that move bytes."""
    return EngineFit(replace(fitted.curves, reduce=reduced, pointwise=pointwise), fitted.errors)


def _fit_reduce(parts: list[MeasuredEngine], architecture: str, fitted: EngineFit) -> ReduceCurve | None:
    """The engine's all-reduce in a graph, over NVLink."""
    calls = [
        call
        for one in parts
        for call in one.calls
        if call.collective == "all_reduce" and call.what != "NCCL" and "eager" not in call.what and call.seconds < 20e-3
    ]
    if architecture not in LINKS or len(calls) < 40:
        return None
    ranks, size, seconds = (np.array([getattr(call, name) for call in calls], np.float64) for name in ("ranks", "bytes", "seconds"))
    held = held_out(ranks, size)
    seen = ~held
    start = ReduceCurve(4e-6, 2e-7, 0.6, 2.5, 0.65)
    curve: ReduceCurve = solve_curve(
        start, REDUCE, lambda c: reduce_seconds(c, LINKS[architecture], ranks[seen], size[seen]), seconds[seen]
    )
    errors = np.log(reduce_seconds(curve, LINKS[architecture], ranks[held], size[held]) / seconds[held])
    fitted.errors["all-reduce"] = (errors, size[held])
    return replace(curve, held_out=statistics_of(errors, size[held]))


def write_engines(fits: Sequence[GpuEngines]) -> list[Path]:
    """Writes the catalogue's files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    paths = []
    for one in fits:
        path = FOLDER / f"{one.gpu}.json"
        path.write_text(one.text(), encoding="utf-8")
        paths.append(path)
    return paths


def error_lines(fits: Sequence[GpuEngines]) -> Iterator[tuple[str, ...]]:
    """(GPU, engine, class, tokens, rows, median, 90 %, bias) of held-out rows."""
    for one in fits:
        for name, fitted in one.engines.items():
            for what, (errors, tokens) in fitted.errors.items():
                for part, found in statistics_of(errors, tokens).items():
                    figures = (f"{found.n:.0f}", f"{found.median_pct:.1f}", f"{found.p90_pct:.1f}", f"{found.bias_pct:+.1f}")
                    yield (one.gpu, name, what, part, *figures)


def _error_table(fitted: EngineFit) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for what, (errors, tokens) in fitted.errors.items():
        table[what] = {part: vars(found) for part, found in statistics_of(errors, tokens).items()}
    return table


__all__ = ["HELD", "GpuEngines", "error_lines", "fit_engines", "write_engines"]
