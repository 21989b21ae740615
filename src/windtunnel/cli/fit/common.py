"""Shared by the verbs of `windtunnel fit`: their tables and their record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.outputs import Outputs

if TYPE_CHECKING:
    from windtunnel.calibrate.record import FitRecord


def only_catalogue(tables: Sequence[str | Path], write: bool) -> None:
    """SpecError if constants of the catalogue would be fitted on rows outside of it."""
    if write and tables:
        raise SpecError(
            "--write", ", ".join(map(str, tables)), "no FILE", "The catalogue's constants come from the catalogue's rows."
        )


def show(what: str, record: FitRecord, record_file: str | None, outputs: Outputs) -> None:
    """Show a record of a fit of `what`, and write it to the files of the options."""
    from windtunnel.calibrate.fit_sheet import fit_sheet

    if record_file is not None:
        record.write(Path(record_file))
    outputs.show(fit_sheet(what, record), record.as_dict)
