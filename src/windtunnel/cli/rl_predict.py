"""`windtunnel rl-predict JOB`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.cli.shared import complete
from windtunnel.cli.shared.common import Json, Quiet, Sets, show_spinner, writable, write_json
from windtunnel.cli.shared.pages import Html, check_html, said_command, write_html

EXAMPLES = """\b
Examples:
  windtunnel rl-predict job.toml
  windtunnel rl-predict job.toml --set rl.mode=async --set rl.rollout.gpus=32 --set cluster.gpus=64
  windtunnel rl-predict run_grpo.sh --on h100-ib --log console.log
  windtunnel rl-predict job.toml --set rl.mode=async --set rl.rollout.gpus=32 --splits
"""


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
    json: Json = None,
    html: Html = None,
    quiet: Quiet = False,
) -> None:
    writable(("--json", json), ("--html", html))
    check_html(html)
    if job is None:
        raise SpecError(
            "JOB",
            Nothing(),
            'a job file with workload = "rl", or a script of an RL trainer',
            "docs/rl.md has a file to begin with.",
        )
    predict_file(job, on, log, splits, sets, json, quiet, html)


def predict_file(
    job: str,
    on: str | None,
    log: str | None,
    splits: bool,
    sets: list[str] | None,
    json: str | None,
    quiet: bool,
    html: str | None = None,
) -> None:
    """The answer for a job, in the terminal, as JSON and as a page."""
    from windtunnel.api.rl import rl_predict, rl_splits

    if splits:
        with show_spinner("trying divisions"):
            tried = rl_splits(job, on, sets or (), log, html is not None)
        if json is not None:
            write_json(
                [
                    {"rollout_gpus": one.rl.rollout.gpus, "step": step.as_dict() if hasattr(step, "as_dict") else str(step)}
                    for one, step in tried
                ],
                json,
            )
        best = tried[0][1]
        if html is not None:
            from windtunnel.report.page.rl import page
            from windtunnel.rl import RLStep

            if not isinstance(best, RLStep):
                raise best
            write_html(page(best, tried, said_command()), html)
        if not quiet and json != "-":
            from windtunnel.report.text.rl import report_splits

            report_splits(tried)
        return
    with show_spinner("simulating the rollout"):
        step = rl_predict(job, on, sets or (), log, html is not None)
    if json is not None:
        write_json(step.as_dict(), json)
    if html is not None:
        from windtunnel.report.page.rl import page

        write_html(page(step, (), said_command()), html)
    if not quiet and json != "-":
        from windtunnel.report.text.rl import report

        report(step)
