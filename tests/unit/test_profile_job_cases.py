"""The kernels of one job: its own shapes are there and come first, classes take turns; mixtures and hybrids have what they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import UnknownName
from windtunnel.cli import main
from windtunnel.profile.case import of_job
from windtunnel.profile.job_cases import job_plan
from windtunnel.profile.plan_slice import FEW, PlanSlice, class_of, kernels_of
from windtunnel.spec import load_job
from windtunnel.workload import Kind, build
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import Phase

JOB = Path(__file__).parents[2] / "examples" / "jobs" / "tiny-llama.toml"


def test_every_class_of_the_job_in_turn() -> None:
    cases = job_plan(of_job(load_job(JOB)), cuda=False)
    first = {case.name for case in cases[:11]}
    assert first - {"mlp_up_proj"} == {
        "sdpa",
        "rms_norm",
        "swiglu",
        "rope",
        "residual_add",
        "cross_entropy",
        "embedding",
        "adamw_fused",
        "grad_norm",
        "device_copy",
    }
    tokens = [case.k if case.phase == "wgrad" else case.m for case in cases if case.op == "gemm"]
    assert tokens == sorted(tokens, key=(512, 256, 1024, 128).index) and len({case.key for case in cases}) == len(cases)
    # 2 x 256 tokens of hidden 256: gate and up together 1408 wide, keys and values of 4 heads of 32 beside 8 of queries
    products = {(case.phase, case.m, case.n, case.k) for case in cases if case.op == "gemm"}
    for m, n, k in ((512, 1408, 256), (512, 256, 704), (512, 512, 256), (512, 256, 256), (512, 4096, 256)):
        assert {("forward", m, n, k), ("dgrad", m, k, n), ("wgrad", n, k, m)} <= products
    assert {case.m for case in cases if case.op == "gemm" and case.phase == "forward"} == {128, 256, 512, 1024}
    assert {case.dtype for case in cases} == {"fp32"}
    core = {(case.batch, case.m) for case in cases if case.op == "attention"}
    assert (16, 256) in core and (16, 64) in core and (16, 512) in core


MIXTURE = ("model.experts=8", "model.top_k=2", "model.expert_ffn=352")
MAMBA = ("model.ssm_heads=8", "model.ssm_head_dim=32", "model.ssm_groups=2", "model.ssm_state=16", "model.ssm_chunk=64")
DELTA = ("model.linear_heads=8", "model.linear_key_heads=4", "model.linear_key_dim=16", "model.linear_value_dim=32")
CHANNEL = (*DELTA[:1], *DELTA[2:], 'model.linear_decay="channel"')
HYBRIDS = (
    (*MAMBA, 'model.layer_pattern="M-M*-"', "model.layers=5"),
    (*DELTA, 'model.mixer_pattern="L3A"'),
    (*CHANNEL, 'model.mixer_pattern="L3A"'),
)
STAGES = {
    Role.SHORT_CONVOLUTION: "short_convolution", Role.QUERY_KEY_NORM: "query_key_norm", Role.DECAY: "decay",
    Role.GATED_NORM: "gated_norm",
}  # fmt: skip
"""Rows of recurrent mixers between products, beside the scan."""


@pytest.mark.parametrize("sets", [(), MIXTURE, *HYBRIDS])
def test_the_kernels_are_those_of_the_graph(sets: tuple[str, ...]) -> None:
    """Every product and every scan of the job's graph is a case, of as many bytes."""
    job = load_job(JOB, [*sets, "runtime.fused_wgrad=false"])
    cases = job_plan(of_job(job), cuda=False)
    ops = build(job).ops
    planned = {(case.op, case.batch or 1, case.m, case.n, case.k) for case in cases}
    names = {Kind.GEMM: "gemm", Kind.GROUPED_GEMM: "grouped_gemm", Kind.SCAN: "scan"}
    rows = [row for row in range(len(ops.names)) if Kind(int(ops.kind[row])) in names]
    for row in rows:
        op, batch, m, n, k = names[Kind(int(ops.kind[row]))], *(int(getattr(ops, name)[row]) for name in ("batch", "m", "n", "k"))
        assert (op, batch, m, n, k) in planned, ops.names[row]
        if op == "scan":
            phase = "forward" if ops.phase[row] == Phase.FORWARD else "backward"
            (same,) = (case for case in cases if (case.op, case.phase, case.batch, case.m) == (op, phase, batch, m))
            assert same.bytes == pytest.approx(float(ops.bytes[row]))
    assert {"grouped_gemm", "permute"} <= {case.op for case in cases} or sets != MIXTURE
    for role, name in STAGES.items():
        moved = {float(ops.bytes[row]) for row in range(len(ops.names)) if ops.role[row] == role}
        assert moved <= {case.bytes for case in cases if case.name == name}, name
        assert bool(moved) == (sets in HYBRIDS and (sets is not HYBRIDS[0] or name in ("short_convolution", "gated_norm")))


@pytest.mark.parametrize("sets", HYBRIDS)
def test_the_first_kernels_of_a_plan_have_both_passes_of_every_stage(sets: tuple[str, ...]) -> None:
    """Each stage of a recurrent mixer has a curve of its own, however little the scan was thought to be worth; so has each pass of
    attention."""
    case = of_job(load_job(JOB, list(sets)))
    listed = kernels_of(PlanSlice("kernels", "kernels", case, 1.0, "", ("gemm", "scan"), (1.0, 0.02)), cuda=False)
    names = {kernel.name for kernel in listed if class_of(kernel) == "scan"}
    first = [(kernel.name, kernel.phase) for kernel in listed[: FEW * (1 + len(names))]]
    for name in names:
        assert {(name, "forward"), (name, "backward")} <= set(first) and sum(each == name for each, _ in first) == FEW
    few = PlanSlice("kernels", "kernels", case, 1.0, "", ("gemm", "attention"), (1.0, 0.02))
    passes = [kernel.phase for kernel in kernels_of(few, cuda=False)[: 3 * FEW] if kernel.op == "attention"]
    assert (passes.count("forward"), passes.count("backward")) == (FEW, FEW)


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
