"""`windtunnel sensitivity JOB`."""

from __future__ import annotations

from windtunnel.cli.shared.common import Megatron, ModelFile, On, Sets, Source
from windtunnel.cli.shared.job import job_of, tell_assumed, tell_ignored
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.progress import bar

EXAMPLES = """\b
Examples:
  windtunnel sensitivity llama2-70b-64xh100
  windtunnel sensitivity megascale-175b-12288 --html limits.html
  windtunnel sensitivity llama3.1-70b --on h100-ib --set cluster.gpus=512 --set plan.tp=8 --json -
"""


@with_outputs
def command(
    job: Source = None,
    sets: Sets = None,
    on: On = None,
    model: ModelFile = None,
    megatron: Megatron = None,
    *,
    outputs: Outputs,
) -> None:
    from windtunnel.search.levers.sensitivity import sensitivity
    from windtunnel.search.levers.sensitivity_sheet import sensitivity_sheet

    loaded = job_of(job, sets, on, model, megatron)
    with bar(f"predicting changes of {loaded.job.name}") as progress:
        result = sensitivity(loaded.job, progress)
    if outputs.json != "-":
        tell_assumed(loaded)
    outputs.show(sensitivity_sheet(result), result.as_dict())
    tell_ignored(loaded)
