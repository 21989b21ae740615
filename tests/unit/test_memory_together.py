"""Does a job that no single change makes fit get plans that do, and the reason why it does not?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jobs import make_job

from windtunnel.cli import main
from windtunnel.memory import memory_of, why
from windtunnel.predict import predict
from windtunnel.search import Fix, fixes
from windtunnel.search.levers.fixes import _guess, _micro_batch, _sequence_parallel, _sharding
from windtunnel.spec import check, load_job
from windtunnel.workload import build

MOE = {
    "name": "qwen3",
    "model": "qwen3-235b-a22b",
    "plan": {"global_batch": 512, "seq": 4096},
    "runtime": {"framework": "megatron-core"},
    "cluster": {"base": "h100-ib", "gpus": 256},
}


def typed(fix: Fix) -> list[str]:
    return list(fix.change.sets)


@pytest.mark.parametrize(
    ("job", "overrides"),
    [(MOE, []), ("llama3-8b-8xh100", ["plan.seq=32768"]), ("llama2-70b-64xh100", ["plan.micro_batch=4"])],
    ids=["experts", "long", "wide"],
)
def test_every_fix_fits_as_typed_and_the_cheapest_is_first(job: str | dict[str, Any], overrides: list[str]) -> None:
    found = fixes(check(load_job(job, overrides)))
    assert found and [fix.price for fix in found] == pytest.approx(sorted(fix.price for fix in found), abs=1e-3)
    for fix in found:
        p = predict(check(load_job(job, [*overrides, *typed(fix)])))
        assert p.fits and p.step_time_s == pytest.approx(fix.step_time_s, rel=1e-12)
        assert -max(stage.missing for stage in p.memory) == pytest.approx(fix.spare)


def test_context_parallelism_is_found_for_a_long_sequence() -> None:
    """8B at 32k tokens on 8 H100: cp needs less time than tp, whose calls lie in every layer."""
    found = {tuple(typed(fix)): fix for fix in fixes(check(load_job("llama3-8b-8xh100", ["plan.seq=32768"])))}
    by_cp, by_tp = ([fix.price for sets, fix in found.items() if sets[0].startswith(f"plan.{axis}=")] for axis in ("cp", "tp"))
    assert by_cp and all(min(by_cp) < price for price in by_tp)


def test_a_chunked_loss_is_enough_where_logits_are_the_largest_part() -> None:
    """131,072 tokens x 128,256 words of logits in fp32 are 67 GB: without them the job fits, at next to no price."""
    sets = ["plan.seq=131072", "cluster=b200-ib", "plan.cp=2", "runtime.framework=fsdp"]  # torchtitan has no such loss
    job = check(load_job("llama3-8b-8xh100", sets))
    chunked = [fix for fix in fixes(job) if "runtime.cross_entropy=chunked" in typed(fix)]
    assert chunked and chunked[0].price < 0.03


def test_where_nothing_fits_nothing_is_told() -> None:
    assert fixes(check(load_job(MOE, ["cluster.gpus=8", "plan.global_batch=64"]))) == ()


def test_the_reason_names_experts_and_the_optimizer() -> None:
    job = check(load_job(MOE))
    first, *_ = why(build(job), memory_of(job, build(job)))
    assert "97% of them experts'" in first and "plan.ep = 1 leaves 128 of 128" in first
    assert "plan.sharding = none keeps the optimizer state on all 256" in first


def test_the_reason_names_activations_in_flight() -> None:
    job = make_job(
        gpus=8, layers=48, hidden=4096, heads=32, ffn=16384, seq=8192, max_seq=8192, pp=8, global_batch=64, micro_batch=8
    )
    first, *_ = why(build(job), memory_of(job, build(job)))
    assert first.startswith("Activations take") and "8 micro batches of 8 in flight" in first and "recompute = none" in first


def test_no_reason_where_it_fits() -> None:
    job = make_job()
    assert why(build(job), memory_of(job, build(job))) == ()


def test_the_command_says_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "memory.json"
    on = ["--on", "h100-ib", "--set", "cluster.gpus=512", "--set", "plan.global_batch=1024", "--set", "plan.seq=4096"]
    config = Path(__file__).resolve().parents[2] / "examples" / "inputs" / "qwen3-30b-a3b" / "config.json"
    plan = ["plan.micro_batch=1", "plan.tp=1", "plan.pp=1", "plan.ep=1", "plan.sharding=none", "plan.recompute=none"]
    stated = [word for text in plan for word in ("--set", text)]
    assert main(["memory", str(config), *on, *stated, "--json", str(file)]) == 0
    answer = json.loads(file.read_text(encoding="utf-8"))
    assert not answer["fits"] and answer["why"] and (answer["advice"] or answer["together"])
    told = capsys.readouterr().out
    assert "DOES NOT FIT" in told and "experts'" in told


@pytest.mark.parametrize(
    ("job", "etp", "degrees", "seconds"),
    [
        ("llama3-8b-8xh100", 1, (2, 1, 1, 1), 1.1),  # a tenth for a doubling of tp
        ("llama3-8b-8xh100", 1, (1, 2, 4, 1), (1 + 3 * 1 / 8) * (1 + 0.04 + 2 * 0.05)),  # 3 of 8 micro batches are bubble
        ("mixtral-8x7b-64xh100", 1, (4, 2, 2, 16), (1 + 4 / 256) * (1 + 0.2 + 0.04 + 0.05 + 0.15)),  # 16 expert ranks on nodes of 8
        ("mixtral-8x7b-64xh100", 1, (8, 2, 2, 8), (1 + 2 / 256) * (1 + 0.3 + 0.04 + 0.05 + 0.3)),  # 16 GPUs share a layer
        ("mixtral-8x7b-64xh100", 2, (2, 1, 4, 8), (1 + 3 * 8 / 256) * (1 + 0.1 + 0.1 + 0.15)),  # 8 expert ranks of two GPUs
    ],
)
def test_the_rule_of_thumb_that_orders_layouts(job: str, etp: int, degrees: tuple[int, int, int, int], seconds: float) -> None:
    """A bubble of pp - 1 of the micro batches; calls inside of layers, and more where they leave a node of 8."""
    known = load_job(job)
    known = known.model_copy(update={"plan": known.plan.model_copy(update={"etp": etp})})
    assert _guess(known, *degrees) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("sets", "parallel", "sharding", "micro"),
    [
        (["plan.tp=1", "plan.sharding=none", "plan.micro_batch=8"], [], ["zero1", "zero2", "zero3"], [4, 2, 1]),
        (["plan.tp=2", "plan.sharding=zero1", "plan.micro_batch=2"], [True], ["zero2", "zero3"], [1]),
        (["plan.tp=4", "plan.sequence_parallel=true", "plan.sharding=zero2", "plan.micro_batch=1"], [], ["zero3"], []),
        (["plan.tp=8", "plan.sharding=none", "plan.micro_batch=1"], [True], [], []),  # nobody to share with
    ],
)
def test_single_changes_that_save_memory(sets: list[str], parallel: list[bool], sharding: list[str], micro: list[int]) -> None:
    job = load_job("llama3-8b-8xh100", ["plan.global_batch=64", *sets])
    found = [[next(iter(change.fields))[1] for change in family(job)] for family in (_sequence_parallel, _sharding, _micro_batch)]
    assert found == [parallel, sharding, micro]
