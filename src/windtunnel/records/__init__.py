"""Facts on disk, shared by what measures and what predicts: the schema of a kernel dataset, and its Parquet file."""

from windtunnel.records.dataset import About, Dataset, dataset, read, write
from windtunnel.records.schema import COLUMNS, LEVELS, MODES, MODULES, OPS, PHASES
from windtunnel.records.shapes import read_shape, write_shape

__all__ = ["COLUMNS", "LEVELS", "MODES", "MODULES", "OPS", "PHASES", "About", "Dataset", "dataset", "read", "read_shape", "write",
           "write_shape"]
