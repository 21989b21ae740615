"""`windtunnel fleet compare RUN JOB`: a watched run beside the prediction of its job."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.fleet.options import FleetCompareCommandOptions

EXAMPLES = """\b
Examples:
  windtunnel fleet compare fleet/my-run job.toml
  windtunnel fleet compare fleet/my-run llama3-8b-8xh100 --last 50 --json compared.json
  windtunnel fleet compare fleet/today job.toml --usual fleet/last-week
"""


@command_of(FleetCompareCommandOptions, order=("run", "job", "sets", "on", "profile", "usual", "last"))
def command(asked: FleetCompareCommandOptions, outputs: Outputs) -> None:
    from windtunnel.cli.shared.job import job_of, tell_source
    from windtunnel.runs.api import compare_fleet_of
    from windtunnel.runs.fleet.comparison_sheet import comparison_sheet

    if asked.usual is not None and asked.profile is not None:
        raise SpecError("--profile", asked.profile, "not together with --usual", "An earlier run needs no measurements of kernels.")
    loaded = job_of(str(asked.job), list(asked.sets), asked.on, of_a_run=True)
    with show_spinner("reading and comparing"):
        comparison = compare_fleet_of(replace(asked, job=loaded.job))
    tell_source(loaded)
    outputs.show(comparison_sheet(comparison), comparison.as_dict)
