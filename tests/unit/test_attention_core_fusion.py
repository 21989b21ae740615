"""Megatron's fused softmax runs for the shapes that its kernel takes. For others PyTorch's kernels run, at their cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.predict import predict
from windtunnel.spec import Job, load_job
from windtunnel.workload import build

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# 16 heads: 2 on a GPU with tp 8
SMALL = ["model.layers=4", "model.hidden=2048", "model.heads=16", "model.kv_heads=16", "cluster.gpus=8", "plan.pp=1", "plan.vpp=1"]
PLAIN = [*SMALL, "plan.tp=8", "plan.global_batch=8", "plan.seq=1024", "plan.dp=none", "plan.stages=none"]


def job(*changes: str) -> Job:
    return load_job("gpt3-175b-64", [*PLAIN, "runtime.attention=fused_softmax", *changes])


def softmax_launches(of: Job) -> int:
    ops = build(of).ops
    return max(int(count) for name, count in zip(ops.names, ops.launches, strict=True) if name == "softmax")


@pytest.mark.parametrize(("micro_batch", "fused"), [(1, False), (2, True), (4, True)])
def test_matrices_of_scores_come_in_fours(micro_batch: int, fused: bool) -> None:
    found = job(f"plan.micro_batch={micro_batch}")
    assert found.fuses_softmax == fused
    assert softmax_launches(found) == (1 if fused else 4)


@pytest.mark.parametrize(("seq", "fused"), [(16, False), (20, True), (1022, False), (4096, True), (8192, False)])
def test_keys_have_limits(seq: int, fused: bool) -> None:
    assert job("plan.micro_batch=2", f"plan.seq={seq}").fuses_softmax == fused


def test_a_shape_that_the_kernel_does_not_take_is_priced_as_unfused() -> None:
    fused, unfused = job("plan.micro_batch=1"), job("plan.micro_batch=1", "runtime.attention=unfused")
    assert predict(fused).step_time_s == predict(unfused).step_time_s
    assert fused.kernel_runtime.attention == "unfused" and fused.runtime.attention == "fused_softmax"
    assert job("plan.micro_batch=2").kernel_runtime.attention == "fused_softmax"


def test_the_prediction_says_so() -> None:
    told = [any("PyTorch's kernels compute the softmax" in note for note in predict(of).assumptions) for of in (
        job("plan.micro_batch=1"), job("plan.micro_batch=2"),
    )]  # fmt: skip
    assert told == [True, False]


def test_a_graph_of_kernels_has_no_heads() -> None:
    found = load_job(str(EXAMPLES / "jobs" / "dit-xl-2-64xh100.toml"), ["runtime.attention=fused_softmax"])
    assert found.kernel_runtime is found.runtime
