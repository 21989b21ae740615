"""`windtunnel fit published FOLDER`."""

from __future__ import annotations

from pathlib import Path

import typer

from windtunnel.calibrate.options import PublishedFitCommandOptions
from windtunnel.cli.shared.common import show_spinner, write_json
from windtunnel.cli.shared.options import bare_command_of

EXAMPLES = """\b
Examples:
  windtunnel fit published kernels/            print errors of rows held out of the fit
  windtunnel fit published kernels/ --write    store catalog/kernels/*.json
"""


@bare_command_of(PublishedFitCommandOptions)
def command(asked: PublishedFitCommandOptions) -> None:
    from windtunnel.calibrate.kernels.catalogue import build, errors_of, markdown
    from windtunnel.compute.kernel_file import FOLDER, text

    with show_spinner("fitting kernels"):
        fits = list(build(Path(asked.folder)))
    if asked.write:
        for fit in fits:
            (FOLDER / f"{fit.kernels.id}.json").write_text(text(fit.kernels), encoding="utf-8")
    if asked.json is not None:
        write_json(errors_of(fits), asked.json)
    if not asked.quiet and asked.json != "-":
        typer.echo(markdown(fits))
        for fit in fits:
            for message in fit.messages:
                typer.echo(f"{fit.kernels.id}: {message}", err=True)
