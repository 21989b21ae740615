"""Numbers of a search made again: columns against plans one by one, prices of levers by two predictions, explanations, workers."""

from __future__ import annotations

import math
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from windtunnel.memory.result import USABLE
from windtunnel.predict import predict
from windtunnel.search.api import LEAST, _with_lever, search
from windtunnel.search.bound.bounds import Bounds, bounds
from windtunnel.search.change import Change, facts_of, value_of
from windtunnel.search.find import Candidate
from windtunnel.search.levers.pricing import GAIN, PricedLever, price_levers
from windtunnel.search.levers.reasons import WORTH, advise
from windtunnel.search.levers.registry import LEVERS
from windtunnel.search.levers.sensitivity import sensitivity
from windtunnel.search.objective import Most, objectives
from windtunnel.search.outcome import PlanOutcome, Trial, outcome_of
from windtunnel.search.result import SPARE, Explanation, SearchResult
from windtunnel.search.space import EVEN, LIGHT_ENDS, LIGHT_LAST, WITH_TP, PlanColumns, Space, micro_batches
from windtunnel.search.workers import RayWorkers
from windtunnel.spec import Job, load_job

SMALL = ["cluster.gpus=16", "model.layers=8", "plan.global_batch=32", "runtime.framework=megatron-core"]
JOB = load_job("llama3-8b-8xh100", SMALL)
MIXTURE = load_job("mixtral-8x7b-64xh100", ["model.layers=8", "cluster.gpus=16", "plan.global_batch=32", "plan.ep=4"])
FIELDS = {
    "plan.tp": (1, 2, 4),
    "plan.pp": (1, 2, 4),
    "plan.vpp": (1, 2),
    "plan.cp": (1, 2),
    "plan.micro_batch": (1, 2),
    "plan.stages": (EVEN, LIGHT_LAST, LIGHT_ENDS),
    "plan.sequence_parallel": (WITH_TP,),
    "plan.recompute": ("none", "selective", "full"),
    "plan.sharding": ("none", "zero1", "hsdp"),
    "runtime.overlap_grad_reduce": (False, True),
}


def drawn(job: Job, fields: dict[str, tuple[Any, ...]], count: int = 60) -> PlanColumns:
    columns = Space(job, fields).columns()
    return columns.take(np.sort(np.random.default_rng(4).permutation(len(columns))[:count]))


