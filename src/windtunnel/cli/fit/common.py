"""Shared by the verbs of `windtunnel fit`: their tables and their record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.outputs import Outputs

if TYPE_CHECKING:
    from windtunnel.calibrate.record import FitRecord

Tables = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE]...", help="Tables of measurements, as `validate` reads; default: the catalogue's."),
]
Record = Annotated[
    str | None,
    typer.Option("--record", metavar="FILE.json", help="Write what was fitted on which rows, with errors before and after."),
]
TablesFolder = Annotated[
    Path | None, typer.Argument(metavar="[FOLDER]", help="Holds aiconfigurator's tables; default: the wheel's.")
]
Systems = Annotated[list[str] | None, typer.Option("--system", metavar="NAME", help="One system, such as h100_sxm.")]
Write = Annotated[bool, typer.Option("--write", help="Store the constants and the record in the catalogue.")]


def only_catalogue(tables: list[str] | None, write: bool) -> None:
    """SpecError if constants of the catalogue would be fitted on rows outside of it."""
    if write and tables:
        raise SpecError("--write", ", ".join(tables), "no FILE", "The catalogue's constants come from the catalogue's rows.")


def show(what: str, record: FitRecord, record_file: str | None, outputs: Outputs) -> None:
    """Show a record of a fit of `what`, and write it to the files of the options."""
    from windtunnel.calibrate.fit_sheet import fit_sheet

    if record_file is not None:
        record.write(Path(record_file))
    outputs.show(fit_sheet(what, record), record.as_dict)
