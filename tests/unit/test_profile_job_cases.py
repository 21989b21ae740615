"""The kernels of one job: its own shapes are there, classes take turns, the small ones come first."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import UnknownName
from windtunnel.cli import main
from windtunnel.profile.case import of_job
from windtunnel.profile.job_cases import job_plan
from windtunnel.spec import load_job

JOB = Path(__file__).parents[2] / "examples" / "jobs" / "tiny-llama.toml"


def test_every_class_of_the_job_in_turn() -> None:
    cases = job_plan(of_job(load_job(JOB)), cuda=False)
    first = {case.name for case in cases[:10]}
    assert first - {"attention_qkv", "attention_proj"} == {
        "sdpa",
        "rms_norm",
        "swiglu",
        "rope",
        "residual_add",
        "cross_entropy",
        "embedding",
        "adamw_fused",
        "grad_norm",
    }
    sizes = [case.flops for case in cases if case.op == "gemm"]
    assert sizes == sorted(sizes, key=lambda size: size or 0.0) and len({case.key for case in cases}) == len(cases)
    # 2 x 256 tokens of hidden 256: gate and up together 1408 wide, keys and values of 4 heads of 32 beside 8 of queries
    products = {(case.phase, case.m, case.n, case.k) for case in cases if case.op == "gemm"}
    for m, n, k in ((512, 1408, 256), (512, 256, 704), (512, 512, 256), (512, 256, 256), (512, 4096, 256)):
        assert {("forward", m, n, k), ("dgrad", m, k, n), ("wgrad", n, k, m)} <= products
    assert {case.m for case in cases if case.op == "gemm" and case.phase == "forward"} == {128, 256, 512, 1024}
    assert {case.dtype for case in cases} == {"fp32"}
    core = {(case.batch, case.m) for case in cases if case.op == "attention"}
    assert (16, 256) in core and (16, 64) in core and (16, 512) in core


def test_a_job_in_fewer_bits_on_a_gpu() -> None:
    cases = job_plan(of_job(load_job("llama3-8b-8xh100")), cuda=True, products="fp8")
    formats = {(case.name, case.dtype) for case in cases if case.op == "gemm"}
    assert ("mlp_up_proj", "fp8") in formats and ("lm_head", "bf16") in formats
    assert {"sdpa_flash", "sdpa_cudnn", "add_one", "cast_bf16_fp32"} <= {case.name for case in cases}
    with pytest.raises(UnknownName):
        job_plan(of_job(load_job(JOB)), False, classes=("gem",))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((str(JOB), "--models", "llama3-8b"), "--models"),
        ((str(JOB), "--tokens", "512"), "--tokens"),
        ((str(JOB), "--seq", "512"), "--seq"),
        (("--model", "llama3.2-1b"), "--seq"),
    ],
)
def test_a_job_says_what_is_measured(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "sweep", *words, "--dry-run"]) == 2
    assert said in capsys.readouterr().err


def test_dry_run_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "sweep", str(JOB), "--dry-run", "--budget", "60s", "--device", "cpu"]) == 0
    assert "cross_entropy" in capsys.readouterr().out
