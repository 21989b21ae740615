"""Does a model of the catalogue become a job on a cluster, and does the user's own word stand?"""

from __future__ import annotations

from typing import Any

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import SpecError
from windtunnel.jobs.load import load_described_job as job_of
from windtunnel.predict import predict
from windtunnel.search.api import search
from windtunnel.search.margin import usual_margin
from windtunnel.search.start import _guess
from windtunnel.spec import load_cluster, load_job, names


@examples(40)
@given(st.sampled_from(names("models")))
def test_a_model_gets_a_plan_that_fits(model: str) -> None:
    """A second each: `make fresh` draws others every day."""
    loaded = job_of(model, [], "h100-ib")
    assert loaded.job.model.name == model
    assert "the first plan that fits" in loaded.assumed[-1]


def test_what_the_user_states_stands() -> None:
    job = job_of("llama2-70b", ["plan.tp=2", "plan.pp=8", "plan.dp=4", "plan.seq=2048", "plan.global_batch=96"], "h100-ib").job
    assert (job.plan.tp, job.plan.pp, job.plan.dp, job.cluster.gpus) == (2, 8, 4, 64)
    assert (job.plan.seq, job.plan.global_batch) == (2048, 96)


def test_a_machine_that_is_too_small_still_gets_an_answer() -> None:
    loaded = job_of("llama2-70b", ["cluster.gpus=8"], "h100-ib")
    assert loaded.job.cluster.gpus == 8 and "no plan that fits" in loaded.assumed[-1]


def test_the_most_divided_plan_is_not_needed_where_less_fits() -> None:
    """8.03 billion parameters x 18 B are 145 GB of state: two of eight GPUs would hold it, so no model parallelism is needed."""
    plan = job_of("llama3.1-8b", ["plan.seq=2048"], "h100-ib").job.plan
    assert (plan.tp, plan.pp) == (1, 1)


def test_a_wrong_field_is_refused_before_a_plan_is_looked_for() -> None:
    with pytest.raises(SpecError, match="Did you mean 'tp'"):
        job_of("llama2-70b", ["plan.tq=4"], "h100-ib")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("llama2", "Did you mean 'llama2-"),
        ("nofile.json", "There is no such file"),
        ("examples", "It is a directory"),
        ("/dev/null", "device"),
    ],
)
def test_a_wrong_job_gets_its_own_reason(typed: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        job_of(typed, [], "h100-ib")


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        (["plan.tp=8"], {"tp": 8, "pp": 4, "dp": 2, "gpus": 64}),
        (["cluster.gpus=128"], {"tp": 4, "pp": 4, "dp": 8, "gpus": 128}),
        (["plan.dp=8"], {"tp": 4, "pp": 4, "dp": 8, "gpus": 128}),
        (["cluster=b200-ib"], {"tp": 4, "pp": 4, "dp": 4, "gpus": 64}),
        (["plan.pp=8"], {"tp": 4, "pp": 8, "dp": 2, "gpus": 64, "vpp": 10}),
        (["plan.pp=1"], {"tp": 4, "pp": 1, "dp": 16, "gpus": 64, "vpp": 1}),
    ],
)
def test_pinned_degrees_give_way(overrides: list[str], wanted: dict[str, int]) -> None:
    changes: list[str] = []
    job = load_job("llama2-70b-64xh100", overrides, changes)
    got = {"tp": job.plan.tp, "pp": job.plan.pp, "dp": job.dp, "gpus": job.cluster.gpus, "vpp": job.plan.vpp}
    assert {key: got[key] for key in wanted} == wanted
    assert bool(changes) == (overrides != ["cluster=b200-ib"])


@pytest.mark.parametrize(
    ("override", "instead"),
    [
        ("tp=8", "'plan.tp'"),
        ("plan.tensor_parallel=8", "'plan.tp'"),
        ("fabric.topology=rail", "'cluster.fabric'"),
        ("runtime.seq_length=8", "'plan.seq'"),
    ],
)
def test_a_field_in_the_wrong_place_is_pointed_to_its_own(override: str, instead: str) -> None:
    with pytest.raises(SpecError, match=instead.replace(".", r"\.")):
        load_job("llama2-70b-64xh100", [override])


