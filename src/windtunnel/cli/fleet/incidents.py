"""`windtunnel fleet incidents RUN`: what happened to a kept run, and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windtunnel.cli.fleet.saves import lost_save_notes
from windtunnel.cli.shared.outputs import Outputs, with_outputs

EXAMPLES = """\b
Examples:
  windtunnel fleet incidents out/fleet/tutorial
  windtunnel fleet incidents out/fleet/tutorial --html incidents.html
"""


@with_outputs
def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A kept run's folder.")],
    step: Annotated[
        float | None, typer.Option("--step", metavar="SECONDS", help="Seconds of a step, if no event states them.")
    ] = None,
    *,
    outputs: Outputs,
) -> None:
    from windtunnel.base.errors import WindtunnelError
    from windtunnel.goodput.incidents_sheet import incidents_sheet
    from windtunnel.goodput.measured import twin
    from windtunnel.records.incidents import read_incidents
    from windtunnel.runs.fleet.kept import PLAN, fleet_run, is_kept

    files = any(path is not None for path in (outputs.html, outputs.json, outputs.csv, outputs.sheet))
    if not files and step is None and not (run / PLAN).exists() and not is_kept(run):
        fleet_run(run)  # says what such a folder has
    try:
        kept = fleet_run(run, step=step)
    except WindtunnelError:  # no step has ended yet, or nothing has happened
        if files or step is not None:
            raise
        return outputs.show(incidents_sheet(run.name, read_incidents(run), None, None, lost_save_notes(run)), {})
    known = kept.interval is not None and any(incident.outcome == "recovered" for incident in kept.incidents)
    found = twin(kept) if known and (outputs.wants_detail or outputs.csv is not None) else None
    outputs.show(incidents_sheet(run.name, kept.incidents, kept, found, lost_save_notes(run)), kept.as_dict)
