"""Results of the readers of published measurements, and of a finished import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from windtunnel.records import Dataset

Row = dict[str, Any]
"""By the columns of `records.schema`; a missing key is null."""

LARGEST = 10**15
"""A size beyond this is no measured kernel's."""


class Bad(NamedTuple):
    """A line of a file that is no measurement, and why."""

    where: str
    reason: str


@dataclass(frozen=True)
class Found:
    """Rows of one GPU: `gpu` is the one that the files state, if they do, `called` a name in them that may hold a GPU's.

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
class Imported:
    """The outcome of an import: what the files were taken for, what was built, left out, and taken without being stated.

    `bad` is empty unless the caller asked for the good rows of a damaged file.
    """

    format: str
    data: Dataset
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    bad: tuple[Bad, ...] = ()


def label(path: Path) -> str:
    """The last three parts of a path: enough to find the file, and no machine's own folders."""
    return "/".join(path.parts[-3:]).lstrip("/")