@pytest.mark.parametrize(
    ("plan", "experts", "seconds"),
    [
        ({"tp": 2, "pp": 4, "sharding": "zero1", "recompute": "none"}, False, (1.0 + 0.1 + 0.1) * (1.0 + 3 / 12)),
        ({"tp": 2, "pp": 4, "vpp": 2, "sharding": "zero1", "recompute": "none"}, False, (1.0 + 0.1 + 0.1) * (1.0 + 3 / 24)),
        ({"tp": 8, "pp": 1, "cp": 2, "sharding": "none", "recompute": "full"}, False, 1.33 * (1.0 + 0.3 + 0.04 + 0.3)),  # 16 GPUs
        ({"tp": 8, "pp": 1, "ep": 8, "sharding": "none", "recompute": "selective"}, True, 1.02 * (1.0 + 0.3)),  # both in a node
        ({"tp": 1, "pp": 1, "ep": 16, "sharding": "fsdp", "recompute": "none"}, True, 1.0 + 0.3 * 0.5 + 0.05),  # half of the tokens
        ({"tp": 1, "pp": 1, "sharding": "fsdp", "recompute": "none"}, True, 1.0 + 0.05 + 0.4),  # all experts are gathered
        ({"tp": 1, "pp": 1, "sharding": "hsdp", "recompute": "none"}, False, 1.0 + 0.05),
        (
            {"tp": 1, "pp": 1, "sharding": "none", "recompute": "selective", "recompute_modules": ["layernorm", "moe_act"]},
            True,
            1.05,
        ),
    ],
)
def test_the_rule_of_thumb_that_orders_first_plans(plan: dict[str, Any], experts: bool, seconds: float) -> None:
    """On nodes of eight: a tenth for a doubling of tp, 0.04 of cp, 0.05 of pp; more where ranks leave a node; times the bubble."""
    assert _guess({**plan, "micro_batch": 2}, load_cluster("h100-ib"), experts, 12) == (pytest.approx(seconds), 2)


@pytest.mark.parametrize(
    ("name", "cluster", "gpus", "most"),
    [("qwen3-30b-a3b", "h100-ib", 64, 0.05), ("mixtral-8x7b", "h100-ib", 64, 0.1), ("qwen3-30b-a3b", "h100-ib", 8, 0.05)],
)
def test_the_first_plan_of_a_mixture_is_near_the_best_without_other_switches(
    name: str, cluster: str, gpus: int, most: float
) -> None:
    """Against the search over the same degrees, recompute and micro batches, with tokens dispatched as in the first plan and with
    memory to spare."""
    started = job_of(name, [f"cluster.gpus={gpus}"], cluster).job
    plan = started.plan
    batches = {"plan.global_batch": (plan.global_batch,), "plan.vpp": (1, 2, 4), "plan.pp": (1, 2, 4), "plan.tp": (1, 2, 4, 8)}
    found = search(
        started,
        {**batches, "plan.ep": (1, 2, 4, 8, 16), "plan.micro_batch": (1, 2, 4), "plan.recompute": ("none", "full")},
        margin=usual_margin(),
    )
    assert predict(started).step_time_s < (1.0 + most) * found.best.outcome.step_time_s


@pytest.mark.parametrize(
    ("cluster", "overrides", "dispatch"),
    [
        ("h100-ib", [], "deepep"),
        ("h100-ib", ["runtime.moe_dispatch=alltoall"], "alltoall"),
        ("h100-ib", ["plan.ep=1", "cluster.gpus=16"], "alltoall"),
        ("mi300x-roce", [], "alltoall"),
        ("a100-pcie", [], "alltoall"),
        ("h100-ib", ["runtime.framework=torchtitan"], "alltoall"),
    ],
)
def test_tokens_go_to_experts_by_kernels_that_the_machine_and_the_framework_have(
    cluster: str, overrides: list[str], dispatch: str
) -> None:
    loaded = job_of("qwen3-30b-a3b", overrides, cluster)
    assert loaded.job.runtime.moe_dispatch == dispatch
    assert ("runtime.moe_dispatch" in loaded.assumed[-1]) == (dispatch != "alltoall")


def test_stronger_recompute_is_tried_with_larger_micro_batches() -> None:
    """A host that is the limit makes a step of large micro batches the fastest, though all is computed again."""
    plan = job_of("qwen3-30b-a3b", ["cluster.gpus=8"], "h100-ib").job.plan
    assert (plan.recompute, plan.micro_batch) == ("full", 4)
