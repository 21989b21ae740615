"""`windtunnel fit engines [FOLDER]`."""

from __future__ import annotations

from windtunnel.calibrate.options import MeasuredFitCommandOptions
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs

EXAMPLES = """\b
Examples:
  windtunnel fit engines                          on the tables of pip install 'windtunnel[measured]'; errors of rows held out
  windtunnel fit engines systems/data --write     store catalog/kernels/engines/*.json
"""


@command_of(MeasuredFitCommandOptions)
def command(asked: MeasuredFitCommandOptions, outputs: Outputs) -> None:
    from windtunnel.calibrate.engines.catalogue import error_lines, write_engines
    from windtunnel.calibrate.fit_sheet import held_out_sheet
    from windtunnel.cli.shared.progress import bar
    from windtunnel.fit import engines

    with bar("fitting") as shown:
        fits = engines(asked.folder, systems=asked.systems, report=shown)
    if asked.write:
        write_engines(fits)
    sheet = held_out_sheet("kernels of inference engines", ("GPU", "engine", "held-out class", "tokens"), error_lines(fits))
    outputs.show(sheet, [one.as_dict() for one in fits])
