"""`windtunnel sensitivity JOB`."""

from __future__ import annotations

from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.cli.shared.progress import bar
from windtunnel.search.options import SensitivityOptions

EXAMPLES = """\b
Examples:
  windtunnel sensitivity llama2-70b-64xh100
  windtunnel sensitivity megascale-175b-12288 --html limits.html
  windtunnel sensitivity llama3.1-70b --on h100-ib --set cluster.gpus=512 --set plan.tp=8 --json -
"""


@command_of(SensitivityOptions)
def command(asked: SensitivityOptions, outputs: Outputs) -> None:
    from windtunnel.search.levers.sensitivity import sensitivity
    from windtunnel.search.levers.sensitivity_sheet import sensitivity_sheet

    with bar(f"predicting changes of {asked.job.name}") as progress:
        result = sensitivity(asked.job, progress)
    outputs.show(sensitivity_sheet(result), result.as_dict)
