"""Ways of computing the loss: what they multiply, send and keep, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs import make_job

from windtunnel.base.errors import PlanError
from windtunnel.exports.exporters import export_job
from windtunnel.jobs.load import load_described_job
from windtunnel.memory import memory_of
from windtunnel.memory.lifetimes import lifetimes
from windtunnel.memory.walk import block_needs, in_place_per_logit
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


SHAPE = {"tp": (1, 2, 4), "fused": ((False, True, 6.0, 4.0), (True, True, 10.0, 4.0), (True, False, 2.0, 2.0))}


@pytest.mark.parametrize(("fused", "cast", "peak", "kept"), SHAPE["fused"])
@pytest.mark.parametrize("tp", SHAPE["tp"])
def test_a_loss_in_place_by_hand(fused: bool, cast: bool, peak: float, kept: float, tp: int) -> None:
    """Megatron-Core's lines: one fp32 copy, 2 + 4 bytes a logit; compiled, a second one for the gradient, 4 + 4 + 2; Transformer
    Engine's kernel overwrites the 16-bit logits, 2. What waits for backward is the fp32 softmax, or the 16-bit gradient."""
    job = make_job(**SMALL, tp=tp, fused_cross_entropy=fused, fp32_logits=cast, loss_in_place=True)
    workload = build(job)
    logits = job.plan.seq * job.plan.micro_batch * job.padded_vocab // tp
    head = workload.blocks[HEAD]
    need = block_needs(workload)[HEAD]
    rest = head.saved - kept * logits
    assert 0.0 <= rest <= 2.0 * 3 * 2048 * 512  # inputs of the norm and of the product, 16 bits each
    assert need.logits == kept * logits and need.working - workload.boundary == (peak - kept) * logits
    before = build(make_job(**SMALL, tp=tp, fused_cross_entropy=fused, fp32_logits=cast)).blocks[HEAD].saved
    assert before - head.saved == (2.0 * logits if cast else 0.0)


@pytest.mark.parametrize(
    ("flags", "peak"),
    [
        ("", 6.0),
        ("--cross-entropy-loss-fusion", 10.0),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl native", 10.0),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", 2.0),
        ("--cross-entropy-fusion-impl te", 6.0),  # the kernel of a fusion that is off
    ],
)
def test_megatrons_flags_choose_the_loss(flags: str, peak: float) -> None:
    size = "--num-layers 4 --hidden-size 1024 --num-attention-heads 8 --seq-length 8192 --max-position-embeddings 8192"
    batch = "--micro-batch-size 1 --global-batch-size 8 --bf16 --vocab-size 128000"
    job = load_described_job(None, [], "h200-ib", flags=f"{size} {batch} {flags}").job
    assert in_place_per_logit(job.runtime) == peak and job.runtime.loss_in_place
    said = "".join(export_job("megatron", job, {}).files.values())
    assert ("--cross-entropy-fusion-impl te" in said) == (peak == 2.0)


SWIFT = (
    "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --tensor_model_parallel_size 4 "
    "--micro_batch_size 1 --global_batch_size 16 --max_length 32768 "
)


@pytest.mark.parametrize(
    ("before", "flags", "peak"),
    [
        ("", "--tuner_type lora", 2.0),  # 4.0 to 4.3
        ("", "--tuner_type lora --cross_entropy_loss_fusion true", 2.0),
        ("pip install ms-swift==4.1.3\n", "--tuner_type full", 2.0),
        ("pip install 'ms-swift>=4.4'\n", "--tuner_type lora", 10.0),
        ("pip install ms-swift==4.1.3\n", "--tuner_type lora --cross_entropy_fusion_impl native", 10.0),
        ("", "--tuner_type lora --cross_entropy_loss_fusion false", 6.0),
        ("", "--train_type lora", 6.0),  # 3.x
        ("", "--train_type lora --cross_entropy_loss_fusion true", 10.0),
        ("pip install ms-swift==3.9.0\n", "--train_type full", 6.0),
    ],
)
def test_ms_swifts_loss_is_that_of_its_version(tmp_path: Path, before: str, flags: str, peak: float) -> None:
    script = tmp_path / "run.sh"
    script.write_text(before + SWIFT + flags + "\n")
    loaded = load_described_job(str(script), [], "h200-ib")
    assert in_place_per_logit(loaded.job.runtime) == peak
    stated = "fusion_impl" in flags or "fusion false" in flags or "train_type" in flags
    assert stated or any("cross_entropy_fusion_impl" in line for line in loaded.assumed)


def test_a_measured_job_at_long_context(tmp_path: Path) -> None:
    """basetenlabs/ml-cookbook examples/qwen3.6-27b-msswift: LoRA on eight H200, allocated and in nvidia-smi, GiB."""
    for seq, low, high in ((131072, 28.4, 35.0), (262144, 49.5, 56.0)):
        script = tmp_path / "run.sh"
        script.write_text(
            "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3.5-27B --tuner_type lora --lora_rank 8 --target_modules all-linear "
            "--tensor_model_parallel_size 8 --sequence_parallel true --micro_batch_size 1 --global_batch_size 8 --packing true "
            "--recompute_granularity full --recompute_method uniform --recompute_num_layers 2 --cross_entropy_loss_fusion true "
            f"--max_length {seq}\n"
        )
        job = load_described_job(str(script), [], "h200-ib").job
        assert low / 1.1 < memory_of(job, build(job))[0].total / 2**30 < 1.1 * high
