"""`windtunnel rl-predict JOB`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.cli.shared import complete
from windtunnel.cli.shared.common import Sets, show_spinner
from windtunnel.cli.shared.outputs import Outputs, with_outputs

EXAMPLES = """\b
Examples:
  windtunnel rl-predict job.toml
  windtunnel rl-predict job.toml --set rl.mode=async --set rl.rollout.gpus=32 --set cluster.gpus=64
  windtunnel rl-predict run_grpo.sh --on h100-ib --log console.log
  windtunnel rl-predict job.toml --set rl.mode=async --set rl.rollout.gpus=32 --splits
"""


@with_outputs
def command(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help='A job file with workload = "rl", or a file of verl, slime, OpenRLHF, NeMo RL or TRL.'),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="CLUSTER", help="The machine of a script, or another one.", autocompletion=complete.machines),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            "--log", metavar="FILE", help="verl's console log: its lengths are taken, its phases stand beside predicted ones."
        ),
    ] = None,
    splits: Annotated[bool, typer.Option("--splits", help="Try every division of the nodes into rollout and update.")] = False,
    sets: Sets = None,
    *,
    outputs: Outputs,
) -> None:
    if job is None:
        raise SpecError(
            "JOB",
            Nothing(),
            'a job file with workload = "rl", or a script of an RL trainer',
            "docs/rl.md has a file to begin with.",
        )
    predict_file(job, on, log, splits, sets, outputs)


def predict_file(job: str, on: str | None, log: str | None, splits: bool, sets: list[str] | None, outputs: Outputs) -> None:
    """The answer for a job, where `outputs` wants it."""
    from windtunnel.api.rl import rl_predict, rl_splits
    from windtunnel.rl import RLStep
    from windtunnel.rl.sheet import splits_sheet, step_sheet

    if not splits:
        with show_spinner("simulating the rollout"):
            step = rl_predict(job, on, sets or (), log, outputs.wants_detail)
        outputs.show(step_sheet(step), step.as_dict())
        return
    with show_spinner("trying divisions"):
        tried = rl_splits(job, on, sets or (), log, outputs.wants_detail)
    table = [
        {"rollout_gpus": whole.rl.rollout.gpus, "step": found.as_dict() if isinstance(found, RLStep) else str(found)}
        for whole, found in tried
    ]
    best = tried[0][1]
    if outputs.wants_detail:
        if not isinstance(best, RLStep):
            raise best
        replace(outputs, json=None, csv=None, quiet=True).show(step_sheet(best, tried), {})
    replace(outputs, html=None, sheet=None).show(splits_sheet(tried), table)
