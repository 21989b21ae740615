"""`windtunnel fit forward [FOLDER]`."""

from __future__ import annotations

from windtunnel.base.errors import SpecError
from windtunnel.calibrate.options import MeasuredFitCommandOptions
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs

EXAMPLES = """\b
Examples:
  windtunnel fit forward                          on the tables of pip install 'windtunnel[measured]'; errors of rows held out
  windtunnel fit forward systems/data --write     store catalog/kernels/forward/curves.json
"""


@command_of(MeasuredFitCommandOptions)
def command(asked: MeasuredFitCommandOptions, outputs: Outputs) -> None:
    if asked.write and asked.systems:
        raise SpecError("--write", ", ".join(asked.systems), "no --system", "The file holds all GPUs.")
    from windtunnel.calibrate.fit_sheet import held_out_sheet
    from windtunnel.calibrate.forward.fit import write_forward
    from windtunnel.cli.shared.progress import bar
    from windtunnel.fit import forward

    with bar("fitting") as shown:
        made = forward(asked.folder, systems=asked.systems, report=shown)
    if asked.write:
        write_forward(made)
    outputs.show(held_out_sheet("forward kernels of training", ("GPU", "held-out class", "source"), made.lines), made.as_dict())
