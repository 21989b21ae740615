"""Ranks that differ: who waits for whom, by numbers that can be worked out by hand, and laws that hold for any job."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import pytest
from jobs import make_job
from rich.console import Console

from windtunnel.api.json import to_json
from windtunnel.api.prediction_sheet import prediction_sheet
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.draw.page.sheet import page
from windtunnel.draw.terminal import print_sheet
from windtunnel.engine import run
from windtunnel.predict import Prediction, predict
from windtunnel.predict.price.costs import price
from windtunnel.predict.price.mixed import MixedCosts
from windtunnel.predict.program.lower import lower
from windtunnel.predict.program.speeds import packed_work
from windtunnel.predict.program.unequal import lower_unequal
from windtunnel.predict.ranks.draws import Draw, draws_of
from windtunnel.predict.ranks.folding import MEETING, Replicas, fold
from windtunnel.predict.ranks.places import ranks_of
from windtunnel.predict.sheet.others import unequal_sentence
from windtunnel.spec import Host, Job, check, dump_job, load_job
from windtunnel.spec.unequal import Documents, Unequal
from windtunnel.workload import build

FREE = Host(launch=0.0)


def unequal(job: Job, **fields: Any) -> Job:
    """The checked job with ranks that differ, on a cluster without slow nodes."""
    even = job.cluster.model_copy(update={"slow_nodes": 0.0})
    return check(job.model_copy(update={"cluster": even, "unequal": Unequal.model_validate(fields)}))


def even(job: Job) -> float:
    return predict(job.model_copy(update={"cluster": job.cluster.model_copy(update={"slow_nodes": 0.0})})).step_time_s


def told(p: Prediction) -> Any:
    assert p.unequal is not None
    assert sum(p.breakdown.values()) == pytest.approx(p.step_time_s, rel=1e-9)
    return p.unequal


JOBS = {
    "dp": make_job(dp=4, layers=2),
    "dp overlapped": make_job(dp=4, layers=2, overlap_grad_reduce=True),
    "zero1": make_job(dp=4, layers=2, sharding="zero1", overlap_param_gather=True, overlap_grad_reduce=True),
    "fsdp": make_job(dp=4, layers=2, sharding="fsdp"),
    "hsdp": make_job(dp=4, layers=2, sharding="hsdp", shard_group=2),
    "pipeline": make_job(dp=2, pp=2, tp=2, layers=4, global_batch=16),
    "interleaved": make_job(dp=2, pp=2, vpp=2, layers=4, overlap_p2p=True),
    "dualpipe": make_job(dp=2, pp=2, schedule="dualpipe", layers=4, overlap_p2p=True, global_batch=16),
    "zbv": make_job(dp=2, pp=2, vpp=2, schedule="zbv", layers=4, overlap_p2p=True, global_batch=16),
    "experts": make_job(dp=4, layers=2, experts=4, expert_ffn=512, top_k=2, ep=2),
    "experts fsdp": make_job(dp=4, layers=2, experts=4, expert_ffn=512, top_k=2, ep=2, sharding="fsdp"),
    "second copy": make_job(dp=4, layers=2, sharding="zero3", secondary_group=2),
    "mics": make_job(dp=4, layers=2, sharding="mics", shard_group=2),
    "context": make_job(dp=2, cp=2, layers=2, sharding="zero1"),
}


def split(groups: list[Replicas], into: int) -> list[Replicas]:
    """The only group of equal replicas as several."""
    (group,) = groups
    every = tuple(range(into))
    parts = np.array_split(np.array(group.indices), into)
    return [replace(group, indices=tuple(part.tolist()), partners=dict.fromkeys(MEETING, every)) for part in parts]


@pytest.mark.parametrize("name", JOBS)
def test_equal_replicas_apart_take_what_they_take_folded(name: str) -> None:
    job = JOBS[name]
    workload = build(job)
    costs = price(workload)
    folded = run(lower(workload, costs).program)
    differing = Unequal(spread=0.1)  # any: the ranks below are equal
    ranks = ranks_of(job, Unequal(), np.zeros(0, np.bool_))
    groups = fold(job, Unequal(), ranks, Draw(1.0, 0, np.zeros(0, np.bool_)))
    kinds = MixedCosts(workload, costs, price)
    for into in (1, 2):
        apart = run(lower_unequal(workload, kinds, differing, ranks, split(groups, into), 0).program)
        assert apart.makespan == pytest.approx(folded.makespan, rel=1e-12)
        stages = job.plan.pp
        assert apart.rank_end == pytest.approx(np.tile(folded.rank_end, into), rel=1e-12)
        assert apart.busy[:stages] == pytest.approx(folded.busy, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", JOBS)
def test_a_straggler_costs_time_but_never_more_than_its_share(name: str) -> None:
    job, slow = JOBS[name], 1.25
    p = predict(unequal(job, slow=[{"ranks": [0], "factor": slow}]))
    base = even(job)
    assert base < p.step_time_s <= slow * base
    assert told(p).equal_step_time_s == pytest.approx(base, rel=1e-12)


def test_one_slow_replica_slows_a_compute_bound_step_by_as_much() -> None:
    """Computing takes x % longer; calls and the host take what they took."""
    job = make_job(dp=4, layers=2, hidden=4096, ffn=16384, heads=32, host=FREE, micro_batch=2, global_batch=32)
    p = predict(unequal(job, slow=[{"replicas": [2], "factor": 1.1}]))
    base = predict(unequal(job, slow=[{"replicas": [2], "factor": 1.000001}]))
    computing = sum(base.breakdown[name] for name in ("matmul", "memory_bound", "optimizer", "attention") if name in base.breakdown)
    assert p.step_time_s - base.step_time_s == pytest.approx(0.1 * computing, rel=1e-3)
    # the others wait for what it lost before gradients are combined and before their norm is: all but the update itself
    waited = told(p).classes[0].waiting_s[0]
    assert p.breakdown["slower_ranks"] == pytest.approx(waited)
    assert 0.1 * (computing - base.breakdown["optimizer"]) < waited < 0.1 * computing
    assert told(p).culprit == "replica 2 (10.0% slower)"


def test_which_of_equal_ranks_is_slow_does_not_matter() -> None:
    job = JOBS["pipeline"]
    times = {predict(unequal(job, slow=[{"ranks": [rank], "factor": 1.2}])).step_time_s for rank in (0, 1, 2, 3)}
    assert len(times) == 1  # tensor-parallel members, and the two replicas, of the first stage
    assert job.plan.placement[-1] == "pp"


def test_more_slow_replicas_take_no_longer_than_one_and_no_less() -> None:
    job = JOBS["dp overlapped"]
    one = predict(unequal(job, slow=[{"replicas": [1], "factor": 1.2}]))
    three = predict(unequal(job, slow=[{"replicas": [1, 2, 3], "factor": 1.2}]))
    assert three.step_time_s == pytest.approx(one.step_time_s, rel=1e-12)
    assert [len(c.replicas) for c in told(three).classes] == [3, 1]
    assert told(three).class_of_replica == (1, 0, 0, 0)


def test_a_slow_clock_stretches_products_only() -> None:
    job = make_job(layers=2, host=FREE)
    base, p = (predict(unequal(job, slow=[{"ranks": [0], **how}])) for how in ({"factor": 1.000001}, {"clock": 0.8}))
    assert p.breakdown["matmul"] == pytest.approx(base.breakdown["matmul"] / 0.8, rel=1e-5)
    assert p.breakdown["memory_bound"] == pytest.approx(base.breakdown["memory_bound"], rel=1e-5)


def test_a_shard_group_of_its_own_waits_only_where_copies_meet() -> None:
    """hsdp over pairs 0 1, 2 3, 4 5, 6 7: the slow one; its pair; those that hold the same shards as it; as its pair."""
    job = make_job(dp=8, layers=2, sharding="hsdp", shard_group=2)
    p = predict(unequal(job, slow=[{"replicas": [0], "factor": 1.5}]))
    assert sorted(c.replicas for c in told(p).classes) == [(0,), (1,), (2, 4, 6), (3, 5, 7)]


def test_micro_batches_by_speed_make_up_for_a_slow_replica() -> None:
    job = make_job(dp=2, layers=2, hidden=2048, ffn=8192, host=FREE, global_batch=12)
    slow = {"slow": [{"replicas": [0], "factor": 2.0}]}
    shared = [{"replicas": [0], "micro_batches": 4}, {"replicas": [1], "micro_batches": 8}]
    before, after = predict(unequal(job, **slow)), predict(unequal(job, **slow, batches=shared))
    assert after.step_time_s < 0.75 * before.step_time_s
    assert [c.micro_batches for c in told(after).classes] == [4, 8]


def test_other_gpus_have_their_own_speed_memory_and_peak() -> None:
    job = check(load_job({"base": "llama2-70b-64xh100", "unequal": {"mixed": [{"replicas": [0, 1], "node": "dgx-a100-40gb"}]}}))
    p, h100 = predict(job), predict(load_job("llama2-70b-64xh100"))
    a100 = predict(check(load_job({"base": "llama2-70b-64xh100", "cluster": {"node": {"base": "dgx-a100-40gb"}}})))
    assert h100.step_time_s < p.step_time_s <= a100.step_time_s * 1.001
    peaks = 4 * 989.4 / (2 * 989.4 + 2 * 312.0)  # TFLOP/s of four replicas on H100 over those of two and two on A100
    assert p.mfu == pytest.approx(h100.mfu * h100.step_time_s / p.step_time_s * peaks, rel=1e-3)
    assert {stage.capacity for stage in p.memory} == {a100.memory[0].capacity}
    assert "A100" in told(p).culprit


def test_a_slow_nic_slows_the_calls_that_cross_it() -> None:
    job = make_job(dp=2, tp=8, layers=2)
    p = predict(unequal(job, links=[{"nodes": [1], "rate": 0.5}]))
    base = predict(unequal(job, slow=[{"ranks": [0], "factor": 1.0000001}]))
    lost = p.breakdown["exposed_gradient_reduce"] - base.breakdown["exposed_gradient_reduce"]
    assert lost > 0.0
    assert p.step_time_s - base.step_time_s == pytest.approx(lost, rel=1e-3)


def test_a_flapping_link_counts_in_its_share_of_steps() -> None:
    job = make_job(dp=2, tp=8, layers=2)
    always = predict(unequal(job, links=[{"nodes": [1], "rate": 0.5}])).step_time_s
    base, share = even(job), 0.25
    p = predict(unequal(job, links=[{"nodes": [1], "rate": 0.5, "steps": share}]))
    assert p.step_time_s == pytest.approx(share * always + (1 - share) * base, rel=1e-12)
    assert sum(weight for weight, _ in told(p).steps) == pytest.approx(1.0)


def test_a_pause_of_all_at_once_costs_its_share() -> None:
    job = make_job(dp=2, layers=2, host=FREE)
    p = predict(unequal(job, pauses=[{"seconds": "100ms", "every": 10, "synchronised": True}]))
    assert p.step_time_s == pytest.approx(even(job) + 0.1 / 10, rel=1e-9)


def test_pauses_at_different_steps_cost_more_the_more_ranks_there_are() -> None:
    """MegaScale, NSDI 2024, 6.3: irregular garbage collection; one of many hosts pauses in nearly every step."""
    few, many = make_job(dp=2, layers=2), make_job(dp=8, layers=2)
    lost = []
    for job in (few, many):
        p = predict(unequal(job, pauses=[{"seconds": "100ms", "every": 10}]))
        lost.append(p.step_time_s - told(p).equal_step_time_s)
    assert 0.0 < lost[0] < lost[1] <= 0.3


def test_chance_of_some_pause_is_exact() -> None:
    job = unequal(make_job(dp=4, layers=2), pauses=[{"seconds": "1ms", "every": 5}])
    assert job.unequal is not None
    draws = draws_of(job, job.unequal)
    assert draws[0].weight == pytest.approx(0.8**4)
    assert not draws[0].pauses
    assert all(draw.pauses for draw in draws[1:])


def test_jitter_makes_a_step_longer_and_more_so_with_more_members() -> None:
    alone, four = make_job(layers=2, host=FREE), make_job(tp=4, layers=2, host=FREE)
    grown = []
    for job in (alone, four):
        p = predict(unequal(job, jitter={"sigma": 0.2}))
        grown.append(p.step_time_s / told(p).equal_step_time_s)
    assert grown[0] == pytest.approx(1.0, abs=0.02)
    assert grown[1] > 1.02


def test_slowest_of_four_passes_is_as_statistics_say() -> None:
    """One segment a pass and no tensor parallelism: replicas meet once a step; the mean of a pass stays 1."""
    p = predict(
        unequal(make_job(layers=2, host=FREE, global_batch=64), jitter={"sigma": 0.1, "of": "pass", "shape": "lognormal"}, draws=20)
    )
    assert p.step_time_s == pytest.approx(told(p).equal_step_time_s, rel=0.01)


def test_documents_shorten_attention_only() -> None:
    job = make_job(dp=2, layers=2, attention="flash", host=FREE, seq=2048)
    p = predict(unequal(job, documents={"mean": 256.0}))
    base = predict(unequal(job, slow=[{"ranks": [0], "factor": 1.0000001}]))
    assert p.breakdown["attention"] < base.breakdown["attention"]
    assert p.breakdown["matmul"] == pytest.approx(base.breakdown["matmul"], rel=1e-6)


def test_equal_documents_leave_their_share_of_attention() -> None:
    """Four documents of a quarter each: 4 (1/4)^2 = 1/4 of the work; documents as long as the sequence leave all of it."""
    rng = np.random.default_rng(0)
    assert packed_work(Documents(mean=256.0, spread=0.0), 1024, (3,), rng) == pytest.approx([0.25] * 3)
    assert packed_work(Documents(mean=1e6, spread=0.0), 1024, (2, 2), rng).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_replicas_that_exchange_tokens_go_at_one_pace() -> None:
    p = predict(unequal(JOBS["experts"], slow=[{"ranks": [0], "factor": 1.3}]))
    assert sorted(c.replicas for c in told(p).classes) == [(0, 1), (2, 3)]


def test_expert_load_over_ranks_costs_time() -> None:
    p = predict(unequal(JOBS["experts"], experts={"excess": 0.5}))
    assert p.step_time_s > told(p).equal_step_time_s


def test_a_spread_of_many_gpus_keeps_few_groups() -> None:
    job = make_job(dp=64, layers=2, global_batch=64)
    p = predict(unequal(job, spread=0.02, unfold=8))
    assert len(told(p).classes) <= 8
    assert sorted(r for c in told(p).classes for r in c.replicas) == list(range(64))
    wide = predict(unequal(job, spread=0.02, unfold=64))
    assert p.step_time_s == pytest.approx(wide.step_time_s, rel=2e-3)


def test_the_critical_path_names_the_replicas() -> None:
    p = predict(unequal(JOBS["pipeline"], slow=[{"replicas": [1], "factor": 1.5}]))
    assert sum(float(str(hop["seconds"])) for hop in p.critical_path) == pytest.approx(p.step_time_s, rel=1e-9)
    assert {hop["stage"] for hop in p.critical_path} <= {0, 1}
    assert any(hop["replicas"] == "replica 1" for hop in p.critical_path)


@pytest.mark.parametrize("network", ["flow", "packet"])
def test_a_slow_nic_over_an_engine(network: str) -> None:
    job = make_job(dp=2, tp=8, layers=1, vocab=1024)
    closed = predict(unequal(job, links=[{"nodes": [1], "rate": 0.5}]))
    live = predict(unequal(job, links=[{"nodes": [1], "rate": 0.5}]), network)
    assert live.step_time_s == pytest.approx(closed.step_time_s, rel=0.06)  # a call that does not fill its link loses less
    assert told(live).equal_step_time_s < live.step_time_s
    assert "NICs of node 1 at 50%" in told(live).culprit
    slower = predict(unequal(job, links=[{"nodes": [1], "rate": 0.1}]), network)
    assert slower.step_time_s > live.step_time_s
    assert slower.traffic is not None
    pipeline = unequal(JOBS["pipeline"], slow=[{"replicas": [1], "factor": 1.5}])
    assert predict(pipeline, network).step_time_s == pytest.approx(predict(pipeline).step_time_s, rel=0.03)


def test_assumptions_speak_of_the_census_only_where_it_counts() -> None:
    job = make_job(dp=2)
    census = "of nodes run 10% slow"
    for fields, said in (({"slow": [{"ranks": [0], "factor": 2.0}]}, False), ({"jitter": {"sigma": 0.1}}, True)):
        p = predict(check(job.model_copy(update={"unequal": Unequal.model_validate(fields)})))
        assert any(census in note for note in p.assumptions) is said
        assert ("slowest_gpu" in p.breakdown) is said


def test_a_job_that_says_so_is_read_back() -> None:
    job = load_job(
        {
            "base": "gpt3-175b-64",
            "unequal": {"mixed": [{"stages": [1], "gpu": "h100-sxm-80gb"}], "pauses": [{"seconds": "20ms", "every": 50}]},
        }
    )
    assert load_job(tomllib.loads(dump_job(job))) == job
    assert load_job({"base": "gpt3-175b-64"}, ["unequal.spread=0.01", "unequal=none"]).unequal is None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "nothing that differs"),
        ({"slow": [{"factor": 1.2}]}, "Say which ranks differ"),
        ({"slow": [{"nodes": [9], "factor": 1.2}]}, "the job has 2 nodes"),
        ({"slow": [{"nodes": [0], "ranks": [15], "factor": 1.2}]}, "have a rank in common"),
        ({"slow": [{"nodes": [0]}]}, "a factor above 1"),
        ({"links": [{"nodes": [0], "rate": 1.0}]}, "a rate below 1"),
        ({"mixed": [{"nodes": [0]}]}, "one of gpu, node"),
        ({"experts": {"excess": 0.2}}, "a model with experts"),
        ({"documents": {"mean": 100.0}}, 'runtime.attention = "flash"'),
        ({"batches": [{"replicas": [0], "micro_batches": 9}]}, "micro batches in all"),
    ],
)
def test_contradictions_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        predict(unequal(make_job(dp=2, tp=8, layers=2), **fields))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"slow": [{"nodes": [0], "factor": 0.5}]}, "at least 1"),
        ({"slo": []}, "Did you mean 'slow'"),
        ({"mixed": [{"nodes": [0], "gpu": "h1000"}]}, r"unequal.mixed\[0\].gpu"),
        ({"jitter": {"sigma": 2.0}}, "below 1"),
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        load_job({"base": "gpt3-175b-64", "unequal": fields})


def test_mixed_gpus_need_the_precision() -> None:
    with pytest.raises(PlanError, match=r"unequal\.mixed\[0\]"):
        check(
            load_job(
                {
                    "base": "llama2-70b-64xh100",
                    "runtime": {"precision": "fp8"},
                    "unequal": {"mixed": [{"replicas": [0], "gpu": "a100-sxm-80gb"}]},
                }
            )
        )


def test_the_report_says_who_waits_for_whom() -> None:
    job = make_job(dp=2, pp=2, layers=4, global_batch=16, host=FREE)
    p = predict(unequal(job, slow=[{"replicas": [1], "stages": [1], "factor": 1.5}]))
    assert "replica 1 (stage 1: 50.0% slower)" in unequal_sentence(told(p), p.step_time_s)
    text = page(prediction_sheet(p))
    assert "Ranks that differ" in text
    assert "replica 1, stage 1: " in text
    shown = Console(width=120, record=True, file=StringIO())
    print_sheet(prediction_sheet(p), shown)
    assert "waiting for slower ranks" in shown.export_text()
    plain = to_json(p)
    assert plain["unequal"]["class_of_replica"] == [0, 1]
    assert plain["unequal"]["classes"][1]["slow"] == [1.0, 1.5]
    assert "unequal" not in to_json(predict(JOBS["pipeline"]))
