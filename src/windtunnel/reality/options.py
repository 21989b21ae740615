"""What `validate` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.options import argument, option

if TYPE_CHECKING:
    from windtunnel.reality.jobs.blanks import Predict

_PROCESSES = "Processes; default: one for each core."


@dataclass(frozen=True)
class ValidateOptions:
    """What predictions of measured rows are asked with."""

    paths: Sequence[str | Path] | None = argument(
        "Tables or datasets of measurements; default: the catalogue's.", None, metavar="[FILE]...", request="tables"
    )
    family: str | None = option("Only the rows of one family.", None)
    progress: Callable[[int, int, str], None] | None = option(
        "Called after each row with rows done, rows in all, the row's id.", None, shown=False
    )
    predict: Predict | None = option("Predicts a job, in place of `windtunnel.predict`.", None, shown=False)
    gpu: str | None = shared.gpu()
    dtype: str | None = shared.dtype()
    kernels: str | None = shared.kernels()
    processes: int | None = option(_PROCESSES, 1, word="--jobs", least=1)


@dataclass(frozen=True)
class ValidateCommandOptions(ValidateOptions):
    """The same for the command line, which takes all cores, and writes the accuracy page."""

    processes: int | None = option(_PROCESSES, None, word="--jobs", least=1)
    markdown: str | None = option("Write the accuracy page.", None, metavar="FILE|-", writes=True)
    record: str | None = option("Write the errors that predictions quote.", None, metavar="FILE|-", writes=True)
