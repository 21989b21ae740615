"""Adapters and frozen weights: what runs, what is kept, what is updated, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jobs import make_job

from windtunnel.base.errors import SpecError
from windtunnel.cli import main
from windtunnel.memory import memory_of
from windtunnel.predict import predict
from windtunnel.predict.program.demands import gathered_elements
from windtunnel.spec import load_job
from windtunnel.spec.model import Lora
from windtunnel.workload import Axis, Comm, Kind, Phase, build, model_flops, parameter_count
from windtunnel.workload.flops import adapter_parameters

PLAIN: dict[str, Any] = {
    "activation": "swiglu",
    "norm": "rmsnorm",
    "position": "rope",
    "tied_embeddings": False,
    "linear_bias": False,
    "attention": "flash",
    "layers": 2,
    "hidden": 64,
    "heads": 4,
    "ffn": 128,
    "vocab": 256,
    "seq": 32,
}
QKV = Lora(rank=8, targets=("linear_qkv",))
BOTH = Lora(rank=8, targets=("linear_qkv", "linear_proj"))


def test_only_adapters_are_trained() -> None:
    workload = build(make_job(**PLAIN, lora=BOTH))
    each = 8 * (64 + 3 * 64) + 8 * (64 + 64)
    assert workload.stage_parameters[0] == 2 * each
    assert workload.stage_frozen[0] == parameter_count(workload.job.model)
    weights = 2 * (4 * 64 * 64 + 3 * 64 * 128) + 64 * 256
    assert model_flops(workload.job) == model_flops(make_job(**PLAIN)) - 8 * 32 * (2 * weights - 6 * 2 * each)


def test_frozen_weights_have_no_weight_gradient() -> None:
    ops = build(make_job(**PLAIN, lora=QKV)).ops
    left = {name for name, phase in zip(ops.names, ops.phase, strict=True) if phase == Phase.WGRAD}
    assert left == {"qkv adapter down wgrad", "qkv adapter up wgrad"}
    assert "mlp up dgrad" in ops.names and "logits dgrad" in ops.names and "embedding grad" not in ops.names


def test_frozen_products_keep_no_input() -> None:
    whole, frozen = (build(make_job(**PLAIN, **extra)) for extra in ({}, {"lora": QKV}))
    t = 32
    inputs = 2 * t * (64 + 64 + 128)  # of the projections, the way up and the way down; attention keeps its output itself
    adapter = 2 * t * (64 + 8)
    assert frozen.blocks[1].saved == whole.blocks[1].saved - inputs + adapter


def test_memory_holds_frozen_weights_but_no_state_for_them() -> None:
    whole, frozen = (memory_of(job, build(job))[0] for job in (make_job(**PLAIN), make_job(**PLAIN, lora=QKV)))
    trained = 2 * 8 * (64 + 3 * 64)
    assert frozen.weights == whole.weights + 2 * trained
    assert frozen.gradients == 4 * trained and frozen.optimizer == 12 * trained


@pytest.mark.parametrize("fields", [{"sharding": "zero1"}, {"sharding": "fsdp", "framework": "torchtitan"}])
def test_only_adapters_are_reduced(fields: dict[str, Any]) -> None:
    large = PLAIN | {"hidden": 2048, "heads": 16, "ffn": 8192, "seq": 2048}
    tuned, trained = (predict(make_job(**large | fields | extra, dp=4)) for extra in ({"lora": QKV}, {}))
    assert tuned.step_time_s < trained.step_time_s
    reduced = [
        found.breakdown.get("exposed_gradient_reduce", 0.0) + found.overlapped.get("gradient_reduce", 0.0)
        for found in (tuned, trained)
    ]
    assert reduced[0] < 0.2 * reduced[1]


def test_adapters_under_tensor_and_sequence_parallelism() -> None:
    lora = Lora(rank=8, targets=("linear_qkv", "linear_proj"), all_to_all=True)
    workload = build(make_job(**PLAIN, lora=lora, tp=2, sequence_parallel=True, overlap_tp=True))
    ops, block = workload.ops, workload.blocks[1]
    calls = {
        ops.names[r]: (Comm(int(ops.comm[r])), float(ops.bytes[r]))
        for r in (*block.forward, *block.backward)
        if ops.kind[r] == Kind.COMM and "adapter" in ops.names[r]
    }
    small, whole = 32 * 8 * 2.0, 32 * 64 * 2.0
    assert calls["qkv adapter gather"] == (Comm.ALL_GATHER, small)
    assert calls["qkv adapter input grad scatter"] == (Comm.REDUCE_SCATTER, whole)
    assert calls["attention out adapter turn"] == (Comm.ALL_TO_ALL, whole / 2)
    assert all(ops.axis[r] == Axis.TP for r in (*block.forward, *block.backward) if ops.kind[r] == Kind.COMM)
    assert not any("wgrad" in ops.names[r] and "adapter" not in ops.names[r] for r in block.backward)


@pytest.mark.parametrize(
    "fields",
    [
        {"recompute": "full"},
        {"pp": 2},
        {"pp": 2, "schedule": "zb-h1"},
        {"cp": 2},
        {"experts": 4, "top_k": 2, "shared_ffn": 32},
        {"tp": 2, "sequence_parallel": True, "experts": 4, "top_k": 2, "ep": 2, "moe_shared_overlap": True, "shared_ffn": 32},
    ],
)
def test_fine_tuning_takes_less_than_training(fields: dict[str, Any]) -> None:
    frozen, whole = predict(make_job(**PLAIN, **fields, lora=BOTH)), predict(make_job(**PLAIN, **fields))
    assert frozen.memory[0].total < whole.memory[0].total
    assert sum(frozen.breakdown.values()) == pytest.approx(frozen.step_time_s)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"lora": Lora(targets=("linear_fc1",)), "experts": 4}, "model.lora.experts=linear"),
        (
            {"lora": Lora(targets=("linear_fc1",), experts="linear"), "experts": 4, "tp": 2, "etp": 2, "sequence_parallel": True},
            "adapters of experts",
        ),
        ({"lora": Lora(base="int8"), "sharding": "fsdp", "dp": 2, "framework": "fsdp"}, "base_sharded"),
        ({"lora": Lora(double_quant=True)}, "double_quant"),
        ({"lora": Lora(base="nf4"), "experts": 4}, "which are packed too"),
        ({"lora": Lora(base="nf4"), "tp": 2}, "not cut"),
        ({"lora": Lora(base="nf4"), "precision": "fp8"}, "unpacked to 16 bits"),
        ({"lora": Lora(rank=6), "tp": 4}, "lora.rank"),
        ({"lora": Lora(all_to_all=True)}, "all_to_all"),
        ({"lora": Lora(targets=("linear_qkv", "linear_qkv"))}, "once"),
        ({"lora": QKV, "layer_pattern": "-", "layers": 2}, "no attention"),
    ],
)
def test_impossible_adapters_say_so(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(SpecError, match=word):
        make_job(**PLAIN | fields)


def test_whole_experts_beside_cut_attention_have_whole_adapters() -> None:
    """With etp = 1 an expert's adapters are those of its whole projections, whatever tp cuts attention into."""
    lora = Lora(rank=8, targets=("linear_fc1", "linear_fc2"), experts="linear")

    def adapted(**fields: Any) -> list[tuple[int, int]]:
        job = make_job(**PLAIN | {"lora": lora, "experts": 4, "top_k": 2, "dp": 4 // fields.get("tp", 1), "ep": 2} | fields)
        ops = build(job).ops
        grouped = (np.asarray(ops.kind) == Kind.GROUPED_GEMM) & (np.asarray(ops.phase) == Phase.FORWARD)
        return sorted({(int(n), int(k)) for n, k in zip(ops.n[grouped], ops.k[grouped], strict=True)})

    assert adapted() == adapted(tp=2, sequence_parallel=True) != []


ALL: tuple[Any, ...] = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
LINEAR = 2 * (4 * 64 * 64 + 3 * 64 * 128)
"""Elements of the linear layers of PLAIN."""


@pytest.mark.parametrize(
    ("base", "double", "width"),
    [("nf4", False, 0.5 + 4 / 64), ("fp4", False, 0.5 + 4 / 64), ("nf4", True, 0.5 + (1 + 4 / 256) / 64), ("int8", False, 1.0)],
)
def test_packed_weights_take_their_bits_and_scales(base: Any, double: bool, width: float) -> None:
    plain, packed = (
        memory_of(job, build(job))[0]
        for job in (make_job(**PLAIN, lora=Lora(targets=ALL, **more)) for more in ({}, {"base": base, "double_quant": double}))
    )
    assert packed.weights == pytest.approx(plain.weights - LINEAR * (2.0 - width))  # embedding, norms and output layer stay
    assert (packed.gradients, packed.optimizer) == (plain.gradients, plain.optimizer)


def test_full_sharding_cuts_packed_weights_but_not_their_scales() -> None:
    def weights(**more: Any) -> float:
        job = make_job(**PLAIN, lora=Lora(targets=ALL, **more), sharding="fsdp", framework="fsdp", dp=4)
        return memory_of(job, build(job))[0].weights

    scales = LINEAR * 4 / 64
    assert weights(base="nf4") == pytest.approx(weights() - LINEAR * 1.5 / 4 + scales)
    assert weights(base="nf4", base_sharded=False) == pytest.approx(weights() - LINEAR * 2.0 / 4 + LINEAR * 0.5 + scales)
    assert weights(base="int8", base_sharded=False) == pytest.approx(weights() - LINEAR * 2.0 / 4 + LINEAR)


def test_ranks_gather_packed_weights() -> None:
    def gathered(**more: Any) -> float:
        job = make_job(**PLAIN, lora=Lora(targets=ALL, **more), sharding="fsdp", framework="fsdp", dp=4)
        return gathered_elements(job, build(job).blocks[1])

    each = LINEAR / 2  # 16-bit numbers of a layer; packed ones are a quarter of a number
    assert gathered(base="nf4") == pytest.approx(gathered() - each * 0.75)
    assert gathered(base="nf4", base_sharded=False) == pytest.approx(gathered() - each)


def test_weights_are_unpacked_in_every_pass_that_reads_them() -> None:
    job = make_job(**PLAIN, lora=Lora(targets=ALL, base="nf4"), recompute="full")
    ops = build(job).ops
    rows = [(name, phase) for name, phase in zip(ops.names, ops.phase, strict=True) if name.endswith("dequantise")]
    names = {"qkv", "attention out", "mlp up", "mlp down"}
    for phase in (Phase.FORWARD, Phase.RECOMPUTE, Phase.DGRAD):
        assert len([name for name, of in rows if of == phase]) == len(names)
    sizes = [size for name, size in zip(ops.names, ops.bytes, strict=True) if name == "mlp down dequantise"]
    assert sizes == pytest.approx([64 * 128 * (0.5 + 4 / 64 + 2.0)] * 3)
    assert not [name for name in build(make_job(**PLAIN, lora=Lora(targets=ALL))).ops.names if "dequantise" in name]


def test_the_unpacked_weight_is_in_memory_while_it_is_used() -> None:
    large = PLAIN | {"hidden": 2048, "heads": 16, "ffn": 8192, "vocab": 64, "seq": 32, "recompute": "full"}
    plain, packed = (memory_of(job, build(job))[0] for job in (make_job(**large, lora=Lora(base=b)) for b in ("none", "nf4")))
    assert packed.workspace - plain.workspace == pytest.approx(2 * 2048 * 2 * 8192)  # gate and up in one product


def test_adapters_of_each_linear_module() -> None:
    """PEFT: q, k, v, o, gate, up, down have adapters of their own."""
    one, each = (build(make_job(**PLAIN | {"kv_heads": 2}, lora=Lora(rank=8, targets=ALL, separate=s))) for s in (False, True))
    assert one.stage_parameters[0] == 2 * 8 * ((64 + 128) + (64 + 64) + (64 + 256) + (128 + 64))
    assert each.stage_parameters[0] == 2 * 8 * ((64 + 64) + 2 * (64 + 32) + (64 + 64) + 2 * (64 + 128) + (128 + 64))
    assert each.stage_parameters[0] == adapter_parameters(each.job.model)
    names = [name for name, phase in zip(each.ops.names, each.ops.phase, strict=True) if phase == Phase.FORWARD]
    assert (names.count("qkv adapter down"), names.count("mlp up adapter down"), names.count("mlp down adapter down")) == (3, 2, 1)
    assert each.blocks[1].saved - one.blocks[1].saved == 2 * 32 * 8 * 3  # three more small results; inputs are the same tensors


def test_adapters_reach_experts_that_are_modules() -> None:
    mixture = PLAIN | {"experts": 4, "top_k": 2, "expert_ffn": 32}
    jobs = {
        kind: make_job(**mixture, lora=Lora(rank=8, targets=ALL, separate=True, experts=kind)) for kind in ("linear", "parameters")
    }
    attention = 2 * 8 * 4 * (64 + 64)
    assert build(jobs["parameters"]).stage_parameters[0] == attention == adapter_parameters(jobs["parameters"].model)
    each = 2 * 8 * 4 * (2 * (64 + 32) + (32 + 64))
    workload = build(jobs["linear"])
    assert workload.stage_parameters[0] == attention + each == adapter_parameters(jobs["linear"].model)
    down = [
        (kind, batch, n)
        for name, kind, batch, n in zip(workload.ops.names, workload.ops.kind, workload.ops.batch, workload.ops.n, strict=True)
        if name == "expert up adapter down"
    ]
    assert down == [(Kind.GROUPED_GEMM, 4, 8)] * 2
    used = 2 * 8 * 2 * (2 * (64 + 32) + (32 + 64))  # a token sees the adapters of two experts
    assert model_flops(jobs["linear"]) - model_flops(jobs["parameters"]) == 8 * 32 * 6 * used


def test_experts_in_one_tensor_are_not_packed() -> None:
    mixture = PLAIN | {"experts": 4, "top_k": 2, "expert_ffn": 32}
    held = [
        memory_of(job, build(job))[0].weights
        for job in (make_job(**mixture, lora=Lora(base="nf4", experts=kind)) for kind in ("parameters", "linear"))
    ]
    assert held[0] - held[1] == pytest.approx(2 * 4 * 3 * 64 * 32 * (2.0 - 0.5625))


def test_a_format_of_packed_weights_is_no_precision() -> None:
    for name in ("nf4", "int4", "qlora"):
        with pytest.raises(SpecError, match="model.lora.base=nf4"):
            load_job("llama3-8b-8xh100", [f"runtime.precision={name}"])


def test_memory_says_what_is_frozen_and_what_is_trained(capsys: pytest.CaptureFixture[str]) -> None:
    job = [
        "llama3-70b",
        "--on",
        "h100-ib",
        "--set",
        "cluster.gpus=1",
        "--set",
        "plan.micro_batch=1",
        "--set",
        "plan.global_batch=1",
    ]
    main(["memory", *job, "--set", "model.lora.rank=16"])
    said = " ".join(capsys.readouterr().out.split())
    assert "131.5 GiB are weights, frozen but for 44.6 million trained parameters" in said
    assert "model.lora.base=nf4" in said and "plan.micro_batch=1" not in said
    main(["memory", *job, "--set", "model.lora.rank=16", "--set", "model.lora.base=nf4"])
    assert "Fits" in capsys.readouterr().out
