"""`windtunnel runs`, and `windtunnel fleet` where it needs a prediction, as functions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.errors import SpecError
from windtunnel.base.options import asks
from windtunnel.fleet.options import FleetCompareOptions, RunReplayOptions
from windtunnel.runs.options import JobReplayOptions

if TYPE_CHECKING:
    from windtunnel.goodput.conditions import Conditions
    from windtunnel.goodput.measured import FleetRun, Twin
    from windtunnel.runs.fleet.comparison import FleetComparison
    from windtunnel.runs.report import RunReport
    from windtunnel.runs.sources import RunSource
    from windtunnel.spec import Cluster, Job


def show(run: RunSource, *, gpu: str | None = None) -> RunReport:
    """Where the time of a run's steps went, by rank and stream, its calls, and which rank waits for whom: `windtunnel runs show`.

    `run`: as read, its folder, or the files of its ranks; `gpu`: of traces that don't name one of the catalogue. SpecError for
    files that hold no run.
    """
    from windtunnel.runs.operators import operators_of_source
    from windtunnel.runs.report import report_of
    from windtunnel.runs.sources import run_of

    measured = run_of(run)
    return report_of(measured, operators_of_source(run, measured, gpu))


def compare_fleet_of(asked: FleetCompareOptions) -> FleetComparison:
    """A watched run beside the prediction of its job, or beside an earlier run of it (`usual`): `windtunnel fleet compare`.

    `run`: its folder, or the address of its collector. `profile`: not together with `usual`. FileError where there is no run.
    """
    from windtunnel.fleet.sources import read_aligned_run
    from windtunnel.runs.fleet.comparison import compare_sections
    from windtunnel.runs.fleet.usual import usual_sections
    from windtunnel.runs.fleet.watching import calls_block, cores_of_rank
    from windtunnel.spec import Job, load_job

    job = asked.job if isinstance(asked.job, Job) else load_job(asked.job)
    if asked.usual is not None and asked.profile is not None:
        raise SpecError(
            "--profile", str(asked.profile), "not together with --usual", "An earlier run needs no measurements of kernels."
        )
    recorded, _ = read_aligned_run(asked.run)
    blocking, expected = calls_block(recorded), None
    if asked.usual is not None:
        expected = usual_sections(read_aligned_run(asked.usual)[0].sections, job, blocking)
    return compare_sections(
        recorded.sections, job, blocking=blocking, last=asked.last, profile=asked.profile, expected=expected,
        cores=cores_of_rank(recorded),
    )  # fmt: skip


compare_fleet = asks(FleetCompareOptions)(compare_fleet_of)


@asks(RunReplayOptions)
def replay_fleet(asked: RunReplayOptions) -> Twin:
    """What a kept run's own faults say about its ETTR, checkpoint interval and spares: `windtunnel fleet replay RUN`. Raises as
    `fleet_run`."""
    from windtunnel.goodput.measured import twin
    from windtunnel.runs.fleet.kept import fleet_run
    from windtunnel.spec.reliability import Duration

    repair = Duration.model_validate(asked.node_repair) if asked.node_repair is not None else None
    return twin(fleet_run(asked.run, asked.nodes, asked.step, asked.interval, asked.spares), repair)


@asks(JobReplayOptions)
def replay_job(asked: JobReplayOptions) -> Twin:
    """What a job's run of `days` does with the faults of a kept run (as read or its folder), or with so many failures of a node in
    a day: `windtunnel fleet replay JOB --faults`. The job states the kinds of failures (`reliability`). SpecError for a rate that
    is none."""
    from windtunnel.goodput.measured import FleetRun, predict_fleet
    from windtunnel.runs.fleet.kept import fleet_run

    kept = fleet_run(asked.faults) if isinstance(asked.faults, (str, Path)) else asked.faults
    conditions, counted = fault_conditions(asked.job, kept if isinstance(kept, FleetRun) else float(kept))
    return predict_fleet(conditions, asked.days * 86400.0, counted)


def fault_conditions(job: Job, faults: float | FleetRun) -> tuple[Conditions, int]:
    """A job's conditions with a kept run's faults, or so many failures of a node in a day; and how many faults they rest on."""
    from windtunnel.goodput.answer import exposed_share
    from windtunnel.goodput.measured import with_laws_of
    from windtunnel.goodput.run import conditions_of
    from windtunnel.predict.step import predict

    prediction = predict(job)
    conditions = conditions_of(job, prediction.step_time_s, exposed_share(prediction))
    if not isinstance(faults, float):
        return with_laws_of(conditions, faults), sum(one.outcome == "recovered" for one in faults.incidents)
    total = sum(conditions.rate(kind) for _, kind in conditions.kinds) * 86400.0 / conditions.nodes
    if not 0.0 < faults < 1e6 or total <= 0.0:
        raise SpecError("--faults", f"{faults:g}", "failures of a node in a day above zero")
    return replace(conditions, kinds=tuple((name, kind.often(faults / total)) for name, kind in conditions.kinds)), 0


def expected_options(cluster: Cluster) -> dict[str, list[str]]:
    """By self-test of a node of `cluster`, the options with which it compares: for `windtunnel.fleet.run_node_tests`."""
    from windtunnel.runs.fleet.diagnosis import expected_tests

    return {one.test: one.options() for one in expected_tests(cluster)}
