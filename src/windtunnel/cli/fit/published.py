"""`windtunnel fit published FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windtunnel.cli.fit.common import Write
from windtunnel.cli.shared.common import Json, Quiet, show_spinner, writable, write_json

EXAMPLES = """\b
Examples:
  windtunnel fit published kernels/            print errors of rows held out of the fit
  windtunnel fit published kernels/ --write    store catalog/kernels/*.json
"""


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Holds vidur/compute/{a100,h100}, simumax/*.json and llmcompass_a100, as their projects publish them.",
        ),
    ],
    write: Write = False,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    writable(("--json", json))
    from windtunnel.calibrate.kernels.catalogue import build, errors_of, markdown
    from windtunnel.compute.kernel_file import FOLDER, text

    with show_spinner("fitting kernels"):
        fits = list(build(folder))
    if write:
        for fit in fits:
            (FOLDER / f"{fit.kernels.id}.json").write_text(text(fit.kernels), encoding="utf-8")
    if json is not None:
        write_json(errors_of(fits), json)
    if not quiet and json != "-":
        typer.echo(markdown(fits))
        for fit in fits:
            for message in fit.messages:
                typer.echo(f"{fit.kernels.id}: {message}", err=True)
