"""The main path: job -> graph -> costs -> program -> timeline -> prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.errors import UnknownName
from windtunnel.base.fidelity import CLOSED, FIDELITIES, check_threads
from windtunnel.compute import Factors, Profile
from windtunnel.memory import memory_of
from windtunnel.predict.answer.notes import warnings
from windtunnel.predict.answer.read import StepNumbers, read_numbers, read_off
from windtunnel.predict.padding import mean_step
from windtunnel.predict.prediction import FaultCost, Prediction
from windtunnel.predict.runs.run import run_step
from windtunnel.predict.runs.setting import Setting
from windtunnel.predict.runs.share import share
from windtunnel.predict.runs.step_run import StepRun
from windtunnel.spec import Job, check
from windtunnel.workload import Workload, build

if TYPE_CHECKING:
    from windtunnel.records import Dataset


def predict(
    job: Job,
    network: str = "closed",
    factors: Factors | None = None,
    seed: int = 1,
    skip: bool = False,
    progress: Callable[[float], object] | None = None,
    profile: Profile | Dataset | str | Path | None = None,
    loads: bool = False,
    beside: Sequence[Job] = (),
    background: Sequence[str] = (),
    threads: int = 1,
) -> Prediction:
    """How long one step of `job` takes, whether it fits, and where the time goes.

    `network` is one of `base.fidelity.FIDELITIES`. Deterministic: depends on `job`, the catalogue and, where flows choose their
    ways by hash, `seed`. `skip`: the packet engine replays repeated patterns of transfers; `traffic.events` states the share, and a
    bound of the error. `progress`: the packet engine calls it with the share of transfers that have ended. `factors` replace the
    stored training factors, for their fit. `profile`: a dataset of measurements on the job's GPU, or its file; curves cover all
    other kernels. `loads`: the engines count links over time (`traffic.over_time`). `beside`: jobs that run on the same fabric at
    the same time, each repeating its step; `background`: flows that meet it, as `runs/background.py` reads them. `sharing` states
    what both cost, all else is of `job` alone. `threads` of the packet engine change no result. Raises PlanError for a job that
    contradicts itself, SpecError for an unknown `network`, a step of too many packets or passes, jobs that cannot share a fabric,
    a profile of another GPU, and several `threads` under `background` flows.
    """
    if network not in FIDELITIES:
        raise UnknownName("network", network, list(FIDELITIES))
    check_threads(threads)
    if profile is not None:
        profile = (profile if isinstance(profile, Profile) else Profile.of(profile)).on(job.cluster.gpu)
    setting = Setting(network, seed, skip, factors, profile, progress, loads, threads)
    check(job)
    if job.cluster.fabric.faults:
        from windtunnel.network.simulate.fabric_faults import check_faults

        check_faults(job.cluster.fabric, network)
    if (mean := mean_step(job)) is not None:
        step = predict(mean, network, factors, seed, skip, progress, profile, loads, beside, background, threads)
        return _of_whole(job, step)
    job, sharing, saving = share(job, [check(one) for one in beside], background, setting)
    workload = build(job)
    ran = run_step(workload, setting.price(workload), setting)
    prediction = replace(read_off(workload, ran, setting), sharing=sharing, saving=saving)
    return replace(prediction, faults=_faults(job, ran, setting)) if job.cluster.fabric.faults else prediction


def predict_built(workload: Workload) -> StepNumbers:
    """The numbers of the closed-form prediction of a workload whose job has been checked. Raises as `predict`."""
    fabric = workload.job.cluster.fabric
    if (mean := mean_step(workload.job)) is not None:
        numbers, memory = predict_built(build(check(mean))), memory_of(workload.job, workload)
        return replace(numbers, job=workload.job, memory=memory, fits=all(stage.fits for stage in memory))
    if fabric.faults:
        from windtunnel.network.simulate.fabric_faults import check_faults

        check_faults(fabric, CLOSED)
    setting = Setting(CLOSED)
    return read_numbers(workload, run_step(workload, setting.price(workload), setting))


def _of_whole(job: Job, step: Prediction) -> Prediction:
    """The prediction of a mean `step` of padded samples, with the memory of the longest ones."""
    memory = memory_of(job, build(job))
    said = warnings(job, memory) + tuple(text for text in step.warnings if text not in warnings(step.job, step.memory))
    held = f"Memory is that of a micro batch of samples of {job.plan.seq:,} tokens, the longest."
    fits, notes = all(stage.fits for stage in memory), (*step.assumptions, held)
    return replace(step, job=job, memory=memory, fits=fits, warnings=said, assumptions=notes)


def _faults(job: Job, ran: StepRun, setting: Setting) -> FaultCost:
    """What the fabric's faults cost: the same step on a whole fabric beside it."""
    from windtunnel.network.simulate.fabric_faults import without_faults

    workload = build(job.model_copy(update={"cluster": without_faults(job.cluster)}))
    whole = run_step(workload, setting.price(workload), setting).step
    events = ran.traffic.events if ran.traffic is not None else {}
    counts = {name: events[name] for name in ("losses", "retransmits", "timeouts") if name in events}
    return FaultCost(job.cluster.fabric.faults, whole, ran.step - whole, counts)
