"""CUDA_LAUNCH_BLOCKING=1: every launch stands before its kernel; products off 16-byte rows; ALiBi's biases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jobs import make_job

from windtunnel.base.errors import PlanError
from windtunnel.compute import estimate
from windtunnel.compute.estimate import SIMT
from windtunnel.predict import predict
from windtunnel.spec import Host, Job
from windtunnel.workload import Kind, build

HOST = Host(launch=10e-6, layer=100e-6, micro_batch=1e-3)


def test_a_blocking_host_adds_every_launch() -> None:
    """One GPU, large kernels: without it the host is hidden, with it launches, layers and passes add up."""
    fields: dict[str, Any] = {"seq": 8192, "position": "rope", "attention": "flash", "host": HOST, "global_batch": 2}
    free, blocked = predict(make_job(**fields)), predict(make_job(**fields, launch_blocking=True))
    workload = build(make_job(**fields))
    ops, runs = workload.ops, 2
    rows = [
        r
        for b, times in workload.stages[0][0].blocks
        for part in (workload.blocks[b].forward, workload.blocks[b].backward)
        for r in part
        for _ in range(times)
    ]
    launches = runs * sum(int(ops.launches[r]) for r in rows) + sum(int(ops.launches[r]) for r in workload.optimizer[0])
    blocks = 2 * runs * sum(times for _, times in workload.stages[0][0].blocks)
    host = launches * HOST.launch + blocks * HOST.layer + 2 * runs * HOST.micro_batch
    assert blocked.step_time_s == pytest.approx(free.step_time_s - free.breakdown["host"] + host, rel=1e-6)


def test_graphs_have_no_launches_to_block() -> None:
    with pytest.raises(PlanError, match="cuda_graph"):
        make_job(launch_blocking=True, launch="cuda_graph")


def core_seconds(job: Job) -> np.ndarray:
    ops = build(job).ops
    seconds = estimate(ops, job.cluster.gpu, job.runtime, {}).seconds
    return np.array(
        [
            seconds[r] / ops.flops[r]
            for r in range(len(ops))
            if ops.kind[r] == Kind.GEMM and ops.names[r].startswith("attention ") and ops.batch[r] > 1
        ]
    )


def test_unaligned_heads_leave_the_tensor_cores() -> None:
    """Heads of 68 numbers are no whole 16-byte pieces: fp32 units at 56 % of 19.5 TFLOP/s; heads of 64 and 72 are."""
    with_fp32 = make_job(hidden=1088, heads=16, ffn=4352, seq=2048, max_seq=2048)
    node = with_fp32.cluster.node
    gpu = node.gpu.model_copy(update={"peak": {**node.gpu.peak, "fp32": 19.5e12}})

    def on(job: Job) -> Job:
        cluster = job.cluster.model_copy(update={"node": node.model_copy(update={"gpu": gpu})})
        return job.model_copy(update={"cluster": cluster})

    slow = core_seconds(on(with_fp32))
    assert slow == pytest.approx(np.full(len(slow), 1.0 / (SIMT * 19.5e12)))
    for heads, hidden in ((16, 1024), (16, 1152)):
        fast = core_seconds(on(make_job(hidden=hidden, heads=heads, ffn=4 * hidden, seq=2048)))
        assert (fast < 0.5 * slow).all()


def test_alibi_writes_its_biases_and_adds_to_them() -> None:
    def rows(position: str) -> dict[str, float]:
        workload = build(make_job(position=position))
        return {workload.ops.names[r]: float(workload.ops.bytes[r]) for r in workload.blocks[1].forward}

    plain, alibi = rows("rope"), rows("alibi")
    scores = 2.0 * 16 * 1024 * 1024  # bytes: heads x queries x keys
    assert alibi["alibi biases"] == scores and "alibi biases" not in plain
    assert alibi["attention scores"] - plain["attention scores"] == scores
