"""`windtunnel suite [MODEL]...`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from windtunnel.api.options import SuiteOptions
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.cli.shared.progress import bar

if TYPE_CHECKING:
    from windtunnel.sheet.blocks import Sheet


@command_of(SuiteOptions)
def command(asked: SuiteOptions, outputs: Outputs) -> None:
    from windtunnel.api.suite import suite_of

    with bar("predicting") as progress:
        suite = suite_of(replace(asked, progress=progress))

    def sheet() -> Sheet:
        from windtunnel.api.suite import suite_sheet

        return suite_sheet(suite)

    outputs.show(sheet, suite.as_dict)
