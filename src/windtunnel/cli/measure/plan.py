"""`windtunnel measure plan JOB --budget 8m --out FOLDER`."""

from __future__ import annotations

from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.measure.options import MeasurePlanOptions

EXAMPLES = """\b
Examples:
  windtunnel measure plan llama3-8b-8xh100 --gpu h100-sxm-80gb --budget 8m
  windtunnel measure plan --model llama3.2-1b --gpu h100-sxm-80gb --budget 8m
"""


@command_of(MeasurePlanOptions, order=("job", "model", "gpu", "budget", "out"))
def command(asked: MeasurePlanOptions, outputs: Outputs) -> None:
    from windtunnel.measure.api import plan
    from windtunnel.measure.sheet import plan_sheet

    with show_spinner("planning"):
        made = plan(**vars(asked))
    outputs.show(plan_sheet(made, "" if asked.out is None else str(asked.out)), made.as_dict())
