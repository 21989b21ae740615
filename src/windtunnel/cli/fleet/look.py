"""Verbs of `windtunnel fleet` on the records of a watched run: show, compare, trace, incidents. `windtunnel fleet hang RUN`: who
holds a job up that does not move. `windtunnel fleet replay RUN|JOB`: what goodput predicts from a fleet's own faults. What the
verbs say of a run whose last saves of checkpoints were lost.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.text import clean
from windtunnel.cli.shared.common import print_list, show_spinner
from windtunnel.cli.shared.outputs import Outputs, said_command
from windtunnel.fleet.options import FleetCompareCommandOptions, FleetReplayOptions, FleetShowOptions
from windtunnel.records.checkpoint_events import lost_saves

if TYPE_CHECKING:
    from windtunnel.goodput.conditions import Conditions
    from windtunnel.goodput.measured import FleetRun
    from windtunnel.sheet.blocks import Sheet


EVIDENCE = (
    "a watched run, dumps of PyTorch's flight recorder, or a log with lines of NCCL's watchdog, ncclras, CUDA out of memory, "
    "torchrun's table of failures, Xid or other lines of the kernel, of a scheduler, or what torchfrtrace prints"
)


def hang(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|URL|FILE...",
            help="A watched run or its collector, flight-recorder dumps, or a log with a job's last words.",
        ),
    ],
    *,
    outputs: Outputs,
) -> None:
    from windtunnel.fleet.api import find_hang
    from windtunnel.fleet.sources import is_url
    from windtunnel.formats.door import list_files, read_files
    from windtunnel.formats.logs.failures.whole import TEXTS, whole_hang
    from windtunnel.runs.fleet.show_sheet import hang_sheet

    if len(files) == 1 and (is_url(files[0]) or _is_watched_run(Path(files[0]))):
        facts = find_hang(files[0])
    else:
        reading = read_files(files)
        print_list(reading.broken, "could not be read")
        print_list(reading.assumed, "assumed")
        found = reading.facts.get("hang")
        if reading.format in TEXTS:
            logs = [path for given in files for path in list_files(Path(given))]
            found = whole_hang(logs, None if found is None else (reading.format, found))
        if found is None:
            raise SpecError("RUN", f"{reading.format}, without a call that hangs", EVIDENCE)
        facts = found
    outputs.show(hang_sheet(facts), facts)


def _is_watched_run(path: Path) -> bool:
    """Whether a folder holds records of a watched run rather than dumps."""
    from windtunnel.fleet.sources import run_folder

    if not path.is_dir():
        return False
    try:
        run_folder(path)
    except FileError:
        return False
    return True


FAILURES = "llama3-2024"
"""Kinds of failures where a rate alone is given, and the job states none."""


def replay(asked: FleetReplayOptions, outputs: Outputs) -> None:
    from pydantic import ValidationError

    from windtunnel.goodput.incidents_sheet import twin_sheet
    from windtunnel.goodput.measured import predict_fleet, twin
    from windtunnel.runs.fleet.kept import fleet_run, is_kept
    from windtunnel.spec.reliability import Duration

    target, faults, node_repair = str(asked.run), asked.faults, asked.node_repair
    of_run = (asked.nodes, asked.step, asked.interval, asked.spares)
    try:
        repair = Duration.model_validate(node_repair) if node_repair is not None else None
    except ValidationError as error:
        raise SpecError("--node-repair", node_repair, "a time such as 1d, 6h or a number of seconds") from error
    run: FleetRun | None = None
    if Path(target).is_dir():
        if faults is not None:
            raise SpecError("--faults", faults, "--faults with a job", f"{target} is a run and has faults of its own.")
        run = fleet_run(target, *of_run)
        found = twin(run, repair)
    elif faults is None:
        hint = f"Type: windtunnel fleet replay {target} --faults RUN"
        raise SpecError("RUN|JOB", target, "a kept run's folder, or a job with --faults", hint)
    else:
        kept = fleet_run(faults, *of_run) if is_kept(faults) else None
        with show_spinner("predicting"):
            conditions, counted = _conditions(target, list(asked.sets), asked.on, faults, kept)
            found = predict_fleet(conditions, asked.days * 86400.0, counted)
    outputs.show(twin_sheet(found, run), found.as_dict(run))


def _conditions(job: str, sets: list[str], on: str | None, faults: str, kept: FleetRun | None) -> tuple[Conditions, int]:
    """A job's conditions with a kept run's faults, or with a rate; and how many faults they rest on."""
    from windtunnel.cli.shared.job import job_of, tell_source
    from windtunnel.runs.api import fault_conditions

    loaded = job_of(job, sets, on, of_a_run=True)
    if loaded.job.reliability is None:
        loaded = job_of(job, [f"reliability={FAILURES}", *sets], on, of_a_run=True)
    tell_source(loaded)
    if kept is not None:
        return fault_conditions(loaded.job, kept)
    try:
        rate = float(faults)
    except ValueError:
        raise SpecError("--faults", faults, "a kept run's folder, or failures of a node in a day, such as 0.004") from None
    return fault_conditions(loaded.job, rate)


def lost_save_notes(run: str | Path) -> list[str]:
    """A line where the newest save of a run's folder was lost; none for a collector's address."""
    try:
        lost = lost_saves(run)
    except FileError as error:
        return [f"The events of its checkpoints cannot be read: {clean(str(error))}"]
    return [f"Its last checkpoints were lost: {clean(lost)}."] if lost else []


FOLLOWED = 200
"""Steps that a page that is followed shows, where nobody says how many."""


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
