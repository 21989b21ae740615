"""Vision encoders: patches, layers that see everything, projector, what frozen ones leave out, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import make_job

from windtunnel.base.errors import SpecError
from windtunnel.memory import memory_of
from windtunnel.predict import predict
from windtunnel.spec.model import Lora, Vision
from windtunnel.workload import Block, Comm, Kind, Phase, Workload, build, model_flops, parameter_count
from windtunnel.workload.blocks.core import visible

SMALL: dict[str, Any] = {
    "activation": "swiglu",
    "norm": "rmsnorm",
    "position": "rope",
    "tied_embeddings": False,
    "linear_bias": False,
    "attention": "flash",
    "layers": 4,
    "hidden": 128,
    "heads": 4,
    "ffn": 256,
    "vocab": 256,
    "seq": 128,
}
EYE: dict[str, Any] = {"layers": 3, "hidden": 64, "heads": 4, "ffn": 96, "image": 32, "patch": 4, "images": 2, "projector": (96,)}


def job(eye: dict[str, Any] | None = None, **fields: Any) -> Workload:
    return build(make_job(**SMALL | fields, vision=Vision(**EYE | (eye or {}))))


def block_of(workload: Workload, name: str) -> Block:
    return next(block for block in workload.blocks if block.name == name)


def test_an_encoder_stands_before_the_embedding_of_the_first_stage() -> None:
    workload = job(pp=2)
    names = [[workload.blocks[b].name for b, _ in stage[0].blocks] for stage in workload.stages]
    assert names == [["vision patches", "vision layer", "projector", "embedding", "layer"], ["layer", "head"]]
    assert workload.stages[0][0].blocks[1][1] == 3


def test_parameters_by_hand() -> None:
    model = job().job.model
    layer = 4 * 64 * 64 + 4 * 64 + 2 * 64 * 96 + 96 + 64 + 4 * 64
    front = 3 * 16 * 64 + 64 * 64 + 2 * 64
    projector = 64 * 96 + 96 + 96 * 128 + 128
    assert parameter_count(model) - parameter_count(make_job(**SMALL).model) == 3 * layer + front + projector
    workload = job()
    assert workload.stage_parameters[0] == parameter_count(model)


def test_patches_see_all_of_their_image() -> None:
    workload = job()
    ops, block = workload.ops, block_of(workload, "vision layer")
    row = next(r for r in block.forward if ops.kind[r] == Kind.ATTENTION)
    assert (ops.batch[row], ops.m[row], ops.n[row], ops.k[row]) == (2 * 4, 64, 64, 16)
    assert ops.flops[row] == 4.0 * 2 * 4 * 64 * 64 * 16
    assert (visible(64, None, causal=False), visible(64, 16, causal=False)) == (64, 16)


def test_neighbours_are_merged_before_the_projector() -> None:
    assert Vision(**EYE).tokens == 64 and Vision(**EYE | {"merge": 2}).tokens == 16
    workload = job({"merge": 2})
    ops, block = workload.ops, block_of(workload, "projector")
    up = next(r for r in block.forward if ops.names[r] == "projector up")
    assert (ops.m[up], ops.k[up], ops.n[up]) == (2 * 16, 4 * 64, 96)
    pooled = job({"merge": 2, "merge_by": "pool"})
    assert pooled.ops.k[pooled.ops.names.index("projector up")] == 64


def test_flops_of_images() -> None:
    text = model_flops(make_job(**SMALL))
    layers = 3 * (4 * 64 * 64 + 2 * 64 * 96)
    encoder = 64 * layers + 64 * 48 * 64 + 2 * 64 * 3 * 64 * 64
    projector = 64 * (64 * 96 + 96 * 128)
    assert model_flops(job().job) == text + 8 * 2 * 6 * (encoder + projector)
    assert model_flops(job({"frozen": True}).job) == text + 8 * 2 * (2 * encoder + 6 * projector)


def test_a_frozen_encoder_runs_forward_alone() -> None:
    workload = job({"frozen": True})
    ops = workload.ops
    for name in ("vision patches", "vision layer"):
        block = block_of(workload, name)
        assert (block.saved, block.parameters) == (0.0, 0.0) and block.frozen > 0
        assert all(ops.launches[r] == 0 for r in block.backward)
    projector = block_of(workload, "projector")
    left = [ops.names[r] for r in projector.backward if ops.kind[r] == Kind.GEMM]
    assert left == ["projector down dgrad", "projector down wgrad", "projector up wgrad"]
    assert projector.parameters == 64 * 96 + 96 + 96 * 128 + 128


def test_a_projector_alone_needs_gradients_through_the_decoder() -> None:
    workload = job({"frozen": True}, frozen=True)
    ops = workload.ops
    assert workload.stage_parameters[0] == 64 * 96 + 96 + 96 * 128 + 128
    assert {ops.names[r] for r in block_of(workload, "layer").backward if ops.phase[r] == Phase.WGRAD} == set()
    assert "qkv dgrad" in ops.names
    stage = memory_of(workload.job, workload)[0]
    assert stage.optimizer == 12 * workload.stage_parameters[0]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pp": 2},
        {"tp": 2, "sequence_parallel": True},
        {"cp": 2},
        {"sharding": "fsdp", "dp": 2},
        {"recompute": "full"},
        {"lora": Lora(rank=4)},
        {"frozen": True},
        {"pp": 2, "vpp": 2},
        {"micro_batch": 2},
    ],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_plans_with_images_are_predicted(fields: dict[str, Any], frozen: bool) -> None:
    found = predict(job({"frozen": frozen, "window": 16, "global_every": 3}, **fields).job)
    plain = predict(make_job(**{name: value for name, value in (SMALL | fields).items() if name != "frozen"}))
    assert sum(found.breakdown.values()) == pytest.approx(found.step_time_s) and 0 < found.mfu < 1
    if "lora" not in fields and "frozen" not in fields:
        assert found.step_time_s > plain.step_time_s


def test_tensor_parallelism_cuts_the_encoder() -> None:
    workload = job(tp=2)
    ops, block = workload.ops, block_of(workload, "vision layer")
    calls = [Comm(int(ops.comm[r])) for r in block.forward if ops.kind[r] == Kind.COMM]
    assert calls == [Comm.ALL_REDUCE, Comm.ALL_REDUCE]


@pytest.mark.parametrize(
    ("eye", "fields", "word"),
    [
        ({"image": 33}, {}, "vision.image"),
        ({"merge": 3}, {}, "vision.merge"),
        ({"heads": 3}, {}, "vision.heads"),
        ({"images": 3}, {}, "part of the sequence"),
        ({"ffn": 97}, {"tp": 2}, "vision.ffn"),
        ({"projector": (97,)}, {"tp": 2}, "projector"),
        ({}, {"frozen": True, "lora": Lora()}, "model.frozen"),
    ],
)
def test_impossible_encoders_say_so(eye: dict[str, Any], fields: dict[str, Any], word: str) -> None:
    with pytest.raises(SpecError, match=word):
        job(eye, **fields)


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(SpecError, match="model.frozen"):
        make_job(**SMALL, frozen=True)
