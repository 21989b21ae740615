"""`windtunnel profile` as functions: measure layers and kernels into datasets, and read these."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windtunnel.profile.case import Case
    from windtunnel.profile.device import Device
    from windtunnel.profile.gains import Gain
    from windtunnel.profile.kernels import KernelCase
    from windtunnel.profile.run import Outcome, RunSettings
    from windtunnel.profile.session import Report
    from windtunnel.profile.sweep import SweepOutcome
    from windtunnel.records import Dataset
    from windtunnel.spec import Job

    Measured = Dataset | str | Path

NAMING = 0.12
"""Share of a budget kept for the names of the kernels."""


def run(
    cases: Job | Case | Sequence[Job | Case],
    out: str | Path,
    *,
    device: str | Device = "auto",
    settings: RunSettings | None = None,
    resume: bool = False,
    budget: float | None = None,
    report: Report = lambda share: False,
) -> Outcome:
    """Measures layers of a model at a job's shard shapes, their sub-modules and a step, into the Parquet file `out`; needs torch.

    `cases`: jobs, each for one GPU's shard, or cases of a model with its sizes. `device`: auto, cuda, cuda:1, rocm or cpu.
    `settings`: levels, modes, libraries, repetitions. `resume`: continue the file. Nothing new starts after `budget` seconds;
    `report` gets the finished share, and stops the run where it returns true. The result says what was measured, left and kept out.
    SpecError for a job that cannot run as modules and where PyTorch or the device is missing; FileError if `out` exists without
    `resume`.
    """
    from windtunnel.profile.case import Case, of_job
    from windtunnel.profile.run import run as measure
    from windtunnel.spec import Job

    listed = [cases] if isinstance(cases, (Job, Case)) else list(cases)
    quieten_profiler()
    return measure(
        [of_job(one) if isinstance(one, Job) else one for one in listed],
        device,
        out,
        settings,
        resume=resume,
        budget=budget,
        report=report,
    )


def plan(
    job: Job | None = None,
    *,
    classes: Sequence[str] = (),
    models: Sequence[str] = (),
    tp: Sequence[int] = (),
    tokens: Sequence[int] = (),
    dtypes: Sequence[str] = (),
    modes: Sequence[str] = ("eager",),
    cuda: bool = True,
) -> list[KernelCase]:
    """The kernels that a sweep measures, the most valuable first: those of one GPU's share of `job`, or of the catalogue's models.

    `classes`: of kernels, all where left out; `models` (names), `tp`, `tokens` (in a launch), `dtypes` and `modes` without a job;
    `cuda`: whether they are for a GPU. UnknownName for a class, model or mode that is none.
    """
    from windtunnel.profile.job_cases import cases_of_job
    from windtunnel.profile.kernels import scope_of
    from windtunnel.profile.sweep import plan as plan_scope

    if job is not None:
        return cases_of_job(job, cuda, classes)
    return plan_scope(scope_of(tuple(models), tuple(tp), tuple(tokens), tuple(dtypes), cuda), classes, modes)


def sweep(
    cases: Job | Sequence[KernelCase],
    out: str | Path,
    *,
    device: str | Device = "auto",
    resume: bool = False,
    budget: float | None = None,
    report: Report = lambda share: False,
) -> SweepOutcome:
    """Measures kernels one by one into the Parquet file `out`: those of `plan`, or of a job's share; needs torch.

    `device`: auto, cuda, cuda:1, rocm or cpu; `resume`: continue the file. Ends after `budget` seconds, or where `report`, which
    gets the finished share, returns true; what was measured is kept. SpecError where PyTorch or the device is missing; FileError if
    `out` exists without `resume`; EngineError if the device fails.
    """
    from windtunnel.profile.datasheet import about
    from windtunnel.profile.device import open_device
    from windtunnel.profile.job_cases import cases_of_job
    from windtunnel.profile.power import meter
    from windtunnel.profile.session import Session
    from windtunnel.profile.sweep import sweep as measure
    from windtunnel.profile.sweep_names import name_kernels
    from windtunnel.spec import Job

    quieten_profiler()
    there = open_device(device) if isinstance(device, str) else device
    chosen = cases_of_job(cases, there.cuda) if isinstance(cases, Job) else list(cases)
    watch = meter(there.cuda, there.index)
    session = Session(str(out), about(there, watch, not (resume and Path(out).exists())), resume)
    measuring = None if budget is None else (1 - NAMING) * budget
    outcome = measure(chosen, there, session, budget=measuring, meter=watch, report=report)
    if not outcome.stopped:
        left = 600.0 if budget is None else max(0.0, budget - outcome.seconds)
        name_kernels(chosen, there, session, left, report)
    outcome.rows = len(session.rows)
    return outcome


def show(data: Measured) -> dict[str, Any]:
    """What a dataset (as read, or its file) holds: `about` its GPU and software, `rows`, and `contents` by level, op, phase, dtype
    and mode, with the shortest and longest seconds."""
    from windtunnel.records.kernel_dataset import contents_of

    return contents_of(_dataset(data))


def gains(data: Measured) -> list[Gain]:
    """What compiling and CUDA graphs gain, for each shape that was measured in eager mode and in another one: eager seconds over
    the mode's."""
    from windtunnel.profile.gains import gains as gains_of

    return gains_of(_dataset(data))


def export(data: Measured) -> str:
    """A dataset (as read, or its file) as the text of a CSV, which `windtunnel.read_kernel_times` reads back."""
    from windtunnel.records import to_csv

    return to_csv(_dataset(data))


def quieten_profiler() -> None:
    """PyTorch's profiler prints no line at every start and stop, unless the environment says how much it prints."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")


def _dataset(data: Measured) -> Dataset:
    from windtunnel.records import read_any

    return read_any(data) if isinstance(data, (str, Path)) else data
