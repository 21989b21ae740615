"""Published attention rates as rows: `catalog/kernels/published/attention.toml`, there without a dataset."""

from __future__ import annotations

import tomllib
from pathlib import Path

from windtunnel.compute.kernels import FOLDER
from windtunnel.compute.transfer.rows import FLOP, TOKENS, Case, rows_of
from windtunnel.spec import load_gpu

FILE = FOLDER / "published" / "attention.toml"
LIBRARIES = ("fa2", "cudnn", "fa3")


def published(path: Path = FILE) -> Case:
    """Attention at `TOKENS` and more; seconds follow from the rates and their FLOP convention, stated in the file."""
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
    return Case(load_gpu(data["gpu"]), rows_of([]), rows_of(rows), ("catalog/kernels/published/attention.toml",))
