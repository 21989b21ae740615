"""Does a job that no single change makes fit get plans that do, and the reason why it does not?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs import make_job

from windtunnel.cli import main
from windtunnel.memory import memory_of, shortfall, together, why
from windtunnel.predict import predict
from windtunnel.spec import Job, check, load_job
from windtunnel.workload import build

MOE = {
    "name": "qwen3",
    "model": "qwen3-235b-a22b",
    "plan": {"global_batch": 512, "seq": 4096},
    "runtime": {"framework": "megatron-core"},
    "cluster": {"base": "h100-ib", "gpus": 256},
}


def seconds(job: Job) -> float:
    return predict(job).step_time_s


def test_every_plan_told_fits_as_typed_and_the_fastest_is_first() -> None:
    job = check(load_job(MOE))
    memory = memory_of(job, build(job))
    assert shortfall(job, memory)[1] == (), "no single change is enough"
    found = together(job, seconds)
    assert found and [entry.seconds for entry in found] == sorted(entry.seconds or 0.0 for entry in found)
    for entry in found:
        p = predict(check(load_job(MOE, [f"{path}={value}" for path, value in entry.changes])))
        assert p.fits and p.step_time_s == entry.seconds
        assert -max(stage.missing for stage in p.memory) == pytest.approx(entry.spare)


def test_micro_batch_and_runtime_stay() -> None:
    for entry in together(check(load_job(MOE)), seconds):
        assert {path for path, _ in entry.changes} <= {
            f"plan.{name}" for name in ("tp", "pp", "ep", "dp", "sequence_parallel", "sharding", "stages", "recompute")
        }


def test_where_nothing_fits_nothing_is_told() -> None:
    assert together(check(load_job(MOE, ["cluster.gpus=8", "plan.global_batch=64"])), seconds) == ()


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
    assert main(["memory", str(config), *on, "--set", "plan.micro_batch=1", "--json", str(file)]) == 0
    answer = json.loads(file.read_text(encoding="utf-8"))
    assert not answer["fits"] and answer["why"] and answer["advice"] or answer["together"]
    told = capsys.readouterr().out
    assert "DOES NOT FIT" in told and "experts'" in told
