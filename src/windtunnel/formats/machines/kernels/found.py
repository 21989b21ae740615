"""Results of the readers of published measurements, and of a finished import.

How a dataset of windtunnel is told from other tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from windtunnel.formats.head import Head
from windtunnel.records import Dataset
from windtunnel.records.kernel_dataset import KEY, MARK

Row = dict[str, Any]
"""By the columns of `records.schema`; a missing key is null."""

LARGEST = 10**15
"""Upper limit of a size in a measured kernel."""


class Bad(NamedTuple):
    """An invalid line of a file, with the reason."""

    where: str
    reason: str


@dataclass(frozen=True)
class Found:
    """Rows of one GPU. `gpu`: the one that the files state, if any; `called`: a name in them that may contain a GPU's.

    `about` are other fields of `records.About`.
    """

    rows: list[Row]
    gpu: str | None = None
    called: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    bad: tuple[Bad, ...] = ()


@dataclass(frozen=True)
class KernelTimes:
    """The outcome of an import: format, dataset, ignored content, assumptions.

    `bad` is empty unless the caller requested the valid rows of a damaged file.
    """

    format: str
    data: Dataset
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    bad: tuple[Bad, ...] = ()


def label(path: Path) -> str:
    """The last three parts of a path: enough to find the file, without folders of the machine."""
    return "/".join(path.parts[-3:]).lstrip("/")


def is_dataset(head: Head) -> bool:
    """Whether a file is a dataset of windtunnel, as Parquet or as CSV."""
    return KEY in head.parquet_keys or head.data.startswith(MARK.encode())
