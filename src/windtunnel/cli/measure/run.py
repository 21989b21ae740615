"""`windtunnel measure run FOLDER`."""

from __future__ import annotations

from windtunnel.cli.shared.common import notes
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.measure.options import MeasureRunOptions


@command_of(MeasureRunOptions, order=("folder", "budget"))
def command(asked: MeasureRunOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import run
    from windtunnel.measure.sheet import cells_sheet

    def tell(line: str) -> None:
        notes().print(line, markup=False, highlight=False, soft_wrap=True)

    cell = run(asked.folder, budget=asked.budget, only=asked.only, tell=tell)
    outputs.show(cells_sheet((cell,)), cell.as_dict())