def test_columns_say_what_each_plan_says() -> None:
    columns = drawn(JOB, FIELDS)
    batches = micro_batches(columns)
    for number in range(len(columns)):
        change = columns.change(number)
        job = change.apply_unchecked(JOB)
        assert batches[number] == job.micro_batches
        for path in ("plan.tp", "plan.pp", "plan.cp", "plan.micro_batch", "plan.seq"):
            assert columns.numbers(path)[number] == value_of(job, path) == columns.of(path, number)
        for path in ("runtime.overlap_grad_reduce", "runtime.overlap_p2p"):
            assert columns.flags(path)[number] == value_of(job, path)
        plan = job.plan
        assert plan.sequence_parallel == (plan.tp > 1)
        assert job.dp * plan.tp * plan.cp * plan.pp == 16
        assert plan.shard_group == (8 // plan.tp if plan.sharding == "hsdp" else None)
        layout, parts = columns.of("plan.stages", number), plan.pp * plan.vpp
        if plan.stages is not None:
            assert sum(plan.stages) == 8 and len(plan.stages) == parts
            assert (layout != EVEN or max(plan.stages) - min(plan.stages) <= 1) and plan.stages[-1] <= max(plan.stages)
    assert len(Space(JOB, FIELDS).columns()) <= Space(JOB, FIELDS).size == math.prod(len(values) for values in FIELDS.values())


NARROW: dict[str, tuple[Any, ...]] = {
    "plan.tp": (2, 4), "plan.pp": (1, 2), "plan.recompute": ("none", "full"), "plan.sharding": ("none", "zero1"),
    "runtime.overlap_grad_reduce": (False, True), "plan.sequence_parallel": (WITH_TP,),
}  # fmt: skip


def bound(*overrides: str, job: str = "llama3-8b-8xh100", fields: dict[str, tuple[Any, ...]] = NARROW) -> Bounds:
    return bounds(Space(load_job(job, [*SMALL, *overrides]), fields).columns())


@pytest.mark.parametrize(
    "faster",
    [
        "cluster.node.nic.bandwidth=800Gb/s",
        "cluster.node.scale_up.bandwidth=900GB/s per GPU each way",
        "cluster.node.gpu.memory_bandwidth=6.7TB/s",
    ],
)
def test_a_bound_is_no_larger_where_something_is_faster(faster: str) -> None:
    slow, fast = bound(), bound(faster)
    assert (fast.seconds <= slow.seconds * (1 + 1e-12)).all() and (fast.seconds < slow.seconds).any()
    assert (fast.bytes == slow.bytes).all()
    if "gpu" not in faster:
        assert fast.computing == pytest.approx(slow.computing)


def test_twice_the_micro_batches_take_twice_the_work() -> None:
    """What a step computes is linear in its micro batches; what follows them is not, nor what a GPU holds beyond the warm-up."""
    once, twice, four = (bound(f"plan.global_batch={batch}") for batch in (32, 64, 128))
    assert twice.computing == pytest.approx(2.0 * once.computing)
    assert four.seconds - twice.seconds == pytest.approx(2.0 * (twice.seconds - once.seconds), rel=1e-6)
    assert (twice.seconds < 2.0 * once.seconds).all()
    assert (four.bytes == twice.bytes).all()


def test_computing_is_what_the_predictions_kernels_take() -> None:
    job = load_job("llama3-8b-8xh100", [*SMALL, "plan.tp=2"])
    columns = Space(job, {"plan.recompute": ("none", "full")}).columns()
    least = bounds(columns)
    for number in range(2):
        parts = predict(columns.change(number).apply(job)).breakdown
        products = parts["matmul"] + parts["attention"] + parts.get("recompute", 0.0)
        assert least.computing[number, 1] == pytest.approx(products, rel=0.03)
        assert least.computing[number, 0] >= least.computing[number, 1]


@pytest.mark.parametrize("job", [JOB, MIXTURE, load_job("gpt3-175b-64", ["model.layers=16", "plan.global_batch=64"])])
def test_gains_of_levers_are_those_of_two_predictions(job: Job) -> None:
    before = predict(job)
    priced = price_levers(facts_of(job))
    assert priced
    order = [(one.trains_otherwise, before.fits and not one.fits, -one.gain) for one in priced]
    assert order == sorted(order)
    for one in priced:
        after = predict(one.change.apply(job))
        assert one.step_time_s == pytest.approx(after.step_time_s)
        assert one.gain == pytest.approx(1.0 - before.tokens_per_s / after.tokens_per_s, abs=1e-12)
        assert one.fits == after.fits
        parts = [part for lever in LEVERS if lever.name == one.lever for part in lever.parts if part in before.breakdown]
        shorter = {part: before.breakdown[part] - after.breakdown.get(part, 0.0) for part in parts or before.breakdown}
        assert shorter[one.part] == max(shorter.values())
        machine = any(path.startswith(("cluster.", "unequal")) for path, _ in one.change.fields)
        assert one.helps == (one.gain > GAIN and after.fits and not one.trains_otherwise and not machine)
    assert len({one.change for one in priced}) == len(priced)


def test_advice_is_the_best_lever_of_each_loss() -> None:
    job = load_job("llama3-8b-8xh100", [*SMALL, "plan.pp=2", "plan.recompute=full"])
    before, priced = predict(job), price_levers(facts_of(job))
    advices = advise(before, limit=50)
    assert advices == advise(before, limit=50) and advise(before, limit=1) == advices[:1]
    for advice in advices:
        assert advice.cost_s == pytest.approx(before.breakdown[advice.part])
        if advice.change is None:
            assert advice.gain == 0.0 and advice.cost_s >= WORTH * before.step_time_s
            continue
        own = [one for one in priced if one.part == advice.part and one.gain > GAIN and (one.fits or not before.fits)]
        own = [one for one in own if not one.trains_otherwise] or own
        assert advice.gain == max(one.gain for one in own)
    gains = [advice.gain for advice in advices if not advice.trains_otherwise]
    assert gains == sorted(gains, reverse=True)


def test_a_slow_rank_costs_what_the_step_without_it_saves() -> None:
    job = load_job("llama3-8b-8xh100", ["model.layers=8", "plan.global_batch=32", "unequal.slow=[{ranks=[3],factor=1.2}]"])
    slow, even = predict(job), predict(load_job("llama3-8b-8xh100", ["model.layers=8", "plan.global_batch=32"]))
    first = advise(slow)[0]
    assert first.part == "slow_ranks"
    assert first.cost_s == pytest.approx(slow.step_time_s - even.step_time_s)
    assert first.gain == pytest.approx(1.0 - even.step_time_s / slow.step_time_s)


def test_elasticities_are_those_of_predictions() -> None:
    """An elasticity is d ln(step) / d ln(limit): all that scales with a rate adds up to no more than the step."""
    found = sensitivity(JOB)
    assert found.step_time_s == pytest.approx(predict(JOB).step_time_s)
    for limit in found.limits:
        assert limit.gain == pytest.approx(1.0 - limit.step_time_s / found.step_time_s, abs=1e-9)
        assert limit.step_time_s <= found.step_time_s * (1 + 1e-9)
    rates = [limit.elasticity for limit in found.limits if limit.elasticity < 0.0]
    assert -1.0 - 1e-6 < sum(rates) < -0.5


@pytest.fixture(scope="module")
def explained() -> tuple[SearchResult, Explanation]:
    fields = {"plan.tp": (1, 2, 4), "plan.recompute": ("none", "selective", "full"), "plan.sharding": ("none", "zero1", "fsdp")}
    result = search(load_job("llama3-8b-8xh100", ["plan.global_batch=32"]), fields, processes=1)
    why = result.explanation
    assert why is not None
    return result, why


def test_the_own_plan_is_compared_with_the_winner(explained: tuple[SearchResult, Explanation]) -> None:
    result, why = explained
    job, best, own = result.jobs[0], result.best, why.known
    assert own is not None
    before, after = predict(job), predict(best.change.apply(job))
    assert own.outcome.step_time_s == pytest.approx(before.step_time_s)
    assert own.loss == pytest.approx(before.step_time_s / after.step_time_s - 1.0)
    more = {
        part: before.breakdown.get(part, 0.0) - after.breakdown.get(part, 0.0) for part in {*before.breakdown, *after.breakdown}
    }
    longer = sorted((seconds for seconds in more.values() if seconds > 0.0), reverse=True)
    parts = [seconds for seconds in longer if seconds > 0.01 * sum(longer)][:3]
    assert [seconds for _, seconds in own.parts] == pytest.approx(parts)
    assert all(more[part] == pytest.approx(seconds) for part, seconds in own.parts)


def test_decisions_and_memory_are_those_of_predictions(explained: tuple[SearchResult, Explanation]) -> None:
    result, why = explained
    job, best = result.jobs[0], result.best
    step = predict(best.change.apply(job)).step_time_s
    assert best.values == pytest.approx((step,))
    for decision in why.decisions:
        others = [one for one in result.ranked if dict(one.change.fields)[decision.path] != decision.value]
        if decision.exact and others:
            assert decision.loss == pytest.approx(min(one.values[0] for one in others) / step - 1.0)
        assert decision.least <= decision.loss + 1e-12
    limit = USABLE * job.cluster.gpu.memory
    if why.relaxed is not None:
        other = predict(why.relaxed.candidate.change.apply_unchecked(job))
        assert not other.fits and why.relaxed.gain == pytest.approx(1.0 - other.step_time_s / step)
        assert why.relaxed.missing == pytest.approx(max(stage.total for stage in other.memory) - limit)
    if why.roomier is not None:
        other = predict(why.roomier.candidate.change.apply(job))
        assert why.roomier.loss == pytest.approx(other.step_time_s / step - 1.0)
        assert why.roomier.free < SPARE * limit <= limit - max(stage.total for stage in other.memory)


def test_an_outcome_is_a_prediction() -> None:
    change = Change.of(plan__recompute="full", plan__tp=2)
    outcome, answer = outcome_of(JOB, change), predict(change.apply(JOB))
    assert outcome.step_time_s == answer.step_time_s and outcome.breakdown == pytest.approx(answer.breakdown)
    limit = USABLE * JOB.cluster.gpu.memory
    assert outcome.fits and outcome.missing == pytest.approx(max(stage.total for stage in answer.memory) - limit)
    kept = outcome_of(JOB, change, margin=0.5)
    assert kept.missing - outcome.missing == pytest.approx(0.5 * limit)
    assert outcome_of(JOB, Change.of(plan__tp=3)).refused


@pytest.mark.parametrize(
    ("before", "most", "pulled"),
    [(1.0, math.inf, True), (1.0, 0.0, False), (1.0 / (1.0 - 0.99 * LEAST), math.inf, False), (0.5, math.inf, False)],
)
def test_a_lever_is_pulled_where_it_gains_and_keeps_the_limits(before: float, most: float, pulled: bool) -> None:
    """`before`: the value of the plan, in steps of the plan with the lever. One that is no more than LEAST better stays."""
    lever = PricedLever("recompute", Change.of(plan__recompute="none"), 1.0, 0.1, True, "recompute", (), False)
    change = Change.of(plan__tp=4, plan__recompute="full")
    step = predict(Change.of(plan__tp=4, plan__recompute="none").apply(JOB)).step_time_s
    time, gpus = objectives("time")[0], objectives("gpus")[0]
    plan = Candidate(0, change, outcome_of(JOB, change), (before * 2.0 * step if pulled else before * step,))
    after = _with_lever(JOB, plan, lever, time, [Most(gpus, most)], 0.0)
    assert (after is not None) == pulled
    if after is not None:
        assert after.values == pytest.approx((step,)) and dict(after.change.fields) == {"plan.tp": 4, "plan.recompute": "none"}
    assert _with_lever(JOB, plan, lever, time, [], 0.999) is None  # nothing fits into so little


def test_workers_on_ray_give_trials_back_and_end_what_they_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for Ray with 4 CPUs, which runs tasks at once."""
    log: list[str] = []

    def remote(**_: object) -> Any:
        return lambda call: SimpleNamespace(remote=lambda *rest: (len(log), rest[2], call(*rest)))

    ray = SimpleNamespace(
        is_initialized=lambda: False, init=lambda **_: log.append("init"), cluster_resources=lambda: {"CPU": 4.0},
        put=lambda it: it, remote=remote,
        wait=lambda all, num_returns: (all[:num_returns], all[num_returns:]), get=lambda done: done[2],
        cancel=lambda reference, force: log.append(f"cancel {force}"), shutdown=lambda: log.append("shutdown"),
        exceptions=SimpleNamespace(RayError=KeyError),
    )  # fmt: skip
    outcome = PlanOutcome(refused="all")
    module = import_module("windtunnel.search.workers")
    monkeypatch.setattr(module, "import_module", lambda name: ray)
    monkeypatch.setattr(module, "outcome_of", lambda *_: outcome)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    workers = RayWorkers([JOB], 0.0, "auto", 2)
    trials = [Trial(number, 0, Change.of(plan__tp=number)) for number in (1, 2)]
    assert workers.slots == 12
    for trial in trials:
        workers.submit(trial)
    assert workers.next()[1] is outcome and len(workers.under_way) == 1
    workers.close()
    assert log == ["init", "cancel True", "shutdown"] and not workers.under_way
    ray.is_initialized = lambda: True
    other = RayWorkers([JOB], 0.0, "auto", 2)
    other.close()
    assert log == ["init", "cancel True", "shutdown"]  # Ray was there before and stays
