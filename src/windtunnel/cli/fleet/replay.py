"""`windtunnel fleet replay RUN|JOB`: what goodput predicts from a fleet's own faults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.fleet.options import FleetReplayOptions

if TYPE_CHECKING:
    from windtunnel.goodput.conditions import Conditions
    from windtunnel.goodput.measured import FleetRun

FAILURES = "llama3-2024"
"""Kinds of failures where a rate alone is given, and the job states none."""


@command_of(FleetReplayOptions, order=("run", "faults"))
def command(asked: FleetReplayOptions, outputs: Outputs) -> None:
    from pydantic import ValidationError

    from windtunnel.base.errors import SpecError
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
    from windtunnel.base.errors import SpecError
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
