"""Ways of computing the loss: what they multiply, send and keep, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import make_job

from windtunnel.base.errors import PlanError
from windtunnel.memory import memory_of
from windtunnel.memory.lifetimes import lifetimes
from windtunnel.predict import predict
from windtunnel.spec.model import Lora
from windtunnel.workload import Comm, Kind, Phase, Workload, build
from windtunnel.workload.blocks.loss import chunk
from windtunnel.workload.build import HEAD

SMALL: dict[str, Any] = {
    "layers": 2,
    "hidden": 512,
    "heads": 4,
    "vocab": 51200,
    "seq": 2048,
    "tied_embeddings": False,
    "pad_vocab": 1,
}
WAYS = ("vocab_parallel", "chunked", "linear")
PRODUCT = 2.0 * 2048 * 512 * 51200


def products(workload: Workload, rows: range) -> float:
    ops = workload.ops
    return float(sum(ops.flops[r] for r in rows if ops.kind[r] == Kind.GEMM))


@pytest.mark.parametrize(("way", "ahead", "behind"), [("vocab_parallel", 1, 2), ("chunked", 3, 0), ("linear", 1, 3)])
def test_products_of_the_loss(way: str, ahead: int, behind: int) -> None:
    workload = build(make_job(**SMALL, cross_entropy=way))
    head = workload.blocks[HEAD]
    assert (products(workload, head.forward), products(workload, head.backward)) == (ahead * PRODUCT, behind * PRODUCT)


def test_what_is_kept_from_forward_to_backward() -> None:
    norm = inputs = 2048 * 512 * 2.0
    logits = 2048 * 51200
    kept = {way: build(make_job(**SMALL, cross_entropy=way)).blocks[HEAD].saved for way in WAYS}
    assert kept["vocab_parallel"] == norm + inputs + logits * (2 + 4)
    assert kept["chunked"] == norm + inputs + 51200 * 512 * 2  # gradients of the input and of the weights
    assert kept["linear"] == norm + inputs + 4 * 2048


def test_chunks_are_those_of_liger() -> None:
    assert chunk(2048, 512, 51200) == 32  # 2048 / 100, rounded up to a power of two
    ops = build(make_job(**SMALL, cross_entropy="chunked")).ops
    row = ops.names.index("logits of a chunk")
    assert (ops.m[row], ops.launches[row], ops.flops[row]) == (32, 64, PRODUCT)


def test_memory_is_least_where_logits_never_exist() -> None:
    peaks = {}
    for way in WAYS:
        workload = build(make_job(**SMALL, cross_entropy=way))
        stage = memory_of(workload.job, workload)[0]
        peaks[way] = stage.allocated
        assert stage.logits == (2048 * 51200 * 6.0 if way == "vocab_parallel" else 0.0)
        assert sum(event.size for event in lifetimes(workload, 0)) > 0
    assert peaks["linear"] < peaks["chunked"] < peaks["vocab_parallel"]


def test_linear_trades_a_product_for_memory_and_counts_as_recomputed() -> None:
    whole, linear = (predict(make_job(**SMALL, cross_entropy=way)) for way in ("vocab_parallel", "linear"))
    assert linear.breakdown["recompute"] > 0 and linear.hfu / linear.mfu > whole.hfu / whole.mfu == 1.0
    assert linear.breakdown["memory_bound"] < whole.breakdown["memory_bound"]


def test_gathered_logits_are_whole_on_every_rank() -> None:
    workload = build(make_job(**SMALL, tp=2, cross_entropy="gathered"))
    ops, head = workload.ops, workload.blocks[HEAD]
    calls = [(Comm(int(ops.comm[r])), float(ops.bytes[r])) for r in head.forward if ops.kind[r] == Kind.COMM]
    assert calls == [(Comm.ALL_GATHER, 2048 * 51200 * 2.0)]
    cut = build(make_job(**SMALL, tp=2)).blocks[HEAD]
    assert head.saved - cut.saved == 2048 * 51200 / 2 * (2 + 4)


@pytest.mark.parametrize("way", WAYS)
def test_a_frozen_head_has_no_gradient_of_weights(way: str) -> None:
    workload = build(make_job(**SMALL, cross_entropy=way, lora=Lora(rank=4, targets=("linear_qkv",))))
    ops, head = workload.ops, workload.blocks[HEAD]
    assert not any("logits wgrad" in ops.names[r] for r in (*head.forward, *head.backward))
    assert head.parameters == 0 and head.frozen == 51200 * 512 + 2 * 512
    assert not any(ops.phase[r] == Phase.WGRAD for r in head.backward)


@pytest.mark.parametrize(("way", "tp"), [("chunked", 2), ("gathered", 1)])
def test_ways_that_exclude_a_plan_say_so(way: str, tp: int) -> None:
    with pytest.raises(PlanError, match="runtime.cross_entropy"):
        make_job(**SMALL, cross_entropy=way, tp=tp)


def test_a_fused_loss_may_read_16_bit_logits() -> None:
    """Kernels of flash-attn and Transformer Engine keep no copy: 4 bytes a logit less."""
    cast, narrow = (build(make_job(fp32_logits=on)) for on in (True, False))
    logits = cast.job.plan.micro_batch * cast.job.plan.seq * cast.job.padded_vocab
    assert cast.blocks[2].saved - narrow.blocks[2].saved == 4.0 * logits
    assert memory_of(narrow.job, narrow)[0].allocated < memory_of(cast.job, cast)[0].allocated
    with pytest.raises(PlanError, match="fp32_logits"):
        make_job(fp32_logits=False, fused_cross_entropy=False)
