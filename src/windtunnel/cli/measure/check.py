"""`windtunnel measure check FOLDER`."""

from __future__ import annotations

from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.measure.options import MeasureCheckOptions


@command_of(MeasureCheckOptions, order=("folder",))
def command(asked: MeasureCheckOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import check
    from windtunnel.measure.sheet import check_sheet

    with show_spinner("checking"):
        checked = check(asked.folder, ranks=asked.ranks, budget=asked.budget)
    outputs.show(check_sheet(checked), checked.as_dict())
