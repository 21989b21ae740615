"""What is missing on the fullest GPU, and which changes of the plan would give it back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.memory.result import StageMemory
from windtunnel.memory.stage import memory_of
from windtunnel.spec.job import Job, check
from windtunnel.spec.plan import Plan
from windtunnel.workload import build

STRONGER = {"none": "zero1", "zero1": "zero2", "zero2": "zero3"}
RECOMPUTE = {"none": "selective", "selective": "full", "ops": "full"}


@dataclass(frozen=True)
class Advice:
    """One change that makes the job fit: the field, its new value, and bytes left on the fullest GPU."""

    path: str
    value: str | int
    spare: float


def spare(memory: Sequence[StageMemory]) -> float:
    """Bytes left on the fullest stage; negative is what is missing. Raises SpecError for no stages."""
    if not memory:
        raise SpecError("memory", "no stage", "the memory of at least one stage")
    return -max(stage.lacking for stage in memory)


def shortfall(job: Job, memory: Sequence[StageMemory]) -> tuple[float, tuple[Advice, ...]]:
    """Bytes missing on the fullest stage (0 if it fits) and the single changes that would make it fit, least costly first.

    Each candidate is a whole new prediction of memory, so the advice is as good as the model. Changes that contradict the plan are
    left out.
    """
    if all(stage.fits for stage in memory):
        return 0.0, ()
    missing = max(0.0, -spare(memory))
    found = []
    for path, value, changed in _changes(job):
        try:
            after = memory_of(changed, build(check(changed)))
        except WindtunnelError:
            continue
        if all(stage.fits for stage in after):
            found.append(Advice(path, value, spare(after)))
    return missing, tuple(found)


def _changes(job: Job) -> Iterator[tuple[str, str | int, Job]]:
    plan = job.plan

    def with_plan(**fields: Any) -> Job:
        # built anew: model_copy would keep the cached numbers of the old plan
        changed = Plan(**({name: getattr(plan, name) for name in Plan.model_fields} | fields))
        return Job(**({name: getattr(job, name) for name in Job.model_fields} | {"plan": changed}))

    if plan.tp > 1 and not plan.sequence_parallel:
        yield "plan.sequence_parallel", "true", with_plan(sequence_parallel=True)
    sharding = str(plan.sharding)
    while sharding in STRONGER and job.shard_ranks > 1:
        sharding = STRONGER[sharding]
        yield "plan.sharding", sharding, with_plan(sharding=sharding)
    if plan.micro_batch > 1:
        yield "plan.micro_batch", plan.micro_batch // 2, with_plan(micro_batch=plan.micro_batch // 2)
    recompute = str(plan.recompute)
    while recompute in RECOMPUTE:
        recompute = RECOMPUTE[recompute]
        yield "plan.recompute", recompute, with_plan(recompute=recompute)
    yield "plan.tp", 2 * plan.tp, with_plan(tp=2 * plan.tp, dp=None)
    yield "plan.pp", 2 * plan.pp, with_plan(pp=2 * plan.pp, dp=None, stages=None)
