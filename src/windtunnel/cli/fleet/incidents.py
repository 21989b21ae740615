"""`windtunnel fleet incidents RUN`: what happened to a kept run, and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.cli.fleet.saves import lost_save_notes
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
    from windtunnel.draw.page.frame import check_page
    from windtunnel.goodput.measured import twin
    from windtunnel.records.incidents import read_incidents
    from windtunnel.report.fleet.incidents import incidents_dict, incidents_page, write_incidents_page
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
        return _show(run, read_incidents(run), None)
    if html is not None:
        known = kept.interval is not None and any(one.outcome == "recovered" for one in kept.incidents)
        found = twin(kept) if known else None
        write_incidents_page(incidents_page(run.name, kept, found, f"windtunnel fleet incidents {run} --html {html}"), html)
    if json is not None:
        write_json(incidents_dict(kept), json)
    if json != "-":
        _show(run, kept.incidents, kept)


def _show(run: Path, incidents: tuple[Incident, ...], kept: FleetRun | None) -> None:
    """`kept`: the run, None where it has no step whose time is known."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from windtunnel.records.incidents import replayed_seconds
    from windtunnel.report.fleet.twin import ettr_text, replay_notes
    from windtunnel.sheet import numbers as say

    table = Table("", "what", "where", "action", "no training", "repeating steps", "outcome", "why", box=None, pad_edge=False)
    for one in incidents:
        again = say.seconds(replayed_seconds(one, kept.step)) if kept else str(one.lost_steps or "")
        cost = say.seconds(one.seconds.down)
        why = kept.story(one) if kept else one.evidence
        again = say.UNKNOWN if one.is_replay_unknown else again
        cells = (str(one.number), one.what, one.node or "", one.action, cost, again, one.outcome, why)
        table.add_row(*(Text(say.clean(cell)) for cell in cells))
    console = Console()
    count = f"{len(incidents)} incident{'' if len(incidents) == 1 else 's'}"
    console.print(f"{count} in {say.seconds(kept.wall)}, ETTR {ettr_text(kept)}" if kept else count, highlight=False)
    for line in [*lost_save_notes(run), *(replay_notes(kept) if kept else [])]:
        console.print(line, style="bold", markup=False, highlight=False)
    if incidents:
        console.print(table)
