"""Measured matrix products and attention of one GPU as arrays, at the shapes that training runs.

Published attention rates as rows: the files of `catalog/kernels/published/`, there without a dataset.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass, fields
from windtunnel.compute.gemm import gemm_bytes
from windtunnel.compute.kernel_file import FOLDER
from windtunnel.records import Dataset
from windtunnel.spec import load_gpu
from windtunnel.spec.machine import GPU

Words = npt.NDArray[np.str_]

TOKENS = 1024
"""Training shapes: products and attention of at least this many tokens."""

DTYPES = ("bf16", "fp16")
PRODUCTS = ("forward", "dgrad", "wgrad")
PASSES = ("forward", "backward")
FLOP = {"forward": 4.0, "backward": 10.0}


@dataclass(frozen=True)
class TransferRows:
    """Equal-length columns. `way`: pass of a row; `library`: empty where not known; `moved`: B; `seconds`: measured."""

    way: Words
    library: Words
    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    flops: Floats
    moved: Floats
    seconds: Floats

    def __len__(self) -> int:
        return len(self.seconds)

    def where(self, mask: npt.NDArray[Any]) -> TransferRows:
        """The rows that a mask or an index picks."""
        return TransferRows(*(getattr(self, f.name)[mask] for f in fields(self)))


def rows_of(values: Sequence[tuple[Any, ...]]) -> TransferRows:
    """TransferRows from tuples in the order of `TransferRows`' fields."""
    columns = list(zip(*values, strict=True)) if values else [()] * len(fields(TransferRows))
    words = [np.array(column, dtype=np.str_) for column in columns[:2]]
    numbers = [np.array(column, dtype=np.float64) for column in columns[2:]]
    return TransferRows(words[0], words[1], *numbers)


def join_rows(parts: Sequence[TransferRows]) -> TransferRows:
    """All rows of several."""
    return TransferRows(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(TransferRows)))


@dataclass(frozen=True)
class MeasuredGpu:
    """What was measured on one GPU, at training shapes."""

    gpu: GPU
    gemm: TransferRows
    attention: TransferRows
    sources: tuple[str, ...] = ()


def case(gpu: GPU, data: Dataset) -> MeasuredGpu:
    """The half-precision kernels of a dataset with `TOKENS` tokens or more: products forward, dgrad, wgrad; attention both ways."""
    rows = [
        row
        for row in data.rows()
        if row["status"] == "ok"
        and row["level"] == "kernel"
        and row["dtype"] in DTYPES
        and row["mode"] != "compile"
        and row["m"]
        and row["n"]
        and row["k"]
    ]
    gemm = [_product(row) for row in rows if row["op"] == "gemm" and row["phase"] in PRODUCTS and _tokens(row) >= TOKENS]
    attention = [_attention(row) for row in rows if row["op"] == "attention" and row["phase"] in PASSES and row["m"] >= TOKENS]
    return MeasuredGpu(gpu, rows_of(gemm), rows_of(attention), tuple(sorted({str(row["source"]) for row in rows})))


def merge_cases(cases: Sequence[MeasuredGpu]) -> list[MeasuredGpu]:
    """One case a GPU, in the order in which they first appear."""
    by_gpu: dict[str, list[MeasuredGpu]] = {}
    for one in cases:
        by_gpu.setdefault(one.gpu.id, []).append(one)
    return [
        MeasuredGpu(
            same[0].gpu,
            join_rows([c.gemm for c in same]),
            join_rows([c.attention for c in same]),
            tuple(sorted({s for c in same for s in c.sources})),
        )
        for same in by_gpu.values()
    ]


def _tokens(row: Mapping[str, Any]) -> int:
    return int(row["k"] if row["phase"] == "wgrad" else row["m"])


def _product(row: Mapping[str, Any]) -> tuple[Any, ...]:
    batch, m, n, k = (float(row[name] or 1) for name in ("batch", "m", "n", "k"))
    sizes = np.array([[batch], [m], [n], [k]])
    plain = gemm_bytes(sizes[0], sizes[1], sizes[2], sizes[3], np.array([3], np.int8), np.array([bool(row["accumulate"])]))
    flops = row["flops"] or 2.0 * batch * m * n * k
    return row["phase"], row["library"] or "", batch, m, n, k, flops, row["bytes"] or float(plain[0]), row["seconds"]


def _attention(row: Mapping[str, Any]) -> tuple[Any, ...]:
    batch, m, n = (float(row[name] or 1) for name in ("batch", "m", "n"))
    head = (row["k"] + (row["v"] or row["k"])) / 2.0
    share = 0.5 if row["causal"] else 1.0
    flops = row["flops"] or FLOP[row["phase"]] * share * batch * m * n * head
    return row["phase"], row["library"] or "", batch, m, n, head, flops, row["bytes"] or 0.0, row["seconds"]


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
