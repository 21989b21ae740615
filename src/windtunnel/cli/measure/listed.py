"""`windtunnel measure list FOLDER`."""

from __future__ import annotations

from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.measure.options import MeasureListOptions


@command_of(MeasureListOptions, order=("folder",))
def command(asked: MeasureListOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import list_cells
    from windtunnel.measure.sheet import cells_sheet

    cells = list_cells(asked.folder)
    outputs.show(cells_sheet(cells), {"cells": [cell.as_dict() for cell in cells]})
