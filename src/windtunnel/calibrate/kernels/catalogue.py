"""The catalogue's kernel constants from published measurements, and the table of their errors.

The command is `windtunnel fit published FOLDER`. Files are made by `formats.machines` and `calibrate.kernels.fit`, like those of
users.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.calibrate.kernels.fit import Fit, fit, starting_curves
from windtunnel.calibrate.kernels.memory_classes import MemoryClass
from windtunnel.calibrate.kernels.solve import statistics
from windtunnel.compute.attention import FULL
from windtunnel.compute.curves import Basis, KernelCurves, MemoryCurve, Provenance
from windtunnel.compute.device import NARROW
from windtunnel.compute.kernel_file import FOLDER, load
from windtunnel.compute.library import in_format
from windtunnel.formats.machines.kernels.measurements import import_measurements
from windtunnel.records import About, Dataset, dataset
from windtunnel.spec import load_gpu

VIDUR = "microsoft/vidur 7d47513 data/profiling/compute/{}, medians"
SIMUMAX = "MooreThreads/SimuMax 4dcaae5 {}.json"
LLMCOMPASS = "PrincetonUniversity/LLMCompass 2e015fd A100 sweeps"
PUBLISHED = "catalog/kernels/published/attention.toml"
BLACKWELL = "blackwell"
"""Architecture of a file in `published` and in `kernel_file.ATTENTION`."""

RELATIVE = "b200-sxm-180gb"
"""Whose kernels fill what published attention of other Blackwell GPUs leaves open."""

STATED = {
    "a100_pcie": {
        "elementwise": (0.91 * 1600e9, 0.15, "bandwidth.default"),
        "cross_entropy": (0.808 * 1600e9, 0.2, "bandwidth.ce"),
    },
    "b200_bf16_ceperm": {
        "elementwise": (0.666 * 8e12, 0.15, "bandwidth.default"),
        "cross_entropy": (0.3246 * 8e12, 0.2, "bandwidth.ce"),
    },
}
"""Rates in B/s that SimuMax's system files state without rows: (rate, relative error, key of the file)."""


def import_dataset(path: Path, gpu: str, source: str) -> Dataset:
    """A folder or file as a dataset whose rows cite `source`."""
    data = import_measurements(path, gpu).data
    return replace(data, about=replace(data.about, source=source))


def published_attention(path: Path = FOLDER / "published" / "attention.toml") -> Dataset:
    """Published rates of fused attention, TFLOP/s by length, as rows."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = []
    for series in data["series"]:
        way, head = series["way"], int(series["head"])
        for library in ("fa2", "cudnn", "fa3"):
            for seq, rate in zip(series.get("lengths", data["lengths"]), series.get(library, ()), strict=False):
                batch = data["tokens"] // seq * data["width"] // head
                row = _attention_row(library, way, batch, seq, head, bool(series["causal"]))
                rows.append(row | {"seconds": row["flops"] / (rate * 1e12), "source": series["source"]})
    return dataset(About(gpu=data["gpu"], source=PUBLISHED), rows)


def attention_fits(path: Path = FOLDER / "published" / f"{BLACKWELL}.toml") -> list[Fit]:
    """The fits of attention kernels alone: a GPU and number format each, from published milliseconds."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    rows: dict[str, list[dict[str, Any]]] = {}
    for series in data["series"]:
        sees_all = series["way"] == "backward" and series["dtype"] in NARROW  # whatever the window: see workload/blocks/core.py
        if "window" in series and not sees_all:
            continue  # the curve's work is that of the keys that a query sees; what a window costs beyond is in MASKED_ERROR
        way, head = series["way"], (series["head"] + series["value"]) // 2
        for seq, milliseconds in zip(data["lengths"], series["ms"], strict=True):
            batch = series["batch"] * series["heads"]
            row = _attention_row(in_format("cudnn", series["dtype"]), way, batch, seq, head, series["causal"])
            row |= {"dtype": series["dtype"], "seconds": 1e-3 * milliseconds, "source": data["source"]}
            rows.setdefault(series["gpu"], []).append(row)
    return [fit([dataset(About(gpu=gpu, source=data["source"]), found)], load(RELATIVE)) for gpu, found in rows.items()]


def _attention_row(library: str, way: str, batch: int, seq: int, head: int, causal: bool) -> dict[str, Any]:
    """A row of a dataset without its seconds and its source; half precision."""
    return {
        "level": "kernel",
        "op": "attention",
        "name": "attention",
        "phase": way,
        "dtype": "fp16",
        "mode": "eager",
        "library": library,
        "batch": batch,
        "m": seq,
        "n": seq,
        "k": head,
        "causal": causal,
        "flops": FULL[way] * batch * seq * seq * head * (0.5 if causal else 1.0),
        "status": "ok",
    }


def stated_classes(name: str, base: KernelCurves) -> dict[str, MemoryClass]:
    """The classes whose rates a SimuMax file states, with the latency and cache gain of `base`'s pointwise kernels."""
    gpu = load_gpu({"a100_pcie": "a100-pcie-80gb", "b200_bf16_ceperm": "b200-sxm-180gb"}[name])
    plain, classes = base.memory["elementwise"], {}
    for kind, (rate, error, key) in STATED[name].items():
        curve = MemoryCurve(rate / gpu.memory_bandwidth, plain.latency, plain.cache, reach=plain.reach)
        classes[kind] = MemoryClass(curve, Basis(error, Provenance.MODELLED, f"{SIMUMAX.format(name)}, Apache-2.0, {key}"))
    return classes


def build(folder: Path) -> Iterator[Fit]:
    """The fits, in the order in which a later GPU uses constants of an earlier one: H100, A100 PCIe, A100 SXM, B200."""
    data = import_dataset(folder / "vidur" / "compute" / "h100", "h100-sxm-80gb", VIDUR.format("h100"))
    h100 = fit([data, published_attention()], starting_curves())
    yield h100
    data = import_dataset(folder / "simumax" / "a100_pcie.json", "a100-pcie-80gb", SIMUMAX.format("a100_pcie"))
    pcie = fit([data], h100.kernels, stated_classes("a100_pcie", h100.kernels))
    yield pcie
    data = import_dataset(folder / "vidur" / "compute" / "a100", "a100-sxm-80gb", VIDUR.format("a100"))
    yield fit([data, import_dataset(folder / "llmcompass_a100", "a100-sxm-80gb", LLMCOMPASS)], pcie.kernels)
    data = import_dataset(folder / "simumax" / "b200_bf16_ceperm.json", "b200-sxm-180gb", SIMUMAX.format("b200_bf16_ceperm"))
    yield fit([data], h100.kernels, stated_classes("b200_bf16_ceperm", h100.kernels))


def error_lines(fits: Sequence[Fit]) -> Iterator[tuple[str, ...]]:
    """(GPU, class, rows, median, 90 %, bias) of held-out rows, in percent: the table of docs/kernels.md."""
    for one in errors_of(fits):
        yield (one["gpu"], one["what"], f"{one['n']:.0f}", *(f"{one[name]:.1f}" for name in ("median_pct", "p90_pct")),
               f"{one['bias_pct']:+.1f}")  # fmt: skip


def errors_of(fits: Sequence[Fit]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [
        {"gpu": gpu_fit.kernels.id, "what": what, **vars(statistics(np.asarray(e)))}
        for gpu_fit in fits
        for what, e in gpu_fit.lines
    ]
