"""Laws of the steady state: a folded step is the whole step, and what never becomes steady is run in full."""

from __future__ import annotations

import importlib
import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from random_jobs import jobs

import windtunnel as wt
from windtunnel.engine import run
from windtunnel.predict import predict
from windtunnel.predict.category import HOST_PART, Category, idle_key
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.program.lower import lower
from windtunnel.predict.program.periods import periods_of, without_periods
from windtunnel.predict.runs.equal import fold, steady_state
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec import Job
from windtunnel.workload import build
from windtunnel.workload.graph import Orders
from windtunnel.workload.schedules import SCHEDULES, fewer_micro_batches, micro_batches_of_period, overlapped_order, table

EQUAL = importlib.import_module("windtunnel.predict.runs.equal")
FLOATS = 1e-12
WAITS = {idle_key(category) for category in Category} | {HOST_PART.key}


def with_micro_batches(job: Job, number: int) -> Job:
    """The job with so many micro batches."""
    batch = number * job.plan.micro_batch * job.dp
    return job.model_copy(update={"plan": job.plan.model_copy(update={"global_batch": batch})})


def in_full(job: Job) -> Prediction:
    """The prediction without folding."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EQUAL, "fold", lambda *_: None)
        return predict(job)


def is_split_by_rounding(job: Job) -> bool:
    """Whether two causes end waits of the whole step at the same time, so that rounding books the wait under either: then its parts
    do not grow by the same seconds with each period."""
    workload = build(job)
    costs, plan = Setting().price(workload), job.plan
    period = micro_batches_of_period(plan.schedule_name, plan.pp, plan.vpp, job.micro_batches, job.runtime.moe_a2a_overlap)
    assert period is not None
    most = job.micro_batches
    sizes = [number for number in range(most, most // 4, -12 * period)]
    runs = [run(lower(replace(workload, schedule=Orders(job, n)), costs).program, critical_path=False) for n in sizes]
    grown = np.diff([one.idle for one in runs], n=2, axis=0)
    return bool((np.abs(grown) > FLOATS * runs[0].makespan).any())


def assert_same(one: Prediction, other: Prediction) -> None:
    step = other.step_time_s
    assert one.step_time_s == pytest.approx(step, rel=FLOATS)
    pairs = list(
        zip((*one.by_stage, one.breakdown, one.overlapped), (*other.by_stage, other.breakdown, other.overlapped), strict=True)
    )
    unlike = {
        key
        for mine, theirs in pairs
        for key in mine.keys() | theirs.keys()
        if abs(mine.get(key, 0.0) - theirs.get(key, 0.0)) > FLOATS * step
    }
    assert not unlike or unlike <= WAITS and is_split_by_rounding(other.job), unlike
    for mine, theirs in pairs[:-1]:
        assert sum(mine.values()) == pytest.approx(sum(theirs.values()), rel=FLOATS)
    assert [(row["name"], row["bytes"], row["count"]) for row in one.collectives] == [
        (row["name"], row["bytes"], row["count"]) for row in other.collectives
    ]
    for mine, theirs in zip(one.memory, other.memory, strict=True):
        for field in fields(mine):
            if isinstance(value := getattr(mine, field.name), float):
                assert value == pytest.approx(getattr(theirs, field.name), rel=FLOATS, abs=1.0), field.name


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(jobs(), st.integers(12, 60))
def test_a_folded_step_is_the_whole_step(job: Job, rounds: int) -> None:
    job = with_micro_batches(job, job.plan.pp * rounds)
    try:
        workload = build(job)
        folded = fold(workload, Setting().price(workload))
    except wt.PlanError:
        assume(False)
        raise
    if folded is not None:
        assert_same(predict(job), in_full(job))


@given(
    st.sampled_from([name for name in SCHEDULES if micro_batches_of_period(name, 2, 2, 8) is not None]),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 4),
    st.booleans(),
)
def test_an_order_of_more_micro_batches_has_more_of_the_same_middle(
    name: str, pairs: int, chunks: int, periods: int, overlapped: bool
) -> None:
    stages = 2 * pairs
    chunks = 1 if name in ("1f1b", "zb-h1", "zb-h2") else 2 if name in ("zbv", "dualpipe", "dualpipev") else 1 + chunks
    overlapped = overlapped and name in ("1f1b", "interleaved")
    copies = 2 if name == "dualpipe" else 1
    many = 64 * stages
    period = micro_batches_of_period(name, stages, chunks, many, overlapped)
    fewer = fewer_micro_batches(name, stages, chunks, many, periods, overlapped)
    assert period is not None and fewer is not None and (many - fewer) % period == 0
    write = overlapped_order if overlapped else SCHEDULES[name]
    for short, long in zip(write(stages, chunks, fewer), write(stages, chunks, fewer + period), strict=True):
        a, b = table(short), table(long)
        a[:, 2] -= (a[:, 2] >= fewer // 2) * (fewer // 2) if copies == 2 else 0  # the second copy's begin with 0, too
        b[:, 2] -= (b[:, 2] >= (fewer + period) // 2) * ((fewer + period) // 2) if copies == 2 else 0
        more = len(b) - len(a)
        differs = np.flatnonzero((a != b[: len(a)]).any(axis=1))
        begin = int(differs[0]) if len(differs) else len(a)
        moved = a[begin:] + np.array([0, 0, period // copies, 0])
        assert np.array_equal(moved, b[begin + more :])
        assert begin >= more * periods, "the middle that repeats is shorter than asked for"


def pipeline(micro_batches: int, schedule: str = "1f1b") -> Job:
    """A plain pipeline of four stages."""
    sets = ["plan.tp=2", "plan.pp=4", "plan.dp=1", "plan.vpp=1", "plan.cp=1", f"plan.schedule={schedule}"]
    return with_micro_batches(wt.load("llama3-8b-8xh100", sets), micro_batches)


@pytest.mark.parametrize("name", ["gpipe", "breadth-first"])
def test_a_schedule_in_phases_is_run_in_full(name: str) -> None:
    workload = build(pipeline(256, name))
    assert fold(workload, Setting().price(workload)) is None


@pytest.mark.parametrize("name", ["gpt3-175b-64", "llama2-70b-64xh100", "bloom-176b-384"])
def test_a_program_without_periods_is_that_of_fewer_micro_batches(name: str) -> None:
    job = wt.load(name)
    job = with_micro_batches(job, 32 * job.plan.pp)
    workload = build(job)
    costs = Setting().price(workload)
    period = micro_batches_of_period(job.plan.schedule_name, job.plan.pp, job.plan.vpp, job.micro_batches)
    assert period is not None
    number = 2 * job.plan.pp + 8 * period
    lowered = lower(replace(workload, schedule=Orders(job, number)), costs)
    found = periods_of(lowered.program, lowered.labels, period)
    assert found is not None
    for less in (1, 3):
        cut = without_periods(lowered.program, found, less)
        written = lower(replace(workload, schedule=Orders(job, number - less * period)), costs).program
        assert cut is not None
        for field in fields(written):
            assert np.array_equal(getattr(cut, field.name), getattr(written, field.name)), field.name


@examples(40)
@given(st.sampled_from(["begin", "end", "host_begin", "outcome"]), st.integers(0, 3), st.floats(0.05, 0.95))
def test_a_step_with_one_instance_out_of_line_is_not_steady(column: str, rank: int, place: float) -> None:
    workload = build(pipeline(400))
    lowered = lower(replace(workload, schedule=Orders(workload.job, 40)), Setting().price(workload))
    timeline = run(lowered.program, critical_path=False, outcomes=True)
    periods = periods_of(lowered.program, lowered.labels, 1)
    assert periods is not None
    steady = steady_state(lowered.program, timeline, periods)
    assert steady is not None
    # the last time of the stretch that is looked at, and those before it
    until = min(
        float(timeline.begin[timeline.rank_start[r] + of.last - 1 : timeline.rank_start[r + 1]].min())
        for r, of in enumerate(periods)
    )
    of, first = periods[rank], int(timeline.rank_start[rank])
    own = np.arange(first + of.first, first + of.last)
    own = own[(timeline.outcome[own] >= 0) | (column != "outcome")]  # a transfer has none
    inside = (timeline.begin[own] > until - 1.9 * steady.seconds) & (timeline.end[own] < until - 0.1 * steady.seconds)
    chosen = own[inside][int(place * int(inside.sum()))]
    values = getattr(timeline, column).copy()
    values[chosen] += 1 if column == "outcome" else 1e-9 * timeline.makespan
    changed = replace(timeline, **{column: values})
    assert steady_state(lowered.program, changed, periods) is None


def test_the_size_of_what_is_run_does_not_grow_with_micro_batches() -> None:
    sizes = []
    for micro_batches in (256, 512, 2048):
        workload = build(pipeline(micro_batches))
        folded = fold(workload, Setting().price(workload))
        assert folded is not None
        sizes.append(len(folded.lowered.program.template))
    assert sizes[0] == sizes[1] == sizes[2]


def test_what_is_read_on_demand_is_that_of_the_whole_step() -> None:
    job = pipeline(96)
    folded, whole = predict(job), in_full(job)
    again = pickle.loads(pickle.dumps(folded))
    assert len(folded.timeline) > 96 * 2 * 4
    assert tuple(folded.timeline) == tuple(whole.timeline) == tuple(again.timeline)
    assert tuple(folded.critical_path) == tuple(whole.critical_path)
    assert sum(float(str(row["seconds"])) for row in folded.critical_path) == pytest.approx(folded.step_time_s, rel=1e-9)
    assert tuple(folded.kernel_timeline) == tuple(whole.kernel_timeline)
    for mine, theirs in zip(folded.memory, whole.memory, strict=True):
        assert len(mine.curve) == 1 + 2 * 96
        assert tuple(mine.curve) == tuple(theirs.curve)
    assert again == folded
