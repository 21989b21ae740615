"""One table as columns of numbers and words, and what a family makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError

if TYPE_CHECKING:
    import pyarrow as pa

Words = npt.NDArray[np.object_]

MILLI = 1e-3

FORMATS = {
    "bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4", "sq": "fp8", "int4_wo": "bf16", "int8_wo": "bf16",
    "w4a16_mxfp4": "bf16", "w4a8_mxfp4_mxfp8": "mxfp8",
}  # fmt: skip
"""Number formats of the tables -> those of a dataset's products; FP8 with scales for blocks of 128 is FP8 by another recipe, 8-bit
integers (SmoothQuant) are told by the recipe, and weight-only formats multiply in 16 bits."""

RECIPES = {
    "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "sq": "w8a8", "int4_wo": "int4", "int8_wo": "int8",
    "w4a16_mxfp4": "mxfp4_wide", "w4a8_mxfp4_mxfp8": "mxfp4",
}  # fmt: skip
"""Formats of weights that a dataset's rows name beside the product's: a linear layer with the quantising of its activation, where
there is one."""


@dataclass(frozen=True)
class Cells:
    """The rows of one table; `where` names it in errors."""

    table: pa.Table
    where: str

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def numbers(self, name: str) -> Floats:
        """[rows] of a column. SpecError for the first row without a number."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            values = np.asarray(pc.fill_null(pc.cast(self.table[name], pa.float64()), np.nan).to_numpy(), np.float64)
        except (pa.ArrowException, ValueError):
            raise SpecError(f"{self.where}: {name}", "a column of words", "numbers", LEAVE_OUT) from None
        if np.isnan(values).any():
            raise SpecError(f"{self.where}: {name} of row {int(np.argmax(np.isnan(values)))}", None, "a number", LEAVE_OUT)
        return values

    def read_whole(self, name: str) -> Int64s:
        """[rows] of a column of whole numbers that are not negative."""
        values = self.numbers(name)
        bad = (values < 0) | (values != np.round(values)) | (values > 1e15)
        if bad.any():
            row = int(np.argmax(bad))
            raise SpecError(f"{self.where}: {name} of row {row}", float(values[row]), "a whole number, not negative", LEAVE_OUT)
        return values.astype(np.int64)

    def read_optional(self, name: str) -> Int64s:
        """[rows] of a column that older tables lack: then 0."""
        return self.read_whole(name) if name in self.table.column_names else np.zeros(len(self), np.int64)

    def words(self, name: str) -> Words:
        """[rows] of a column of words."""
        return np.array([str(value) for value in self.table[name].to_pylist()], np.object_)

    @cached_property
    def seconds(self) -> Floats:
        """[rows] of `latency`. SpecError for a time that is zero or less."""
        return self.positive("latency", MILLI)

    def positive(self, name: str, unit: float) -> Floats:
        """[rows] of times in `unit`s. SpecError for one that is zero or less."""
        values = self.numbers(name) * unit
        bad = ~(np.isfinite(values) & (values > 0.0))
        if bad.any():
            row = int(np.argmax(bad))
            raise SpecError(f"{self.where}: {name} of row {row}", float(values[row] / unit), "a positive time", LEAVE_OUT)
        return values

    def take(self, mask: Bools) -> Cells:
        """The rows of a mask."""
        import pyarrow as pa

        return Cells(self.table.filter(pa.array(mask)), self.where)

    def known_rows(self, column: str, known: Mapping[str, str], what: str) -> tuple[Cells, tuple[str, ...]]:
        """The rows whose word in `column` is `known`, and a line for each other word."""
        found = self.words(column)
        mask = np.isin(found, list(known))
        unknown, counts = np.unique(found[~mask].astype(str), return_counts=True)
        lines = tuple(f"{self.where}: {n:,} rows of {what} {word}" for word, n in zip(unknown, counts, strict=True))
        return (self if mask.all() else self.take(np.asarray(mask, np.bool_))), lines


LEAVE_OUT = "Correct or remove the row, or leave the family out: --family gemm,attention takes these alone."


@dataclass(frozen=True)
class Converted:
    """Columns of a dataset by name; those that are missing are null. `ignored`: lines on rows that no column holds."""

    columns: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0
    ignored: tuple[str, ...] = ()


def kernel_columns(cells: Cells, op: str, name: str | Words, **more: Any) -> dict[str, Any]:
    """The columns that all families of kernels share: forward kernels in a CUDA graph."""
    size = len(cells)
    source = cells.words("kernel_source")
    return {
        "level": np.full(size, "kernel", np.object_),
        "op": np.full(size, op, np.object_),
        "name": np.full(size, name, np.object_) if isinstance(name, str) else name,
        "phase": np.full(size, "forward", np.object_),
        "mode": np.full(size, "cuda_graph", np.object_),
        "kernel": source,
        "seconds": cells.seconds,
        "status": np.full(size, "ok", np.object_),
        **more,
    }


def module_columns(cells: Cells, op: str, name: str, shape: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The same for a module of several kernels; `shape`: its words, each a column or one value."""
    columns = {
        key: value if isinstance(value, np.ndarray) else np.full(len(cells), value, np.object_) for key, value in shape.items()
    }
    keys = sorted(columns)
    lines = [
        " ".join(f"{key}={value}" for key, value in zip(keys, row, strict=True) if value != "")
        for row in zip(*(columns[key].tolist() for key in keys), strict=True)
    ]
    base = kernel_columns(cells, op, name, **more)
    return {**base, "level": np.full(len(cells), "submodule", np.object_), "shape": np.array(lines, np.object_)}


def formats_of(words: Words, table: Mapping[str, str] = FORMATS) -> Words:
    """[rows] of a dataset's number formats."""
    return np.array([table[word] for word in words], np.object_)


def visible_pairs(queries: Floats, keys: Floats, causal: bool, window: Floats) -> Floats:
    """`records.work.visible_pairs` over columns; `window` 0: none."""
    most = np.where(window > 0, np.minimum(keys, window), keys)
    if not causal:
        return np.asarray(queries * most, np.float64)
    first = keys - queries + 1.0
    growing = np.minimum(np.maximum(most - first, 0.0), queries)
    return np.asarray(growing * first + growing * (growing - 1.0) / 2.0 + (queries - growing) * most, np.float64)
