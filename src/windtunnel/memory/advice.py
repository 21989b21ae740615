"""What is missing on the fullest GPU, which changes of the plan would give it back, and what each costs in time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.memory.result import StageMemory
from windtunnel.memory.stage import memory_of
from windtunnel.spec.job import Job, check
from windtunnel.spec.plan import Plan
from windtunnel.spec.runtime import Runtime
from windtunnel.workload import build

STRONGER = {"none": "zero1", "zero1": "zero2", "zero2": "zero3"}
NARROWEST = ("plan.ep", "plan.offload.activations")
"""Changes of several sizes, of which the first that is enough is said."""

RECOMPUTE = {"none": "selective", "selective": "full", "ops": "full"}


@dataclass(frozen=True)
class Advice:
    """One change that makes the job fit: the field, its new value, bytes left on the fullest GPU, and seconds of a step with it.

    `seconds` is None where nobody was asked, or could not say.
    """

    path: str
    value: str | int
    spare: float
    seconds: float | None = None


def spare(memory: Sequence[StageMemory]) -> float:
    """Bytes left on the fullest stage; negative is what is missing. Raises SpecError for no stages."""
    if not memory:
        raise SpecError("memory", "no stage", "the memory of at least one stage")
    return -max(stage.missing for stage in memory)


def shortfall(
    job: Job, memory: Sequence[StageMemory], step_time: Callable[[Job], float] | None = None
) -> tuple[float, tuple[Advice, ...]]:
    """Bytes missing on the fullest stage (0 if it fits) and the single changes that would make it fit.

    Each candidate is a whole new prediction of memory, so the advice is as good as the model. Changes that contradict the plan are
    left out. `step_time` prices a job in seconds a step: then the change with the shortest step comes first, else gentle changes
    before harsh ones.
    """
    if all(stage.fits for stage in memory):
        return 0.0, ()
    missing = max(0.0, -spare(memory))
    found: list[Advice] = []
    for path, value, changed in _changes(job):
        if path in NARROWEST and any(advice.path == path for advice in found):
            continue
        try:
            after = memory_of(changed, build(check(changed)))
        except WindtunnelError:
            continue
        if all(stage.fits for stage in after):
            found.append(Advice(path, value, spare(after), _price(changed, step_time)))
    if step_time is not None:
        found.sort(key=lambda advice: math.inf if advice.seconds is None else advice.seconds)
    return missing, tuple(found)


def _price(job: Job, step_time: Callable[[Job], float] | None) -> float | None:
    try:
        return None if step_time is None else step_time(job)
    except WindtunnelError:
        return None


def with_plan(job: Job, **fields: Any) -> Job:
    """The job with `fields` of its plan changed: built anew, for `model_copy` would keep the cached numbers of the old plan."""
    plan = Plan(**({name: getattr(job.plan, name) for name in Plan.model_fields} | fields))
    return Job(**({name: getattr(job, name) for name in Job.model_fields} | {"plan": plan}))


def _changes(job: Job) -> Iterator[tuple[str, str | int, Job]]:
    plan, changed = job.plan, partial(with_plan, job)
    if plan.tp > 1 and not plan.sequence_parallel:
        yield "plan.sequence_parallel", "true", changed(sequence_parallel=True)
    sharding = str(plan.sharding)
    while sharding in STRONGER and job.shard_ranks > 1:
        sharding = STRONGER[sharding]
        yield "plan.sharding", sharding, changed(sharding=sharding)
    ep = plan.ep
    while job.model.experts is not None and (ep := 2 * ep) <= job.model.experts:
        yield "plan.ep", ep, changed(ep=ep)
    if plan.micro_batch > 1:
        yield "plan.micro_batch", plan.micro_batch // 2, changed(micro_batch=plan.micro_batch // 2)
    recompute = str(plan.recompute)
    while recompute in RECOMPUTE:
        recompute = RECOMPUTE[recompute]
        yield "plan.recompute", recompute, changed(recompute=recompute)
    if not job.runtime.fused_cross_entropy:
        runtime = Runtime(**({name: getattr(job.runtime, name) for name in Runtime.model_fields} | {"fused_cross_entropy": True}))
        fields = {name: getattr(job, name) for name in Job.model_fields}
        yield "runtime.fused_cross_entropy", "true", Job(**(fields | {"runtime": runtime}))
    if plan.offload.optimizer == "none":
        yield "plan.offload.optimizer", "host", changed(offload=plan.offload.model_copy(update={"optimizer": "host"}))
    most = max(max(stage) for stage in job.layers_per_stage)
    for layers in dict.fromkeys(math.ceil(most * quarter / 4) for quarter in (1, 2, 3, 4)):
        if layers > plan.offload.activations:
            yield "plan.offload.activations", layers, changed(offload=plan.offload.model_copy(update={"activations": layers}))
    yield "plan.tp", 2 * plan.tp, changed(tp=2 * plan.tp, dp=None)
    yield "plan.pp", 2 * plan.pp, changed(pp=2 * plan.pp, dp=None, stages=None)
