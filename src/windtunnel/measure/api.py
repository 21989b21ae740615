"""`windtunnel measure` as functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.options import asks
from windtunnel.measure.options import (
    MeasureCheckOptions,
    MeasureFromOptions,
    MeasureListOptions,
    MeasurePlanOptions,
    MeasureRunOptions,
    MeasureUseOptions,
)

if TYPE_CHECKING:
    from windtunnel.measure.cells import MeasuredCell, UsedCell
    from windtunnel.measure.judge import CheckedCell
    from windtunnel.profile.campaign import Campaign
    from windtunnel.records import Dataset


@asks(MeasurePlanOptions)
def plan(asked: MeasurePlanOptions) -> Campaign:
    """What to measure within `budget` so that predictions of a job, or of one rank of `model`, rest on measurements of `gpu`.

    Written to `out`/plan.json where that is given. `gpu` auto: this machine's, which needs torch. With `server`: loads of that
    running server, which is asked what it is. SpecError for a job that cannot run as modules and a server that does not answer,
    UnknownName for names that are none.
    """
    from windtunnel.measure.planning import asked_job, described_gpu, plan_of, seconds_of, with_storage
    from windtunnel.profile.campaign import write_campaign

    sets = tuple(asked.sets)
    if asked.server is not None:
        from windtunnel.measure.served import plan_server

        described_job = None if asked.job is None else str(asked.job)
        served = plan_server(asked.server, described_job, asked.model, asked.gpu, seconds_of(asked.budget), sets)
        if asked.out is not None:
            write_campaign(served, Path(asked.out))
        return served
    job = asked_job(None if asked.job is None else str(asked.job), asked.model, sets)
    gpu, device, described = described_gpu(asked.gpu, asked.device, asked.threads)
    source = str(asked.job if asked.job is not None else asked.model)
    made = plan_of(job, gpu, device, seconds_of(asked.budget), asked.ranks, asked.threads, source, sets, described)
    if asked.job is not None or asked.checkpoints is not None:
        made = with_storage(made, job, asked.job is not None, asked.checkpoints)
    if asked.out is not None:
        write_campaign(made, Path(asked.out))
    return made


@asks(MeasureRunOptions)
def run(asked: MeasureRunOptions) -> MeasuredCell:
    """Measures the plan of `folder` within its budget, or within `budget`, and goes on with what is there; needs torch.

    The measuring process is ended by the clock, at most 8 % over. FileError where there is no plan, EngineError if a device fails.
    """
    from windtunnel.measure.cells import cell_of
    from windtunnel.measure.planning import seconds_of
    from windtunnel.profile.campaign import read_campaign, supervise

    folder = Path(asked.folder)
    campaign = read_campaign(folder)
    budget = campaign.budget if asked.budget is None else seconds_of(asked.budget)
    only = [word.strip() for word in (asked.only or "").split(",") if word.strip()]
    supervise(folder, budget, only, asked.tell or (lambda line: None))
    return cell_of(folder)


@asks(MeasureCheckOptions)
def check(asked: MeasureCheckOptions) -> CheckedCell:
    """Whether predictions may rest on what `folder` holds: a fifth of its kernels is held back and predicted from the others, and
    steps that no fit has seen, one of several ranks among them, are measured now for at most `budget`, and predicted.

    Written to `folder`/check.json. SpecError where too little was measured, FileError for rows that are not as sealed.
    """
    from windtunnel.measure.judge import judge
    from windtunnel.measure.planning import seconds_of
    from windtunnel.profile.campaign import read_campaign

    campaign = read_campaign(Path(asked.folder))
    if campaign.server:
        from windtunnel.measure.served import judge_server

        return judge_server(Path(asked.folder), campaign, seconds_of(asked.budget))
    return judge(Path(asked.folder), asked.ranks, seconds_of(asked.budget))


@asks(MeasureUseOptions)
def use(asked: MeasureUseOptions) -> UsedCell:
    """Curves, a machine and jobs of `folder` as files that every verb takes; numbers name the dataset as their source.

    SpecError for a cell that was not checked, or whose check says no, without `anyway`.
    """
    from windtunnel.measure.cells import use_cell
    from windtunnel.profile.campaign import read_campaign

    campaign = read_campaign(Path(asked.folder))
    if campaign.server:
        from windtunnel.measure.served import use_server

        return use_server(Path(asked.folder), campaign, asked.anyway)
    return use_cell(Path(asked.folder), asked.anyway)


@asks(MeasureListOptions)
def list_cells(asked: MeasureListOptions) -> tuple[MeasuredCell, ...]:
    """Measured cells below `folder`: of what, how many rows, whether checked. FileError where there is no such folder."""
    from windtunnel.measure.cells import cells_below

    return cells_below(Path(asked.folder))


@asks(MeasureFromOptions)
def from_trace(asked: MeasureFromOptions) -> Dataset:
    """The kernels of a trace of PyTorch's profiler as a dataset, written to `out`. FileError for a file that is none."""
    from windtunnel.measure.traced import dataset_of_trace

    return dataset_of_trace(Path(asked.trace), Path(asked.out), asked.gpu)
