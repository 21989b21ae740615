"""Kernel datasets, shared by measurement and prediction: the schema, and the file (Parquet or CSV)."""

from windtunnel.records.build import concat, dataset
from windtunnel.records.dataset import About, Dataset
from windtunnel.records.parquet import read, write
from windtunnel.records.repeats import merge
from windtunnel.records.schema import COLUMNS, DTYPES, LEVELS, MODES, MODULES, OPS, PHASES
from windtunnel.records.shapes import read_shape, write_shape
from windtunnel.records.tell import describe
from windtunnel.records.text import from_csv, read_any, to_csv

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
