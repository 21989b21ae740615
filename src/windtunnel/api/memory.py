"""The memory of a job: what each stage holds, whether it fits, and what would make it fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.memory import OverTime, Pooled, StageMemory, dumps, memory_of, over_time, replay, snapshot, why
from windtunnel.memory.loading import LoadingMemory, loading_of
from windtunnel.predict import predict
from windtunnel.predict.answer.timeline import pass_times
from windtunnel.search.levers.fixes import Fix, fixes
from windtunnel.search.levers.pricing import flags_of
from windtunnel.spec import Job
from windtunnel.workload import Workload, build


@dataclass(frozen=True)
class MemoryReport:
    """What `windtunnel memory` finds."""

    workload: Workload = field(repr=False)
    """The job's graph, whose memory this is."""
    stages: tuple[StageMemory, ...]
    """Bytes of the fullest GPU of each pipeline stage, by part."""
    fixes: tuple[Fix, ...]
    """Changes that make the job fit, the cheapest first; none for one that fits."""
    replayed: tuple[Pooled, ...] = field(default=(), repr=False)
    """By stage a replay of PyTorch's allocator, where it was asked for."""
    moments: tuple[OverTime, ...] = field(default=(), repr=False)
    """By stage its memory over a step, where it was asked for."""

    @property
    def job(self) -> Job:
        """The job."""
        return self.workload.job

    @property
    def fits(self) -> bool:
        """Whether every stage fits."""
        return all(stage.fits for stage in self.stages)

    @property
    def loading(self) -> LoadingMemory | None:
        """Memory while the model is loaded, where it is known and more than a step's."""
        return loading_of(self.job)

    @property
    def missing(self) -> float:
        """Missing bytes of the fullest stage; 0 where it fits."""
        return max(0.0, *(stage.missing for stage in self.stages))

    @property
    def why(self) -> tuple[str, ...]:
        """Sentences about what fills the fullest stage, the largest part first; none for a job that fits."""
        return why(self.workload, self.stages)

    def snapshot(self, path: str | Path, stage: int | None = None) -> None:
        """Writes a stage's peak (by default of the fullest stage) as a snapshot for pytorch.org/memory_viz."""
        chosen = max(self.stages, key=lambda one: one.allocated) if stage is None else self.stages[stage]
        Path(path).write_bytes(dumps(snapshot(self.workload, chosen.stage)))

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys: bytes and seconds."""
        answer: dict[str, Any] = {
            "job": self.job,
            "memory": [{k: v for k, v in vars(stage).items() if k != "curve"} for stage in self.stages],
            "fits": self.fits,
            "shortfall_bytes": self.missing,
            "step_time_s": predict(self.job).step_time_s if self.fixes else None,
            "advice": [{"set": f.change.sets[0]} | _fix_data(self.job, f) for f in self.fixes if f.single],
            "why": self.why,
            "together": [{"set": list(f.change.sets)} | _fix_data(self.job, f) for f in self.fixes if not f.single],
        }
        if (loading := self.loading) is not None:
            answer["loading"] = {**asdict(loading), "fits": loading.fits, "says": loading.says}
        if self.replayed:
            answer["replay"] = [
                vars(pooled) | {"stage": one.stage, "fragmentation": pooled.fragmentation}
                for one, pooled in zip(self.stages, self.replayed, strict=True)
            ]
        if self.moments:
            answer["over_time"] = [one.as_dict() for one in self.moments]
        return answer


def report_memory(job: Job, *, replayed: bool = False, moments: bool = False, stage: int | None = None) -> MemoryReport:
    """Counts the memory of a job. `replayed`: also by PyTorch's allocator; `moments`: also over a step, of all stages or of
    `stage`. SpecError for a stage that the job does not have."""
    check_stage(job, stage)
    workload = build(job)
    stages = memory_of(job, workload)
    fitting = () if all(one.fits for one in stages) else fixes(job)
    pools = replay(workload, stages) if replayed else ()
    return MemoryReport(workload, stages, fitting, pools, _over_time(job, workload, stages, stage) if moments else ())


def check_stage(job: Job, stage: int | None) -> None:
    """SpecError for a stage that the job does not have."""
    if stage is not None and not 0 <= stage < job.plan.pp:
        raise SpecError("--stage", stage, f"a pipeline stage, 0 to {job.plan.pp - 1}")


def _over_time(job: Job, workload: Workload, stages: Sequence[StageMemory], stage: int | None) -> tuple[OverTime, ...]:
    """Replay of the step of each stage, or of one, at the times of its passes."""
    timeline = predict(job).timeline
    chosen = stages if stage is None else [stages[stage]]
    return tuple(
        over_time(
            workload,
            m.stage,
            pass_times(timeline, workload.schedule[m.stage], m.stage),
            m.context,
            m.usable - m.context,
            until_full=True,
        )
        for m in chosen
    )


def _fix_data(job: Job, fix: Fix) -> dict[str, Any]:
    flags = list(flags_of(fix.change.apply(job), fix.change.fields))
    return {"spare_bytes": fix.spare, "step_time_s": fix.step_time_s, "price": fix.price, "flags": flags}
