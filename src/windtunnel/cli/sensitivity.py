"""`windtunnel sensitivity JOB`."""

from __future__ import annotations

from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.cli.shared.progress import bar
from windtunnel.search.options import SensitivityOptions


@command_of(SensitivityOptions)
def command(asked: SensitivityOptions, outputs: Outputs) -> None:
    from windtunnel.search.levers.sensitivity import sensitivity
    from windtunnel.search.levers.sensitivity_sheet import sensitivity_sheet

    with bar(f"predicting changes of {asked.job.name}") as progress:
        result = sensitivity(asked.job, progress)
    outputs.show(sensitivity_sheet(result), result.as_dict)
