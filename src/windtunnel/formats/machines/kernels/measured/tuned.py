"""AITER's tables of tuned kernels (ROCm/aiter, `aiter/configs`): the time of the best kernel for each shape, as datasets by GPU.

Files `*_tuned_gemm.csv` have products, `*_tuned_fmoe.csv` fused experts with their activation; M, N, K or token, model_dim,
inter_dim, expert, topk; `us` is the tuner's time of the kernel alone, so a product in 8 bits has no quantising of its input.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.machines.kernels.measured.cells import Cells
from windtunnel.formats.machines.kernels.measured.importer import MeasuredEngine, MeasuredTables, dataset_of_cells
from windtunnel.formats.machines.kernels.measured.tables import convert_experts, convert_linear

ENGINE = "aiter"

GPUS = {("gfx942", "304"): "mi300x", ("gfx950", "256"): "mi355x"}
"""(architecture, compute units) of a row -> GPU. An MI325X and an MI350X have as many; rows do not say which."""

ARCHITECTURES = {"304": "gfx942", "80": "gfx942", "256": "gfx950"}
"""Compute units -> architecture, in tables without a column for it."""

PRODUCTS = (("a8w8_blockscale", "fp8_block"), ("bf16_tuned_gemm", "bfloat16"), ("a8w8", "fp8"))
"""Part of a file's name -> the format of its products, as aiconfigurator's tables call it; 4-bit ones have no curve of AMD's."""

EXPERTS = {("QuantType.No", "bfloat16"): "bfloat16", ("QuantType.per_1x128", "float8"): "fp8_block",
           ("QuantType.per_Token", "float8"): "fp8", ("QuantType.per_Tensor", "float8"): "fp8"}  # fmt: skip
"""(kind of scale, start of the weights' format) -> format."""

MOST = 200
"""Rows of a format that are kept in each octave of tokens: the tables have some lengths of prompts a thousand times."""

LONGEST = 1e6
"""Microseconds above which a row is no time: the tuner writes infinity where a kernel fails."""


def is_tuned(folder: str | Path | None) -> bool:
    """Whether a folder holds such tables."""
    return folder is not None and any(Path(folder).rglob("*_tuned_gemm.csv"))


def read_tuned(folder: str | Path) -> MeasuredTables:
    """The tables below `folder` by GPU. FileError where none has a row of a GPU that is known, or one lacks a column."""
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for path in sorted(Path(folder).rglob("*_tuned_*.csv")):
        kind = "experts" if "fmoe" in path.name else "products"
        if "batched" in path.name or (kind == "products" and "gemm" not in path.name):
            continue
        try:
            for gpu, row in _expert_rows(path) if kind == "experts" else _product_rows(path):
                rows.setdefault((gpu, kind), []).append(row)
        except (KeyError, ValueError) as error:
            raise FileError(path.name, f"a row without {error}", "a table that AITER's tuner wrote") from None
    if not rows:
        raise FileError(str(folder), "no row of a known GPU", f"tables with rows of {', '.join(sorted(set(GPUS.values())))}")
    made = []
    for gpu in sorted({gpu for gpu, _ in rows}):
        parts = []
        for kind, convert in (("products", convert_linear), ("experts", convert_experts)):
            if listed := rows.get((gpu, kind)):
                parts += convert(_cells(_thin_octaves(listed), f"{gpu} {kind}"))
        data, _ = dataset_of_cells(gpu, ENGINE, "configs", parts, "ROCm/aiter", "MIT")
        made.append(MeasuredEngine(gpu, ENGINE, "configs", data))
    return MeasuredTables(tuple(made), (), ("rows of 304 compute units are an MI300X's, of 256 an MI355X's",))


def _thin_octaves(rows: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """At most `MOST` rows of each format and octave of tokens, drawn in the same way in each run."""
    octaves: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        form, tokens = (row["gemm_dtype"], row["m"]) if "m" in row else (row["moe_dtype"], row["num_tokens"])
        octaves.setdefault((form, int(tokens).bit_length()), []).append(row)
    draw = random.Random(0)
    return [row for _, part in sorted(octaves.items()) for row in (part if len(part) <= MOST else draw.sample(part, MOST))]


def _cells(rows: list[Mapping[str, Any]], where: str) -> Cells:
    import pyarrow as pa

    return Cells(pa.Table.from_pylist(list(rows)), where)


def _timed_rows(path: Path) -> Iterator[tuple[str, dict[str, str], float]]:
    """(GPU, row, milliseconds) of the rows that have a time and a GPU that is known."""
    with path.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            units = row["cu_num"]
            gpu = GPUS.get((row.get("gfx") or ARCHITECTURES.get(units, ""), units))
            took = float(row["us"] or "nan")
            if gpu is not None and 0.0 < took < LONGEST:
                yield gpu, row, took * 1e-3


def _product_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    form = next((form for part, form in PRODUCTS if part in path.name), None)
    for gpu, row, took in _timed_rows(path) if form else ():
        stated = row.get("q_dtype_w", "")
        plain = row.get("bias", "False") == "False" and row.get("outdtype", "torch.bfloat16") == "torch.bfloat16"
        if plain and (form != "fp8" or "float8" in stated):
            shape: dict[str, Any] = {name: int(row[name.upper()]) for name in "mnk"}
            yield gpu, {**shape, "gemm_dtype": form, "latency": took, "kernel_source": ENGINE}


def _expert_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for gpu, row, took in _timed_rows(path):
        weights = row["q_dtype_w"].removeprefix("torch.")
        form = next((form for (kind, start), form in EXPERTS.items() if row["q_type"] == kind and weights.startswith(start)), None)
        if form is not None and row["use_g1u1"] == "1":
            yield gpu, {
                "moe_dtype": form, "num_tokens": int(row["token"]), "hidden_size": int(row["model_dim"]),
                "inter_size": int(row["inter_dim"]), "topk": int(row["topk"]), "num_experts": int(row["expert"]),
                "moe_tp_size": 1, "moe_ep_size": 1, "distribution": "balanced", "op_name": "moe", "latency": took,
                "kernel_source": ENGINE,
            }  # fmt: skip
