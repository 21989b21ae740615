"""A watched run beside the prediction of its job: the sections that leave what the prediction allows, and what they cost.

Sections hold no kernels, so a watched run cannot become a `records.run.Run` and go through `runs.comparison`: the factors of kernel
classes, which that comparison rests on, are read off kernels' names. What both can tell (factors of calls by axis, slow ranks)
has the same keys and words here, from the same `runs.causes`. Forward, backward and optimizer have keys of their own: a section
holds kernels of several classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import asdict, dataclass, replace
from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.predict import predict
from windtunnel.records.sections import Section, Sections
from windtunnel.runs.causes import NOISE, StepCause, causes_of, with_factor
from windtunnel.runs.factors import Factor, Factors, nearest_call
from windtunnel.runs.fleet.expected import ExpectedSections, expected_sections, on_cores
from windtunnel.runs.fleet.observed import FEWEST, CallTimes, ObservedSections, observed_sections
from windtunnel.runs.observed import CallKind
from windtunnel.spec import Job
from windtunnel.spec.calibration import KernelFactors
from windtunnel.spec.unequal import Unequal

NAN = float("nan")
WORTH = 0.01
"""Share of the step that calls of an axis, or a part that the prediction does not have (data, gaps, time between sections), must
cost to be told: a call of a few bytes is a matter of the host, of which a prediction of networks knows little."""
_WORDS = {
    Section.FORWARD: (
        "the forward pass",
        "time its modules (`windtunnel profile run JOB`), and look for what the model does beside",
    ),
    Section.BACKWARD: (
        "the backward pass",
        "check runtime.recompute and hooks on gradients; measure: `windtunnel profile run JOB`",
    ),
    Section.OPTIMIZER: ("the optimizer", "set runtime.fused_optimizer=false if it runs tensor by tensor"),
}
_BETWEEN_TEST = (
    "name an earlier run of the job with --usual RUN, which says what is usual; or look at data loading and at what else the loop "
    "does in Python"
)


@dataclass(frozen=True)
class SectionPart:
    """One section of a step on the ranks of one pipeline stage; seconds. `low`, `high`: the 10th and 90th percentile over steps and
    ranks. `error`: relative, of the expectation; `noise`: standard error of the median over steps, relative to it. `leaves`: the
    median is further from the expectation than both allow. Slow ranks do not count.

    `whole=False`: the expectation is that of a part of the row, or of none of it, so that the row leaves nothing; `rest` is what it
    has beyond that part, where that is worth telling.
    """

    name: str
    stage: int
    expected: float
    error: float
    median: float
    low: float
    high: float
    noise: float
    leaves: bool
    whole: bool = True
    rest: float = 0.0

    @property
    def excess(self) -> float:
        """Observed over expected, less 1; NaN where nothing is expected."""
        return self.median / self.expected - 1.0 if self.expected > 0 else float("nan")


@dataclass(frozen=True)
class FleetCallPart:
    """Calls of one kind: seconds of one after its last rank came (median, 10th and 90th percentile), and how often in a step."""

    comm: str
    axis: str
    bytes: float
    expected_each: float
    error: float
    median: float
    low: float
    high: float
    measured_count: float
    expected_count: float
    leaves: bool


@dataclass(frozen=True)
class FleetComparison:
    """Everything of a comparison; seconds."""

    job: Job
    steps: int
    step: SectionPart
    explained_step: float
    """The predicted step with all causes that it can express."""
    sections: tuple[SectionPart, ...]
    calls: tuple[FleetCallPart, ...]
    causes: tuple[StepCause, ...]
    apart: tuple[StepCause, ...] = ()
    """Time without an expectation: reported, and ranked with no cause."""
    predicted: bool = True
    """False where an earlier run stands in for the prediction."""
    cores: float = 1.0
    """Processor cores of each rank; below 1 where ranks share them."""

    def as_dict(self) -> dict[str, Any]:
        """JSON: stable keys, SI units; those of `compare RUN JOB` where they mean the same."""
        return {
            "schema": "windtunnel.fleet-comparison/1",
            "job": self.job.name,
            "measured_step_s": self.step.median,
            "measured_step_noise": _nan_to_none(self.step.noise),
            "steps": self.steps,
            "expected_step_s": self.step.expected,
            "expected_step_error": self.step.error,
            "cores_of_a_rank": self.cores,
            "explained_step_s": self.explained_step,
            "sections": [{key: _nan_to_none(value) for key, value in asdict(part).items()} for part in self.sections],
            "calls": [{key: _nan_to_none(value) for key, value in asdict(part).items()} for part in self.calls],
            "causes": [_cause(one) for one in self.causes],
            "apart": [_cause(one) for one in self.apart],
        }


def compare_sections(
    sections: Sections,
    job: Job,
    *,
    blocking: bool,
    last: int | None = None,
    profile: str | Path | None = None,
    expected: ExpectedSections | None = None,
    priced: bool = True,
    cores: float = 1.0,
) -> FleetComparison:
    """The sections of a watched run against the prediction of its job.

    Ranks must be on one clock. `blocking`: the calls hold up the code that makes them (ranks on CPUs). `last`: only the last
    settled steps. `profile`: measurements on the job's GPU, which answer first. `expected`: where it is known already, or what
    is usual (`usual`). `priced=False`: without causes, which take a prediction each. `cores`: of a processor, for each rank
    (`expected_sections`); what a rank works longer on a share of one costs so much more of the step.

    SpecError for a run of fewer than `FEWEST` settled steps, or of more ranks than the job has GPUs.
    """
    world = int(sections.rank.max()) + 1 if len(sections) else 0
    if world > job.cluster.gpus:
        raise SpecError("JOB", f"{job.name}, of {job.cluster.gpus} GPUs", f"the job of this run, which has {world} ranks or more")
    seen = observed_sections(sections, job, blocking, last)
    if len(seen.steps) < FEWEST:
        hint = "The first steps, and one that a rank has not ended, count for none."
        raise SpecError("RUN", f"{len(seen.steps)} settled steps", f"{FEWEST} or more", hint)
    known = expected_sections(job, blocking, profile, cores) if expected is None else expected
    parts = tuple(_parts(seen, known))
    calls = tuple(_calls(seen, known, _twins(job)))
    plain = known if (profile is None and known.predicted) or not priced else expected_sections(job, blocking, cores=cores)
    causes = _causes(on_cores(job, cores), seen, replace(plain, predicted=known.predicted), parts, calls, cores) if priced else ()
    step = _part("step", -1, known.step, known.step_error, seen.step)
    explained, apart = _explained_step(job, causes, known.step), tuple(_unexplained_gaps(job, parts, step))
    return FleetComparison(job, len(seen.steps), step, explained, parts, calls, causes, apart, known.predicted, min(cores, 1.0))


def _good(seen: ObservedSections) -> Any:
    """Ranks that are not slow against their equals: they say how the job runs."""
    slow = [rank for odd in seen.slow for rank in odd.ranks]
    return ~np.isin(seen.ranks, slow)


def _parts(seen: ObservedSections, known: ExpectedSections) -> Iterator[SectionPart]:
    """Rows of each stage: sections, waiting for data, gaps of the host, and what lies between sections."""
    good = _good(seen)
    for stage in np.unique(seen.stage).tolist():
        mine = good & (seen.stage == stage)
        if not mine.any():
            mine = seen.stage == stage
        for section, values in seen.own.items():
            error = known.errors.get(section, known.step_error)
            yield _part(section.name.lower(), stage, float(known.own[section][stage]), error, values[mine])
        # Who works longer on a shared core waits for it longer: that is no cause of its own.
        worked = sum(float(np.nanmedian(values[mine])) for values in seen.own.values() if np.isfinite(values[mine]).any())
        due = sum(float(values[stage]) for values in known.own.values())
        starved = float(known.starved[stage]) * (worked / due if due > 0 else 1.0)
        others = (
            ("data", known.data[stage], seen.data, True),
            ("host gaps", 0.0, seen.gaps, True),
            ("between", known.between[stage], seen.between, not known.predicted),
            ("no core", starved, seen.starved, True),
        )
        for name, expected, values, whole in others:
            if np.isfinite(values[mine]).any():
                yield _part(name, stage, float(expected), known.step_error, values[mine], WORTH * known.step, whole)


def _part(
    name: str, stage: int, expected: float, error: float, values: Floats, least: float = 0.0, whole: bool = True
) -> SectionPart:
    """A row over ranks × steps. `least`: seconds of difference that are too few to leave the expectation. `whole`: see
    `SectionPart`."""
    flat = values[np.isfinite(values)]
    if not len(flat):
        return SectionPart(name, stage, expected, error, NAN, NAN, NAN, NAN, False, whole)
    middle, low, high = (float(value) for value in np.quantile(flat, (0.5, 0.1, 0.9)))
    by_step = np.array([np.median(column[np.isfinite(column)]) for column in values.T if np.isfinite(column).any()])
    spread = 1.4826 * float(np.median(np.abs(by_step - np.median(by_step))))
    noise = 1.25 * spread / np.sqrt(len(by_step)) / middle if middle > 0 else 0.0
    allowed = max(error, NOISE) * expected + 2.0 * noise * middle + least
    off = abs(middle - expected) > allowed
    rest = middle - expected if off and not whole and middle > expected else 0.0
    return SectionPart(name, stage, expected, error, middle, low, high, float(noise), off and whole, whole, rest)


def _twins(job: Job) -> dict[str, str]:
    """Axes of the same ranks: where all ranks are data parallel, a framework may use the one group or the other."""
    return {"dp": "world", "world": "dp"} if job.dp * job.plan.cp == job.cluster.gpus else {}


def _calls(seen: ObservedSections, known: ExpectedSections, twins: dict[str, str]) -> Iterator[FleetCallPart]:
    """Kinds of calls that either side has, the longest first. `twins`: an axis and another of the same ranks."""
    left: dict[CallKind, CallTimes] = dict(seen.calls)
    rows = []
    for key, (each, count) in known.calls.items():
        near = nearest_call(key, left)
        if near is None and key.axis in twins:
            near = nearest_call(replace(key, axis=twins[key.axis]), left)
        rows.append(_call(key, None if near is None else left.pop(near), each, count, known.call_error))
    rows += [_call(key, times, float("nan"), 0.0, known.call_error) for key, times in left.items()]
    weight = {id(row): np.nanmax([row.median * row.measured_count, row.expected_each * row.expected_count, 0.0]) for row in rows}
    return iter(sorted(rows, key=lambda row: -weight[id(row)]))


def _call(key: CallKind, times: CallTimes | None, each: float, count: float, error: float) -> FleetCallPart:
    name = key.comm.name.lower()
    if times is None:
        return FleetCallPart(name, key.axis, key.bytes, each, error, NAN, NAN, NAN, 0.0, count, False)
    middle, low, high = (float(value) for value in np.quantile(times.seconds, (0.5, 0.1, 0.9)))
    spread = 1.4826 * float(np.median(np.abs(times.seconds - middle)))
    allowed = max(error, NOISE) * each + 2.5 * spread / np.sqrt(len(times.seconds))
    leaves = bool(abs(middle - each) > allowed) if each == each else False
    return FleetCallPart(name, key.axis, key.bytes, each, error, middle, low, high, times.count, count, leaves)


def _causes(
    job: Job,
    seen: ObservedSections,
    priced: ExpectedSections,
    parts: tuple[SectionPart, ...],
    calls: tuple[FleetCallPart, ...],
    cores: float,
) -> tuple[StepCause, ...]:
    """All causes, the dearest first. `priced`: without a profile, as the predictions that price a cause; where nothing was
    predicted, a section costs what it is longer itself, on its share of a core, and so do calls."""
    factors = {one.path: one for one in _call_factors(calls, WORTH * priced.step)}
    found = list(causes_of(job, Factors(tuple(factors.values()), seen.slow, (), ()), priced.step))
    if not priced.predicted:
        found = [
            replace(one, seconds=(one.factor - 1.0) * factors[one.key].expected_s) if one.key in factors else one for one in found
        ]
    names = {one.name for one in parts if one.leaves}
    for section in seen.own:
        mine = [one for one in parts if one.name == section.name.lower()]
        if section.name.lower() in names:
            found += _section_causes(job, section, mine, seen, priced, cores)
    for name, words, test in (
        ("data", "ranks wait for the next batch", "give the loader more workers or prefetch more batches"),
        (
            "host gaps",
            "garbage collection holds the host up",
            "collect garbage at chosen steps on all ranks (gc.disable, gc.collect)",
        ),
        (
            "between",
            "the training loop spends time outside its sections",
            "look at data loading and at what else the loop does in Python beside forward, backward and update",
        ),
        ("no core", "ranks that could run wait for a core", "give each rank cores of its own, and look at what else runs there"),
    ):
        mine = [one for one in parts if one.name == name and one.leaves and one.median > one.expected]
        if mine:
            seconds = max(one.median - one.expected for one in mine)
            found.append(StepCause(name, float("nan"), seconds, f"{words}{_where(mine, parts)}", test, job))
    return tuple(sorted(found, key=lambda cause: -abs(cause.seconds)))


def _unexplained_gaps(job: Job, parts: tuple[SectionPart, ...], step: SectionPart) -> Iterator[StepCause]:
    """Time between sections beyond what the prediction knows of it, as long as no earlier run says what is usual."""
    mine = [one for one in parts if one.rest > 0]
    if mine:
        longest = max(mine, key=lambda one: one.rest)
        known = f" beyond the {longest.expected * 1e3:.2g} ms of its launches" if longest.expected > 0 else ""
        words = (
            f"the training loop spends {longest.rest / step.median:.1%} of the step between sections{known}{_where(mine, parts)}; "
            "nothing says how long it should be"
        )
        yield StepCause(longest.name, NAN, longest.rest, words, _BETWEEN_TEST, job)


def _call_factors(calls: tuple[FleetCallPart, ...], least: float) -> Iterator[Factor]:
    """One factor an axis, of the calls that both sides have; only of axes of which a kind leaves what the prediction allows, and
    whose calls of a step differ by `least` seconds."""
    for axis in dict.fromkeys(row.axis for row in calls if row.leaves):
        rows = [row for row in calls if row.axis == axis and row.median == row.median and row.expected_each > 0]
        weight = np.array([row.expected_each * row.expected_count for row in rows])
        ratio = np.array([row.median / row.expected_each for row in rows])
        value = float((weight * ratio).sum() / weight.sum())
        if abs(value - 1.0) * weight.sum() < least:
            continue
        yield Factor(f"calls.{axis}", value, 0.0, float(weight.sum()), len(rows))


def _section_causes(
    job: Job, section: Section, parts: list[SectionPart], seen: ObservedSections, known: ExpectedSections, cores: float
) -> Iterator[StepCause]:
    """A section that is off: one cause where all stages are, else one for each stage that is."""
    what, test = _WORDS[section]
    off = [one for one in parts if one.leaves]
    if len(off) == len(parts):
        factor = float(np.median([one.median / one.expected for one in off if one.expected > 0] or [np.nan]))
        changed, key = job, section.name.lower()
        priced = known.predicted and factor == factor
        if priced and section is Section.OPTIMIZER:
            changed = _update_grows(job, factor, _longer(off, cores), known.step)
        elif priced:
            changed = _kernels_grow(job, max(off, key=lambda one: one.expected), known)
        words = f"{what} takes {factor:.2f} times what {_norm(known)} on all ranks"
        yield StepCause(key, factor, _grows(changed, job, _longer(off, cores), known.step), words, test, changed)
        return
    for one in off:
        ranks = tuple(int(rank) for rank in seen.ranks[seen.stage == one.stage])
        changed = _stage_grows(job, one, known, ranks) if known.predicted else job
        words = f"{what} of stage {one.stage} takes {1.0 + one.excess:.2f} times what {_norm(known)}"
        yield StepCause(
            f"{one.name} stage {one.stage}",
            1.0 + one.excess,
            _grows(changed, job, _longer([one], cores), known.step),
            words,
            test,
            changed,
        )


def _norm(known: ExpectedSections) -> str:
    return "we expect" if known.predicted else "is usual"


def _update_grows(job: Job, factor: float, more: float, base: float) -> Job:
    """The job whose update kernels are longer by what the section is: it holds others beside them."""
    try:
        gained = predict(with_factor(job, "kernels.optimizer", factor)).step_time_s - base
    except WindtunnelError:
        return job
    return with_factor(job, "kernels.optimizer", max(1.0 + (factor - 1.0) * more / gained, 0.1)) if gained else job


def _kernels_grow(job: Job, part: SectionPart, known: ExpectedSections) -> Job:
    """The job with all kernels of forward and backward longer by what one of the two is: a calibration knows no passes."""
    total = sum(float(known.own[one][part.stage]) for one in (Section.FORWARD, Section.BACKWARD))
    factor = 1.0 + (part.median - part.expected) / total if total > 0 else 1.0
    for name in KernelFactors.model_fields:
        if name != "optimizer":
            job = with_factor(job, f"kernels.{name}", max(factor, 0.1))
    return job


def _stage_grows(job: Job, part: SectionPart, known: ExpectedSections, ranks: tuple[int, ...]) -> Job:
    """The job with the ranks of a stage slower by what one section of theirs is; unchanged where it is shorter."""
    total = sum(float(values[part.stage]) for values in known.own.values())
    more = (part.median - part.expected) / total if total > 0 else 0.0
    if more <= 0:
        return job
    unequal = {} if job.unequal is None else job.unequal.model_dump(exclude_defaults=True)
    unequal["slow"] = (*unequal.get("slow", ()), {"ranks": ranks, "factor": 1.0 + more})
    return job.model_copy(update={"unequal": Unequal.model_validate(unequal)})


def _longer(parts: list[SectionPart], cores: float) -> float:
    """Seconds of the step by which a section is off: its own, which a share of a core makes longer."""
    return max((one.median - one.expected for one in parts), key=abs) / min(cores, 1.0)


def _grows(changed: Job, job: Job, more: float, base: float) -> float:
    """Seconds by which the changed job's step is longer; `more`, those of the section itself, where no prediction says it."""
    if changed is job:
        return more
    try:
        return predict(changed).step_time_s - base
    except WindtunnelError:
        return more


def _where(parts: list[SectionPart], all_parts: tuple[SectionPart, ...]) -> str:
    stages = {one.stage for one in all_parts}
    if len(parts) == len(stages):
        return ""
    return " on stage " + ", ".join(str(one.stage) for one in parts)


def _explained_step(job: Job, causes: tuple[StepCause, ...], step: float) -> float:
    """The predicted step with every cause at once: what each alone is worth, added up. Causes that hide each other count twice."""
    return step + sum(cause.seconds for cause in causes)


def _nan_to_none(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _cause(one: StepCause) -> dict[str, Any]:
    return {"key": one.key, "factor": _nan_to_none(one.factor), "seconds": one.seconds, "words": one.words, "test": one.test}
