"""Kernel datasets, shared by measurement and prediction: the schema, and the file (Parquet or CSV).

Names are imported on first use: graphs of traces and measured runs lie in this room too, and need no dataset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.lazy import lazy

if TYPE_CHECKING:
    from windtunnel.records.build import concat, dataset
    from windtunnel.records.kernel_dataset import About, Dataset
    from windtunnel.records.parquet import read, write
    from windtunnel.records.repeats import merge
    from windtunnel.records.schema import COLUMNS, DTYPES, LEVELS, MODES, MODULES, OPS, PHASES
    from windtunnel.records.shapes import read_shape, write_shape
    from windtunnel.records.tell import describe
    from windtunnel.records.text import from_csv, read_any, to_csv

_HOME = {
    "About": "kernel_dataset",
    "COLUMNS": "schema",
    "DTYPES": "schema",
    "Dataset": "kernel_dataset",
    "LEVELS": "schema",
    "MODES": "schema",
    "MODULES": "schema",
    "OPS": "schema",
    "PHASES": "schema",
    "concat": "build",
    "dataset": "build",
    "describe": "tell",
    "from_csv": "text",
    "merge": "repeats",
    "read": "parquet",
    "read_any": "text",
    "read_shape": "shapes",
    "to_csv": "text",
    "write": "parquet",
    "write_shape": "shapes",
}

__all__ = [
    "COLUMNS",
    "DTYPES",
    "LEVELS",
    "MODES",
    "MODULES",
    "OPS",
    "PHASES",
    "About",
    "Dataset",
    "concat",
    "dataset",
    "describe",
    "from_csv",
    "merge",
    "read",
    "read_any",
    "read_shape",
    "to_csv",
    "write",
    "write_shape",
]

__getattr__ = lazy(__name__, _HOME)
