"""The main path: job -> graph -> costs -> program -> timeline -> prediction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.errors import UnknownName
from windtunnel.compute import Factors, Profile
from windtunnel.engine import run
from windtunnel.memory import memory_of
from windtunnel.predict.costs import price
from windtunnel.predict.live import NETWORKS
from windtunnel.predict.loading import with_data
from windtunnel.predict.lower import lower
from windtunnel.predict.metrics import breakdown, collective_rows, evidence, kernel_rows, overlapped
from windtunnel.predict.money import DAY, bill
from windtunnel.predict.notes import assumptions, unanswered, warnings
from windtunnel.predict.path import critical_path
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.spans import blocks, kernels, with_curves
from windtunnel.predict.startup import startup
from windtunnel.predict.unequal.run import Setting, run_apart
from windtunnel.spec import Job, check
from windtunnel.workload import build, hardware_flops, model_flops, parameter_count

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
) -> Prediction:
    """How long one step of `job` takes, whether it fits, and where the time goes.

    `network` is one of NETWORKS. Deterministic: depends on `job`, the catalogue and, where flows choose their ways by hash, `seed`.
    `skip`: over packets, repeated patterns of transfers are answered from memory; `traffic.events` says what share, and how wrong
    it may be. `progress` is told the share of the transfers that is over, of packets. `factors` stand in for the stored training
    factors, for their fit. `profile`, a dataset or its file, answers for what was measured on the job's GPU; curves answer for the
    rest. Raises PlanError for a job that contradicts itself, SpecError for an unknown `network`, a step of too many packets and a
    profile of another GPU.
    """
    if network not in NETWORKS:
        raise UnknownName("network", network, NETWORKS)
    workload = build(check(job))
    if profile is not None:
        profile = (profile if isinstance(profile, Profile) else Profile.of(profile)).on(job.cluster.gpu)
    costs = with_data(workload, price(workload, factors, profile))
    links = ran = apart = None
    if job.unequal is not None:
        setting = Setting(network, seed, skip, lambda other: with_data(other, price(other, factors, profile)), progress)
        apart = run_apart(job, job.unequal, workload, costs, setting)
        lowered, timeline, links = apart.shown.lowered, apart.shown.timeline, apart.shown.links
    elif network == "closed":
        lowered = lower(workload, costs)
    else:
        from windtunnel.predict.fidelity import over_engine  # the engines' rooms take time to open

        costs, lowered, links = over_engine(network, workload, costs, seed, skip)
        ran = links.network(progress)
    model, hardware = model_flops(job), hardware_flops(workload)
    if apart is None:
        timeline = run(lowered.program, network=ran)
        step, peak = timeline.makespan, job.cluster.gpus * job.cluster.gpu.peak[job.runtime.precision]
        carried = links.finish(ran, step) if links is not None and ran is not None else None
        by_stage = tuple(breakdown(timeline, costs, stage) for stage in range(job.plan.pp))
    else:
        step, peak, by_stage, carried = apart.step, apart.peak, apart.by_stage, apart.shown.traffic
        workload = apart.shown.workload
    memory = with_curves(workload, lowered, timeline, memory_of(job, workload) if apart is None else apart.memory)
    # the stage that waits least for others is the one to look at: it sets the pace
    pacing = min(range(job.plan.pp), key=lambda s: (by_stage[s]["bubble"] + by_stage[s].get("other_stages", 0.0), s))
    tokens = float(job.plan.global_batch * job.plan.seq)
    gpus = job.cluster.gpus
    if apart is not None:
        costs = apart.shown.costs[pacing]
    paid = bill(job, step, tokens)
    shares, sources, error = evidence(workload, costs, pacing, step)
    return Prediction(
        job=job,
        network=network,
        step_time_s=step,
        tokens_per_s=tokens / step,
        tokens_per_s_per_gpu=tokens / step / gpus,
        model_tflops_per_gpu=model / step / gpus / 1e12,
        hardware_tflops_per_gpu=hardware / step / gpus / 1e12,
        mfu=model / (peak * step),
        hfu=hardware / (peak * step),
        breakdown=by_stage[pacing],
        by_stage=by_stage,
        overlapped=overlapped(timeline, pacing, by_stage[pacing]),
        memory=memory,
        fits=all(stage.fits for stage in memory),
        provenance=shares,
        sources=sources,
        profile=profile.name if profile is not None else None,
        relative_error=error,
        kernels=kernel_rows(workload, costs, pacing, step),
        collectives=collective_rows(workload, costs, lowered, pacing),
        critical_path=critical_path(lowered, timeline),
        assumptions=assumptions(job, network),
        warnings=warnings(job, memory) + (unanswered(job, profile, sources) if isinstance(profile, Profile) else ()),
        parameters=parameter_count(job.model),
        init_time_s=startup(job).seconds,
        traffic=carried,
        timeline=blocks(lowered, timeline),
        kernel_timeline=kernels(workload, lowered, links),
        tokens_per_day=tokens / step * DAY,
        energy_j_per_step=paid.energy_j_per_step,
        cost_per_step=paid.cost_per_step,
        days=paid.days,
        cost=paid.cost,
        energy_j=paid.energy_j,
        unequal=apart.told if apart is not None else None,
    )
