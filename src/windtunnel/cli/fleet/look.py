"""Verbs of `windtunnel fleet` on the records of a watched run: show, compare, trace, incidents."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.fleet.saves import lost_save_notes
from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs, said_command, with_outputs
from windtunnel.fleet.options import FleetCompareCommandOptions, FleetShowOptions

if TYPE_CHECKING:
    from windtunnel.sheet.blocks import Sheet

FOLLOWED = 200
"""Steps that a page that is followed shows, where nobody says how many."""


@command_of(FleetShowOptions, order=("run", "trace"))
def show(asked: FleetShowOptions, outputs: Outputs) -> None:
    from windtunnel.fleet.api import judge_run
    from windtunnel.fleet.monitor import has_ended
    from windtunnel.runs.fleet.show import fleet_dict
    from windtunnel.runs.fleet.trace import write_fleet_trace

    run, html, follow = str(asked.run), outputs.html, asked.follow
    if follow and html is None:
        raise SpecError("--follow", "no page", "--follow with --html", "Type: windtunnel fleet show RUN --html run.html --follow")

    def sheet() -> Sheet:
        from windtunnel.runs.fleet.show_sheet import watched_sheet

        return watched_sheet(found, Path(run).name, lost_save_notes(run), time.time() if going else 0.0, outputs.wants_detail)

    while True:
        with show_spinner("reading and judging"):
            found = judge_run(run, asked.last or (FOLLOWED if follow else None))
        going = follow and not has_ended(found.recorded)
        if follow and html is not None:
            from windtunnel.draw.page.sheet import write_page

            write_page(sheet(), html, said_command(), outputs.language, reload=asked.every if going else 0.0)
        if not going:
            break
        time.sleep(asked.every)
    if asked.trace is not None:
        write_fleet_trace(found.recorded.sections, asked.trace)
    table = fleet_dict(found.recorded, found.judgement, found.hang, found.alarms)
    (replace(outputs, html=None) if follow else outputs).show(sheet, table)


@command_of(FleetCompareCommandOptions, order=("run", "job", "sets", "on", "profile", "usual", "last"))
def compare(asked: FleetCompareCommandOptions, outputs: Outputs) -> None:
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


def trace(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a watched run that trains.")],
    *,
    rank: Annotated[int, typer.Option(help="The rank that takes the trace.", min=0)] = 0,
    steps: Annotated[int, typer.Option(help="Steps of the trace.", min=1)] = 3,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the trace.", min=1)] = 600,
) -> None:
    from windtunnel.fleet.launch.sidecars import COLLECTED
    from windtunnel.fleet.sources import run_folder
    from windtunnel.fleet.tracing import ask_for_trace, await_trace

    folder = run_folder(run)
    folder = folder.parent if folder.name == COLLECTED else folder
    ask_for_trace(folder, rank, steps)
    typer.echo(f"Asked rank {rank}; it begins at the end of its step.", err=True)
    path = await_trace(folder, rank, wait)
    typer.echo(path)
    typer.echo(f"Read it: windtunnel runs show {path}", err=True)


@with_outputs
def incidents(
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
