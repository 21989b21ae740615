"""`windtunnel fleet incidents RUN`: what happened to a kept run, and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.cli.shared.common import Json, writable, write_json

if TYPE_CHECKING:
    from windtunnel.goodput.measured import FleetRun
    from windtunnel.records.incidents import Incident

EXAMPLES = """\b
Examples:
  windtunnel fleet incidents out/fleet/tutorial
  windtunnel fleet incidents out/fleet/tutorial --html incidents.html
"""


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A kept run's folder.")],
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write a page: timeline, where the time went, incidents.")
    ] = None,
    step: Annotated[
        float | None, typer.Option("--step", metavar="SECONDS", help="Seconds of a step, if no event states them.")
    ] = None,
    json: Json = None,
) -> None:
    from windtunnel.base.errors import WindtunnelError
    from windtunnel.goodput.measured import twin
    from windtunnel.records.incidents import read_incidents
    from windtunnel.report.fleet.incidents import incidents_dict, incidents_page, write_incidents_page
    from windtunnel.report.page.frame import check_page
    from windtunnel.runs.fleet.kept import PLAN, fleet_run, is_kept

    writable(("--json", json), ("--html", html))
    if html is not None:
        check_page(html)
    if html is None and json is None and step is None and not (run / PLAN).exists() and not is_kept(run):
        fleet_run(run)  # says what such a folder has
    try:
        kept = fleet_run(run, step=step)
    except WindtunnelError:  # no step has ended yet, or nothing has happened
        if html is not None or json is not None or step is not None:
            raise
        return _show(read_incidents(run), None)
    if html is not None:
        found = twin(kept) if any(one.outcome == "recovered" for one in kept.incidents) else None
        write_incidents_page(incidents_page(run.name, kept, found, f"windtunnel fleet incidents {run} --html {html}"), html)
    if json is not None:
        write_json(incidents_dict(kept), json)
    if json != "-":
        _show(kept.incidents, kept)


def _show(incidents: tuple[Incident, ...], kept: FleetRun | None) -> None:
    """`kept`: the run, None where it has no step whose time is known."""
    from rich.console import Console
    from rich.table import Table

    from windtunnel.records.incidents import replayed_seconds
    from windtunnel.report.words import numbers as say

    table = Table("", "what", "where", "action", "no training", "repeating steps", "outcome", "why", box=None, pad_edge=False)
    for one in incidents:
        again = say.seconds(replayed_seconds(one, kept.step)) if kept else str(one.lost_steps or "")
        cost = say.seconds(one.seconds.down)
        why = say.clean(kept.story(one) if kept else one.evidence)
        table.add_row(str(one.number), one.what, one.node or "", one.action, cost, again, one.outcome, why)
    console = Console()
    count = f"{len(incidents)} incident{'' if len(incidents) == 1 else 's'}"
    console.print(f"{count} in {say.seconds(kept.wall)}, ETTR {say.percent(kept.ettr)}" if kept else count, highlight=False)
    if incidents:
        console.print(table)
