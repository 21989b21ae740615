"""Adapters and frozen weights: what runs, what is kept, what is updated, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import make_job

from windtunnel.base.errors import SpecError
from windtunnel.memory import memory_of
from windtunnel.predict import predict
from windtunnel.spec.model import Lora
from windtunnel.workload import Axis, Comm, Kind, Phase, build, model_flops, parameter_count

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
        ({"lora": Lora(targets=("linear_fc1",)), "experts": 4}, "adapters of experts"),
        ({"lora": Lora(rank=6), "tp": 4}, "lora.rank"),
        ({"lora": Lora(all_to_all=True)}, "all_to_all"),
        ({"lora": Lora(targets=("linear_qkv", "linear_qkv"))}, "once"),
        ({"lora": QKV, "layer_pattern": "-", "layers": 2}, "no attention"),
    ],
)
def test_impossible_adapters_say_so(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(SpecError, match=word):
        make_job(**PLAIN | fields)
