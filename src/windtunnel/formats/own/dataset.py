"""Datasets of measured kernels, Parquet or CSV, as `windtunnel profile` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.formats.head import Head
from windtunnel.formats.machines.kernels.found import is_dataset
from windtunnel.formats.reading import Content, Context, Reading


def recognises(head: Head) -> bool:
    """The mark that a dataset carries."""
    return is_dataset(head)


def read(files: Sequence[Path], context: Context) -> Reading:
    """The dataset. FileError for a broken one."""
    if len(files) != 1:
        raise SpecError("FILE", f"{len(files)} datasets", "one dataset")
    from windtunnel.records import read_any  # here: a trace needs no noun of a job

    data = read_any(files[0])
    return Reading("dataset", Content.DATASET, data, {"gpu": data.about.gpu, "rows": len(data)})
