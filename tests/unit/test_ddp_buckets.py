"""What fills a bucket of gradients, and what a product's parts cost to copy: worked out by hand."""

from __future__ import annotations

import pytest

from windtunnel.predict import predict
from windtunnel.spec import Job, load_job
from windtunnel.workload import Kind, build
from windtunnel.workload.identity import Role

SETTINGS = ("plan.tp=1", "plan.pp=1", "plan.sharding=none", "plan.recompute=full", "runtime.overlap_grad_reduce=true")


def reductions(job: Job) -> list[tuple[float, int]]:
    """(bytes, number) of the gradients' calls, largest first."""
    calls = [row for row in predict(job).collectives if row["op"] == "all_reduce" and row["axis"] in ("shard", "dp")]
    return sorted(((float(row["bytes"]), int(row["count"])) for row in calls), reverse=True)


def test_a_bucket_closes_with_the_tensor_that_fills_it() -> None:
    """Llama 3 8B in fp32: gate and up 2 x 14336 x 4096 are 470 MB, down 235 MB, projection 67 MB, qkv 6144 x 4096 are 101 MB.
    Backward at 100 MB a bucket: down; gate and up; projection with the norm between; qkv with what is left."""
    job = load_job("llama3-8b-8xh100", [*SETTINGS, "runtime.bucket=100MB", "runtime.bucket_calls=tensor"])
    norm = 4.0 * 4096
    layer = [4.0 * 2 * 14336 * 4096, 4.0 * 14336 * 4096, 4.0 * (4096 + 6144) * 4096 + norm]
    found = dict(reductions(job))
    assert found[layer[0]] == job.model.layers and found[layer[1]] == job.model.layers
    assert sum(size * times for size, times in found.items()) == pytest.approx(
        sum(size * times for size, times in reductions(load_job("llama3-8b-8xh100", SETTINGS)))
    )


def test_smaller_calls_take_longer_in_all() -> None:
    exposed = ("runtime.bucket=25MB", "cluster=h100-ib", "cluster.gpus=64", "plan.global_batch=64")
    blocks = load_job("llama3-8b-8xh100", [*SETTINGS, *exposed])
    tensors = load_job("llama3-8b-8xh100", [*SETTINGS, *exposed, "runtime.bucket_calls=tensor"])
    assert predict(tensors).step_time_s >= predict(blocks).step_time_s


def test_copies_of_a_products_parts() -> None:
    """8 key/value heads of 32: of 48 heads' widths 16 are keys and values. Forward 48 + 2 x 16, backward 2 x 48 + 16, each read and
    written in two bytes."""
    job = load_job("llama3-8b-8xh100", [*SETTINGS, "runtime.split_copies=true", "plan.micro_batch=1"])
    ops = build(job).ops
    rows = [at for at in range(len(ops)) if ops.role[at] == Role.QKV_COPIES]
    head = 2 * 2.0 * job.plan.seq * 128
    forward, backward = min(float(ops.bytes[at]) for at in rows), max(float(ops.bytes[at]) for at in rows)
    assert forward == pytest.approx(80 * head) and backward == pytest.approx(112 * head)
    assert all(ops.kind[at] == Kind.ELEMENTWISE and ops.launches[at] == 3 for at in rows)
