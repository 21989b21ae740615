"""The one list of levers: who can do what, what it costs, and that a search pulls it."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest

from windtunnel.predict import predict
from windtunnel.search import Change, advise
from windtunnel.search.api import search, set_beforehand
from windtunnel.search.levers.pricing import PricedLever, can_do, first_lever, flags_of, list_offers, price_levers
from windtunnel.search.levers.reasons import sentences
from windtunnel.search.margin import usual_margin
from windtunnel.search.outcome import outcome_of
from windtunnel.search.result import rerank
from windtunnel.spec import Job, load_job

MIXTURE = ["runtime.moe_dispatch=alltoall", "plan.recompute=none"]


def mixture(*sets: str) -> Job:
    return load_job("mixtral-8x7b-64xh100", [*MIXTURE, *sets])


def paths(job: Job) -> set[str]:
    return {path for _, change in list_offers(job) for path, _ in change.fields}


def test_megatron_is_offered_what_it_has_words_for() -> None:
    listed = paths(mixture())
    assert {"runtime.moe_dispatch"} <= listed
    assert not any(value in ("zb-h1", "interleaved-zb") for _, one in list_offers(mixture()) for _, value in one.fields)


def test_fsdp_is_never_told_to_use_a_pipeline() -> None:
    job = load_job("llama3-8b-8xh100", ["runtime.framework=fsdp", "plan.sharding=fsdp"])
    assert not {"plan.tp", "plan.pp", "plan.vpp", "runtime.overlap_tp"} & paths(job)


def test_frameworks_without_words_are_offered_all() -> None:
    job = load_job("gpt3-175b-64", ["runtime.framework=meta", "plan.vpp=1"])
    assert any(value in ("zb-h1", "interleaved-zb") for _, one in list_offers(job) for _, value in one.fields)


@pytest.mark.parametrize(
    ("cluster", "kinds"),
    [
        ("h100-ib", {"deepep", "hybridep"}),
        ("b200-ib", {"deepep", "hybridep"}),
        ("gb200-nvl72", {"hybridep"}),
        ("mi300x-roce", set()),
        ("a100-pcie", set()),
        ("dgx-1v", set()),
    ],
)
def test_dispatch_kernels_are_offered_where_they_run(cluster: str, kinds: set[str]) -> None:
    job = mixture(f"cluster={cluster}", "cluster.gpus=64")
    assert {value for _, one in list_offers(job) for path, value in one.fields if path == "runtime.moe_dispatch"} == kinds


def test_conditions_of_megatron_core() -> None:
    job = mixture("runtime.moe_a2a_overlap=true", "plan.recompute=full")
    assert not can_do(job, Change.of(runtime__moe_a2a_overlap=True))
    shared = job.model.model_copy(update={"shared_ffn": 1024})
    with_shared = mixture("runtime.moe_dispatch=deepep", "runtime.moe_shared_overlap=true").model_copy(update={"model": shared})
    assert not can_do(with_shared, Change.of(runtime__moe_shared_overlap=True))


@pytest.mark.parametrize(
    ("framework", "fields", "word"),
    [
        ("megatron-core", {"runtime.moe_shared_overlap": True}, "--moe-shared-expert-overlap"),
        ("nemo", {"runtime.moe_shared_overlap": True}, "model.moe_shared_expert_overlap=true"),
        ("nemo", {"runtime.overlap_tp": True}, "comm_overlap.tp_comm_overlap=true"),
        ("torchtitan", {"plan.schedule": "zbv"}, "--parallelism.pipeline_parallel_schedule ZBVZeroBubble"),
        ("fsdp", {"plan.sharding": "hsdp"}, "sharding_strategy = HYBRID_SHARD"),
        ("deepspeed", {"plan.sharding": "zero2"}, "zero_optimization.stage = 2"),
    ],
)
def test_levers_are_told_in_the_framework_s_words(framework: str, fields: dict[str, object], word: str) -> None:
    job = load_job("llama3-8b-8xh100", [f"runtime.framework={framework}"])
    assert flags_of(job, tuple(fields.items())) == (word,)


def test_a_price_is_the_difference_of_two_predictions() -> None:
    job = load_job("gpt3-175b-64", ["plan.recompute=full"])
    base = predict(job)
    first = first_lever(job)
    assert first is not None
    again = predict(first.change.apply(job))
    assert first.step_time_s == pytest.approx(again.step_time_s)
    assert first.gain == pytest.approx(1.0 - base.tokens_per_s / again.tokens_per_s)
    assert advise(base)[0].change == first.change == next(one for one in price_levers(base) if one.helps).change


def test_switches_that_help_are_set_beforehand_and_stated_ones_stay() -> None:
    off = ["runtime.overlap_grad_reduce=false", "runtime.overlap_param_gather=false"]
    job = load_job("llama3-8b-8xh100", ["runtime.framework=megatron-core", "plan.sharding=zero1", "plan.recompute=full", *off])
    found = set_beforehand(job, frozenset())
    assert found.get("runtime.overlap_grad_reduce") == (True,)
    assert "runtime.overlap_grad_reduce" not in set_beforehand(job, frozenset({"runtime.overlap_grad_reduce"}))


def test_no_lever_of_the_list_beats_a_winner() -> None:
    job = load_job(
        "llama3-8b-8xh100", ["runtime.framework=megatron-core", "runtime.overlap_grad_reduce=false", "plan.recompute=full"]
    )
    result = search(job, margin=usual_margin(), processes=1, explained=False)
    best = result.ranked[0]
    for one in price_levers(predict(result.job_of(best)), 0.0):
        if one.helps:
            assert not outcome_of(result.job_of(best), one.change, usual_margin()).fits, one
    assert best.outcome.fits


def test_advice_over_another_network_says_that_it_is_in_closed_form() -> None:
    base = predict(load_job("gpt3-175b-64", ["plan.recompute=full"]))
    assert " in closed form" in " ".join(sentences(replace(base, network="flow"), advise(base)))
    assert " in closed form" not in " ".join(sentences(base, advise(base)))


def test_several_machines_have_a_best_plan_each_and_others_are_found_for_top() -> None:
    jobs = [load_job("llama3-8b-8xh100", [f"cluster={name}", "cluster.gpus=8", "plan.dp=8"]) for name in ("h100-ib", "b200-ib")]
    fields = {"plan.micro_batch": (1, 2), "plan.recompute": ("none", "ops", "full")}
    result = search(jobs, fields, processes=1, top=5)
    assert len(result.ranked) >= 5
    assert [result.jobs[one.frame].cluster.id for one in result.machines] == ["b200-ib", "h100-ib"]
    assert result.where(result.ranked[0]).startswith("8 x NVIDIA B200")
    values = [one.values[0] for one in result.ranked]
    assert values == sorted(values)
    again = rerank(result, "flow", 2)
    assert again.network == "flow" and len(again.again) == 2
    assert rerank(result, "closed") is result


def test_the_margin_is_that_of_the_record() -> None:
    assert 0.02 < usual_margin() < 0.15


def test_of_equal_gains_the_first_lever_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that trains otherwise only where nothing else shortens the part."""

    def priced(batch: int, gain: float, trains_otherwise: bool = False) -> PricedLever:
        return PricedLever("a lever", Change.of(plan__micro_batch=batch), 1.0, gain, True, "host", (), trains_otherwise)

    first, second, more, other = priced(2, 0.05), priced(4, 0.05), priced(8, 0.06), priced(16, 0.5, True)
    prediction = predict(load_job("llama3-8b-8xh100"))
    module = import_module("windtunnel.search.levers.reasons")
    for levers, chosen in (((first, second), first), ((first, more), more), ((more, first), more), ((first, other), first)):
        monkeypatch.setattr(module, "price_levers", lambda *_, levers=levers, **__: levers)
        assert [one.change for one in advise(prediction) if one.part == "host"] == [chosen.change]
