"""`windtunnel fit published FOLDER`."""

from __future__ import annotations

from pathlib import Path

from windtunnel.calibrate.options import PublishedFitCommandOptions
from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs

EXAMPLES = """\b
Examples:
  windtunnel fit published kernels/            print errors of rows held out of the fit
  windtunnel fit published kernels/ --write    store catalog/kernels/*.json
"""


@command_of(PublishedFitCommandOptions)
def command(asked: PublishedFitCommandOptions, outputs: Outputs) -> None:
    from windtunnel.calibrate.fit_sheet import held_out_sheet
    from windtunnel.calibrate.kernels.catalogue import build, error_lines, errors_of
    from windtunnel.compute.kernel_file import FOLDER, text

    with show_spinner("fitting kernels"):
        fits = list(build(Path(asked.folder)))
    if asked.write:
        for fit in fits:
            (FOLDER / f"{fit.kernels.id}.json").write_text(text(fit.kernels), encoding="utf-8")
    messages = [f"{fit.kernels.id}: {message}" for fit in fits for message in fit.messages]
    outputs.show(
        held_out_sheet("published kernels", ("GPU", "held-out class"), error_lines(fits), messages=messages), errors_of(fits)
    )
