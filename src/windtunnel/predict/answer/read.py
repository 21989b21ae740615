"""From the run of a step to the prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping

from windtunnel.base.dataclasses import dataclass
from windtunnel.memory import StageMemory
from windtunnel.predict.answer.metrics import KernelRows, collective_rows, evidence, overlapped_seconds
from windtunnel.predict.answer.money import DAY, bill
from windtunnel.predict.answer.notes import assumptions, unanswered_notes, warnings
from windtunnel.predict.answer.startup import startup
from windtunnel.predict.answer.timeline import KernelTimeline, WholeStep, path_of, timeline_of, with_curves
from windtunnel.predict.padding import filled_share
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.published import kind_of_run, like, stated_error
from windtunnel.predict.rests import added_error, causes_of, host_seconds, longest
from windtunnel.predict.runs.setting import Setting
from windtunnel.predict.runs.step_run import StepRun
from windtunnel.spec import Job
from windtunnel.workload import Workload, hardware_flops, model_flops, parameter_count


@dataclass(frozen=True)
class StepNumbers:
    """The numbers of a step that changed jobs are compared by, as the prediction has them: the rest of it is not looked for."""

    job: Job
    step_time_s: float
    tokens_per_s: float
    mfu: float
    breakdown: Mapping[str, float]
    fits: bool
    memory: tuple[StageMemory, ...]
    cost_per_step: float | None
    energy_j_per_step: float | None


def read_numbers(workload: Workload, ran: StepRun) -> StepNumbers:
    """The numbers of a step of `workload`, from its run. SpecError as `read_off`."""
    job, step = workload.job, ran.step
    tokens = float(job.plan.global_batch * job.plan.seq) * filled_share(job)
    paid = bill(job, step, tokens, ran.by_stage)
    return StepNumbers(
        job,
        step,
        tokens / step,
        model_flops(job) * filled_share(job) / (ran.peak * step),
        ran.by_stage[ran.pacing],
        all(stage.fits for stage in ran.memory),
        ran.memory,
        paid.cost_per_step,
        paid.energy_j_per_step,
    )


def read_off(workload: Workload, ran: StepRun, setting: Setting) -> Prediction:
    """The prediction for a step of `workload`, from its run."""
    job, step, stage, profile = workload.job, ran.step, ran.pacing, setting.profile
    tokens = float(job.plan.global_batch * job.plan.seq) * filled_share(job)
    gpus, model, hardware = job.cluster.gpus, model_flops(job) * filled_share(job), hardware_flops(workload)
    whole = WholeStep(job, setting, ran.draw)
    timeline = timeline_of(ran, whole)
    memory = with_curves(ran.workload.job, ran.memory, timeline)
    shares, sources, error = evidence(ran.workload, ran.costs[stage], stage, step)
    kind = kind_of_run(job)
    causes = causes_of(kind, host_seconds(job))
    relative_error = math.hypot(stated_error(kind, error), added_error(causes))
    paid = bill(job, step, tokens, ran.by_stage)
    return Prediction(
        job=job,
        network=setting.network,
        step_time_s=step,
        tokens_per_s=tokens / step,
        tokens_per_s_per_gpu=tokens / step / gpus,
        model_tflops_per_gpu=model / step / gpus / 1e12,
        hardware_tflops_per_gpu=hardware / step / gpus / 1e12,
        mfu=model / (ran.peak * step),
        hfu=hardware / (ran.peak * step),
        breakdown=ran.by_stage[stage],
        by_stage=ran.by_stage,
        overlapped=overlapped_seconds(ran.timeline, stage, ran.by_stage[stage]),
        memory=memory,
        fits=all(stage.fits for stage in memory),
        provenance=shares,
        sources=sources,
        profile=profile.name if profile is not None else None,
        relative_error=relative_error,
        longest_s=longest(step, relative_error, causes),
        error_of_parts=error,
        published=like(kind),
        kernels=KernelRows(ran.workload, ran.costs[stage], stage, step),
        collectives=collective_rows(ran),
        critical_path=path_of(ran, whole),
        assumptions=assumptions(job, setting.network),
        warnings=warnings(job, memory) + (unanswered_notes(job, profile, sources) if profile is not None else ()),
        parameters=parameter_count(job.model),
        init_time_s=startup(job).seconds,
        traffic=ran.traffic,
        timeline=timeline,
        kernel_timeline=KernelTimeline(job, setting, ran.draw),
        tokens_per_day=tokens / step * DAY,
        energy_j_per_step=paid.energy_j_per_step,
        cost_per_step=paid.cost_per_step,
        days=paid.days,
        cost=paid.cost,
        energy_j=paid.energy_j,
        cost_parts=paid.cost_parts,
        energy_parts=paid.energy_parts,
        carbon_kg_per_step=paid.carbon_kg_per_step,
        carbon_kg=paid.carbon_kg,
        gpu_power_w=paid.gpu_power_w,
        node_power_w=paid.node_power_w,
        power_w=paid.power_w,
        unequal=ran.unequal,
    )
