"""What a prediction expects of the sections that ranks time themselves: by pipeline stage, with error bars."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.predict import Prediction, predict
from windtunnel.predict.answer.metrics import MODELLED_NETWORK
from windtunnel.predict.category import SPAN_GROUPS, Category, StepGroup, Task, idle_key
from windtunnel.predict.prediction import Span
from windtunnel.records.intervals import seconds_within, union
from windtunnel.records.sections import Section
from windtunnel.runs.causes import with_factor
from windtunnel.runs.expected import expected_run
from windtunnel.runs.observed import CallKind, observe
from windtunnel.spec import Job
from windtunnel.spec.calibration import KernelFactors
from windtunnel.workload.ops import Phase

PASSES = {
    Task.FORWARD.key: Section.FORWARD,
    Task.BACKWARD.key: Section.BACKWARD,
    Task.BACKWARD_INPUT.key: Section.BACKWARD,
    Task.BACKWARD_WEIGHT.key: Section.BACKWARD,
    Task.FORWARD_AND_BACKWARD.key: Section.BACKWARD,
    Task.UPDATE.key: Section.OPTIMIZER,
    Task.CPU_UPDATE.key: Section.OPTIMIZER,
}
"""Task of a span of the timeline -> the section that a rank times it as."""

_SECTION_OF_PHASE = {
    Phase.FORWARD.name.lower(): Section.FORWARD,
    Phase.RECOMPUTE.name.lower(): Section.BACKWARD,
    Phase.DGRAD.name.lower(): Section.BACKWARD,
    Phase.WGRAD.name.lower(): Section.BACKWARD,
    Phase.OPTIMIZER.name.lower(): Section.OPTIMIZER,
}
_MOVES = (StepGroup.COMMUNICATION, StepGroup.OFFLOAD)
_COMPUTES = (StepGroup.COMPUTE, StepGroup.RECOMPUTE, StepGroup.OPTIMIZER)
_ROUNDING = 1e-9
"""Share of the step below which a difference of times is none."""


@dataclass(frozen=True)
class ExpectedSections:
    """P pipeline stages; seconds of a step.

    `own[section]` [P]: without what calls hold up, or with it where a device runs behind its host and a section's time on the
    device holds them (`blocking` of `expected_sections`). `data`, `between`, `starved` [P]: waiting for the next batch; neither
    in a section nor in a call; in a section without a core. `calls`: seconds of one call and how often a rank makes it in a
    step. Errors are relative. `predicted`: False where a run that was watched says all this; a prediction knows of `between` what
    the host needs to launch, and nothing of what else a training loop does there.
    """

    step: float
    own: Mapping[Section, Floats]
    data: Floats
    between: Floats
    starved: Floats
    calls: Mapping[CallKind, tuple[float, float]]
    errors: Mapping[Section, float]
    step_error: float
    call_error: float
    predicted: bool = True


def expected_sections(job: Job, blocking: bool, profile: str | Path | None = None, cores: float = 1.0) -> ExpectedSections:
    """The sections of a predicted step. `blocking`: calls hold up the code that makes them, as on a CPU. `profile`: a dataset of
    measurements on the job's GPU, as `predict` takes it. `cores`: of a processor, for each rank; below 1 ranks share them, and a
    section's time is its own and waiting for a core.

    A section's error is that of its kernels, weighted by their seconds: errors of one class of kernels are not independent. Raises
    SpecError for a step of more kernels than `runs.expected.MOST_EVENTS`.
    """
    if cores < 1.0:
        return _on_shared_cores(
            expected_sections(job, blocking, profile), expected_sections(on_cores(job, cores), blocking, profile)
        )
    answer = predict(job, profile=profile)
    stages = len(answer.by_stage)
    own = {section: np.zeros(stages) for section in (Section.FORWARD, Section.BACKWARD, Section.OPTIMIZER)}
    launching = np.zeros(stages)
    calls, busy, both = (_by_stage(answer, one) for one in (_MOVES, _COMPUTES, _MOVES + _COMPUTES)) if blocking else ({}, {}, {})
    for span in answer.timeline:
        section = PASSES.get(span.category)
        if section is not None:
            own[section][span.stage] += span.end - span.start
            own[section][span.stage] -= _exposed_seconds(span, calls, busy)
            launching[span.stage] += _empty(span, both)
    listed = observe(expected_run(job), job).calls
    data = np.array([parts.get(idle_key(Category.DATA), 0.0) for parts in answer.by_stage])
    host = np.array([parts.get("host", 0.0) for parts in answer.by_stage]) - launching
    host[host < _ROUNDING * answer.step_time_s] = 0.0
    achieved = job.cluster.achieved
    error = MODELLED_NETWORK if achieved is None or achieved.relative_error is None else achieved.relative_error
    return ExpectedSections(
        answer.step_time_s, own, data, host, np.zeros(stages), listed, _errors(answer), answer.relative_error, error
    )


def on_cores(job: Job, cores: float) -> Job:
    """The job whose ranks have so many cores each: below 1, every kernel takes 1 / cores times its own time. So it is where all
    ranks of a machine compute at once; who waits in a call leaves its share to the others."""
    for name in KernelFactors.model_fields if cores < 1.0 else ():
        job = with_factor(job, f"kernels.{name}", 1.0 / cores)
    return job


def _on_shared_cores(alone: ExpectedSections, shared: ExpectedSections) -> ExpectedSections:
    """From predictions of the same job with a core for each rank and with a share of one: a rank's own time does not change; what
    its sections take longer is waiting for a core."""
    longer = sum((shared.own[section] - alone.own[section] for section in alone.own), np.zeros_like(alone.starved))
    return replace(alone, step=shared.step, starved=np.maximum(longer, 0.0), step_error=shared.step_error)


_Intervals = tuple[Floats, Floats]


def _by_stage(answer: Prediction, groups: tuple[StepGroup, ...]) -> dict[int, _Intervals]:
    """When each stage has a kernel or call of these groups under way."""
    begin: dict[int, list[float]] = defaultdict(list)
    end: dict[int, list[float]] = defaultdict(list)
    for span in answer.kernel_timeline:
        if SPAN_GROUPS.get(span.category) in groups:
            begin[span.stage].append(span.start)
            end[span.stage].append(span.end)
    return {stage: union(np.array(begin[stage]), np.array(end[stage])) for stage in begin}


def _exposed_seconds(span: Span, calls: Mapping[int, _Intervals], busy: Mapping[int, _Intervals]) -> float:
    """Seconds of a span in which its stage has calls under way and no kernel."""
    if span.stage not in calls:
        return 0.0
    here, there = np.array([span.start]), np.array([span.end])
    moving = calls[span.stage]
    inside = (np.clip(moving[0], span.start, span.end), np.clip(moving[1], span.start, span.end))
    hidden = seconds_within(busy[span.stage], *inside).sum() if span.stage in busy else 0.0
    return float(seconds_within(moving, here, there)[0] - hidden)


def _empty(span: Span, under_way: Mapping[int, _Intervals]) -> float:
    """Seconds of a span in which its stage has nothing under way: the host launches. They are in the span's section."""
    if span.stage not in under_way:
        return 0.0
    return span.end - span.start - float(seconds_within(under_way[span.stage], np.array([span.start]), np.array([span.end]))[0])


def _errors(answer: Prediction) -> dict[Section, float]:
    """Relative error of each section's kernels on the slowest stage."""
    total: dict[Section, float] = defaultdict(float)
    weighed: dict[Section, float] = defaultdict(float)
    for row in answer.kernels:
        section = _SECTION_OF_PHASE.get(row.phase)
        if section is not None:
            total[section] += row.seconds_total
            weighed[section] += row.seconds_total * row.relative_error
    return {section: weighed[section] / total[section] for section in total if total[section] > 0}
