"""`windtunnel measure use FOLDER`."""

from __future__ import annotations

from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.measure.options import MeasureUseOptions


@command_of(MeasureUseOptions, order=("folder",))
def command(asked: MeasureUseOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import use
    from windtunnel.measure.sheet import used_sheet

    used = use(asked.folder, anyway=asked.anyway)
    outputs.show(used_sheet(used), used.as_dict())
