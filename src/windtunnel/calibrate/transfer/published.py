"""Published attention rates as rows: the files of `catalog/kernels/published/`, there without a dataset."""

from __future__ import annotations

import tomllib
from pathlib import Path

from windtunnel.calibrate.transfer.rows import FLOP, TOKENS, MeasuredGpu, rows_of
from windtunnel.compute.kernel_file import FOLDER
from windtunnel.spec import load_gpu

LIBRARIES = ("fa2", "cudnn", "fa3")


def published_cases() -> list[MeasuredGpu]:
    """A case for each file."""
    return [rates(path) for path in sorted((FOLDER / "published").glob("attention*.toml"))]


def rates(path: Path) -> MeasuredGpu:
    """Attention at `TOKENS` and more; seconds follow from the rates (TFLOP/s) and their FLOP convention, stated in the file."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    rows = []
    for series in data["series"]:
        way, head, share = series["way"], float(series["head"]), 0.5 if series["causal"] else 1.0
        for library in LIBRARIES:
            for seq, rate in zip(series.get("lengths", data["lengths"]), series.get(library, ()), strict=False):
                batch = data["tokens"] / seq * data["width"] / head
                flops = FLOP[way] * share * batch * seq * seq * head
                if seq >= TOKENS:
                    rows.append((way, library, batch, seq, seq, head, flops, 0.0, flops / (rate * 1e12)))
    return MeasuredGpu(load_gpu(data["gpu"]), rows_of([]), rows_of(rows), (f"catalog/kernels/published/{path.name}",))
