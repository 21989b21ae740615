"""A prediction is plain data: it pickles, hashes, compares by value, stays small, and crosses processes."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields

import pytest
from jobs import make_job
from measured_rows import own_predictions

import windtunnel as wt
from windtunnel.predict import Prediction, predict
from windtunnel.spec import load_job
from windtunnel.workload import build

JOBS: dict[str, tuple[str, list[str], str]] = {
    "closed": ("llama3-8b-8xh100", [], "closed"),
    "pipeline": ("megatron-22b-8", ["plan.tp=4", "plan.pp=2"], "closed"),
    "pairs": (
        "llama3-8b-8xh100",
        ["plan.pp=2", "plan.dp=4", "plan.vpp=2", "plan.schedule=dualpipev", "plan.global_batch=32"],
        "closed",
    ),
    "flow": ("mixtral-8x7b-64xh100", [], "flow"),
    "unequal": ("llama3-8b-8xh100", ["unequal={slow=[{ranks=[3],factor=1.2}]}"], "closed"),
    "drawn": ("llama3-8b-8xh100", ["unequal={jitter={sigma=0.05},draws=2}"], "closed"),
}


def of(name: str) -> wt.Answer:
    base, sets, network = JOBS[name]
    return wt.predict(load_job(base, sets), network)


def step_time(sets: list[str]) -> Prediction:
    """What a worker of a search does."""
    return predict(load_job("llama3-8b-8xh100", sets))


@pytest.mark.parametrize("name", JOBS)
def test_it_pickles_hashes_and_compares(name: str) -> None:
    p, again = of(name), of(name)
    assert p == again and hash(p) == hash(again) and {p: 1}[again] == 1
    copy = pickle.loads(pickle.dumps(p))
    assert copy == p and hash(copy) == hash(p) and type(copy) is wt.Answer
    for field in fields(Prediction):  # one by one, and the rows that are made on demand too
        mine, theirs = getattr(p, field.name), getattr(copy, field.name)
        assert theirs == mine, field.name
    assert list(copy.timeline) == list(p.timeline) and len(p.timeline) > 10
    assert list(copy.kernel_timeline) == list(p.kernel_timeline) and len(p.kernel_timeline) > len(p.timeline) / 2
    assert [list(stage.curve) for stage in copy.memory] == [list(stage.curve) for stage in p.memory]
    assert copy.to_json(detail=True) == p.to_json(detail=True)


def test_other_jobs_are_other_predictions() -> None:
    one, other = of("closed"), predict(load_job("llama3-8b-8xh100", ["plan.micro_batch=1", "plan.global_batch=16"]))
    assert one != other and len({one, other}) == 2


def test_rows_made_on_demand_are_no_part_of_it() -> None:
    p = of("pipeline")
    before = len(pickle.dumps(p))
    assert len(p.kernel_timeline) > 0 and len(p.timeline) > 0 and p.memory[0].curve
    assert len(pickle.dumps(p)) == before


@pytest.mark.parametrize(("name", "most"), [("llama3-8b-8xh100", 60_000), ("megascale-175b-12288", 700_000)])
def test_it_is_small(name: str, most: int) -> None:
    assert len(pickle.dumps(predict(load_job(name)))) < most


def test_one_with_a_profile_pickles() -> None:
    job = load_job("megatron-22b-8")
    p = predict(job, profile=own_predictions(build(job)))
    copy = pickle.loads(pickle.dumps(p))
    assert copy == p
    assert list(copy.kernel_timeline) == list(p.kernel_timeline)


def test_a_search_may_use_several_processes() -> None:
    plans = [[f"plan.global_batch={8 * n}"] for n in (1, 2, 3, 4)]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        there = list(pool.map(step_time, plans))
    assert there == [step_time(plan) for plan in plans]
    assert min(there, key=lambda p: p.tokens_per_s).timeline[0].start >= 0.0


def test_the_verb_takes_what_the_command_takes() -> None:
    job = load_job("llama3-8b-8xh100")
    shares: list[float] = []
    assert wt.predict(job, factors=None, skip=False, seed=2, progress=shares.append) == wt.predict(job, seed=2)
    with pytest.raises(wt.SpecError, match="kernels"):
        wt.predict(job, kernels="h100")
    with pytest.raises(wt.FileError):
        wt.predict(job, kernels="no-such-file.json")


def test_timelines_that_are_made_on_demand_can_be_hashed() -> None:
    one, other = predict(make_job()), predict(make_job())
    assert hash(one.timeline) == hash(other.timeline)
