"""Mamba-2, linear attention and patterns of layers of one sub-module: parameters, FLOPs and bytes by hand, and what plans must
hold to."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import make_job

from windtunnel.base.errors import SpecError
from windtunnel.memory import memory_of
from windtunnel.predict import predict
from windtunnel.spec.model import LayerKind
from windtunnel.workload import Axis, Block, Comm, Kind, Workload, build, model_flops, parameter_count
from windtunnel.workload.mixers.linear_attention import CHUNK

PLAIN: dict[str, Any] = {
    "activation": "squared_relu",
    "norm": "rmsnorm",
    "position": "none",
    "tied_embeddings": False,
    "linear_bias": False,
    "attention": "flash",
}
SMALL: dict[str, Any] = PLAIN | {"hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 256, "global_batch": 8}
MAMBA: dict[str, Any] = {"ssm_heads": 8, "ssm_head_dim": 16, "ssm_groups": 2, "ssm_state": 32, "ssm_chunk": 64}
HYBRID: dict[str, Any] = SMALL | MAMBA | {"layers": 5, "layer_pattern": "M-M*-"}
DELTA: dict[str, Any] = {"linear_heads": 8, "linear_key_heads": 4, "linear_key_dim": 16, "linear_value_dim": 32}
CONVOLVED: dict[str, Any] = SMALL | {"layers": 3, "mixer_pattern": "S2A", "conv_width": 3}
REUSED: dict[str, Any] = SMALL | {"layers": 4, "mixer_pattern": "A2R2", "window": 32, "window_pattern": "LG", "qk_norm": True}
REUSED |= {"kv_heads": 2, "position": "rope", "reuse_ffn": 256, "per_layer_dim": 16}
LINEAR: dict[str, Any] = SMALL | DELTA | {"layers": 4, "mixer_pattern": "L3A"}


def one(workload: Workload, block: Block, name: str, backward: bool = False) -> int:
    return next(r for r in (block.backward if backward else block.forward) if workload.ops.names[r] == name)


def block_of(workload: Workload, name: str) -> Block:
    return next(block for block in workload.blocks if block.name == name)


def test_letters_of_a_hybrid_are_layers_of_one_module() -> None:
    kinds = make_job(**HYBRID).model.kinds
    assert [(kind.mixer, kind.feed) for kind in kinds] == [
        ("mamba2", "none"),
        ("no_mixer", "dense"),
        ("mamba2", "none"),
        ("self_attention", "none"),
        ("no_mixer", "dense"),
    ]
    mixed = make_job(**LINEAR, experts=4, top_k=2, layer_pattern="D1E3").model
    assert mixed.kinds[0] == LayerKind("linear_attention", "dense", False) and mixed.kinds[3] == LayerKind(
        "self_attention", "experts", False
    )


def test_names_of_layers_say_what_tells_them_apart() -> None:
    names = [block.name for block in build(make_job(**HYBRID)).blocks]
    assert names == ["embedding", "mamba layer", "head", "mlp layer", "attention layer"]


def test_parameters_of_a_tiny_hybrid() -> None:
    inner, shared = 8 * 16, 2 * 32
    projections = 64 * (2 * inner + 2 * shared + 8) + inner * 64
    mamba = projections + 5 * (inner + 2 * shared) + 3 * 8 + inner  # kernels and biases of 4 tokens; decay, skip, step; gated norm
    layers = 2 * mamba + 2 * 2 * 64 * 128 + 4 * 64 * 64 + 5 * 64
    assert parameter_count(make_job(**HYBRID).model) == layers + 64 + 2 * 256 * 64
    workload = build(make_job(**HYBRID))
    assert workload.stage_parameters[0] == parameter_count(workload.job.model)


def test_scan_of_mamba_by_hand() -> None:
    workload = build(make_job(**HYBRID))
    block = block_of(workload, "mamba layer")
    row, t = one(workload, block, "state-space scan"), 256
    ops = workload.ops
    assert (ops.kind[row], ops.batch[row], ops.m[row], ops.n[row], ops.k[row]) == (Kind.SCAN, 8, t, 16, 32)
    assert ops.flops[row] == t * (8 * (64 * 16 + 4 * 16 * 32) + 2 * 2 * 64 * 32)
    states = 4.0 * 8 * 16 * 32 / 64
    assert ops.bytes[row] == t * (3 * 2 * 8 * 16 + 4 * 2 * 2 * 32 + 4 * states)
    projection = one(workload, block, "in projection")
    assert ops.flops[projection] == 2.0 * t * 64 * (2 * 128 + 2 * 64 + 8)
    # projection's input; its output (gate, convolution's input, steps); the scan's output; the last projection's input; the norm's
    assert block.saved == 2.0 * t * (64 + (2 * 128 + 2 * 64 + 8) + 128 + 128 + 64)


def test_delta_rule_by_hand() -> None:
    workload = build(make_job(**LINEAR))
    block = block_of(workload, "linear attention layer")
    ops, t, k, v = workload.ops, 256, 16, 32
    row = one(workload, block, "delta rule")
    each = 2 * CHUNK * k + CHUNK**2 + 2 * CHUNK * (k + v) + 4 * k * v + 2 * k * v + CHUNK * (k + v)
    assert ops.flops[row] == t * 8 * each
    projection = one(workload, block, "in projection")
    assert ops.n[projection] == 2 * 4 * 16 + 2 * 8 * 32 + 2 * 8  # queries, keys, values, gates, two scalars a head
    assert workload.stage_parameters[0] == parameter_count(workload.job.model)
    by_channel = make_job(**LINEAR | {"linear_decay": "channel"})
    assert build(by_channel).stage_parameters[0] == parameter_count(by_channel.model)


def test_a_short_convolution_by_hand() -> None:
    """Per layer 4 h^2 weights, 3 h of the filter and two norms; a gate reads two numbers and writes one."""
    job = make_job(**CONVOLVED)
    feed = 2 * 64 * 128 + 2 * 64
    assert parameter_count(job.model) == 3 * feed + 2 * (4 * 64**2 + 3 * 64) + 4 * 64**2 + 2 * 256 * 64 + 64
    workload = build(job)
    block = block_of(workload, "short convolution layer")
    product = one(workload, block, "in projection")
    assert workload.ops.flops[product] == 2 * 256 * 64 * 3 * 64
    assert workload.ops.bytes[one(workload, block, "input gate")] == 3 * 2 * 256 * 64
    half = build(make_job(**CONVOLVED, tp=2))
    assert half.ops.flops[one(half, block_of(half, "short convolution layer"), "in projection")] == workload.ops.flops[product] / 2


def test_layers_that_reuse_keys_by_hand() -> None:
    """Two layers with keys, two with queries alone and a wider MLP; each with a gate and a projection of its own embedding."""
    job = make_job(**REUSED)
    layers = 2 * (64 * (64 + 2 * 32) + 64 * 64 + 2 * 64 * 128 + 2 * 16) + 2 * (2 * 64 * 64 + 2 * 64 * 256 + 16)
    own = 4 * 16 * (256 + 64) + 16 + 4 * (2 * 16 * 64 + 64)
    assert parameter_count(job.model) == layers + own + 4 * 2 * 64 + 2 * 256 * 64 + 64
    workload = build(job)
    names = {block.name: block for block in workload.blocks}
    made, reused = names["attention local layer"], names["attention over earlier keys local layer"]
    assert [workload.ops.n[one(workload, block, "qkv")] for block in (made, reused)] == [128, 64]
    core = [workload.ops.flops[one(workload, block, "attention")] for block in (made, reused)]
    assert core[0] == core[1]
    kept = {block.name: block.saved for block in workload.blocks}
    wider = 2 * 256 * 2 * 128  # inputs of activation and down projection, 128 wider in 16 bits
    no_keys = 2 * 256 * (2 * 32 + 32)  # keys and values of the core, and the keys that the norm keeps
    assert kept[made.name] - kept[reused.name] == no_keys - wider


def test_flops_count_states_as_megatron_does() -> None:
    job = make_job(**HYBRID)
    weights = 2 * (64 * (2 * 128 + 2 * 64 + 8) + 128 * 64) + 2 * 2 * 64 * 128 + 4 * 64 * 64 + 64 * 256
    assert model_flops(job) == 8 * 256 * (6 * weights + 2 * 21 * 128 * 32 + 12 * 64 * 256)


def test_tensor_parallelism_cuts_heads_and_groups() -> None:
    whole, cut = (build(make_job(**HYBRID, tp=tp)) for tp in (1, 2))
    names = ("state-space scan", "in projection", "out projection")
    for name in names:
        rows = [one(w, block_of(w, "mamba layer"), name) for w in (whole, cut)]
        assert cut.ops.flops[rows[1]] == whole.ops.flops[rows[0]] / 2
    calls = [Comm(int(cut.ops.comm[r])) for r in block_of(cut, "mamba layer").forward if cut.ops.axis[r] == Axis.TP]
    assert calls == [Comm.ALL_REDUCE]


def test_context_parallelism_turns_tokens_into_heads() -> None:
    """Every rank computes as much as before, but for whole sequences: all-to-all before the convolution and after the norm."""
    workload = build(make_job(**HYBRID, cp=2))
    block = block_of(workload, "mamba layer")
    ops = workload.ops
    calls = [(ops.names[r], float(ops.bytes[r])) for r in block.forward if ops.comm[r] == Comm.ALL_TO_ALL]
    assert calls == [("heads gather", 2.0 * 128 * (2 * 128 + 2 * 64 + 8)), ("heads scatter", 2.0 * 128 * 128)]
    row = one(workload, block, "state-space scan")
    assert (ops.batch[row], ops.m[row]) == (4, 256)


def test_a_recurrence_does_not_grow_with_the_square_of_the_sequence() -> None:
    def scan(seq: int) -> float:
        workload = build(make_job(**HYBRID | {"seq": seq}))
        return float(workload.ops.flops[one(workload, block_of(workload, "mamba layer"), "state-space scan")])

    assert scan(1024) == 4 * scan(256)


@pytest.mark.parametrize(
    "fields",
    [
        HYBRID,
        LINEAR,
        HYBRID | {"pp": 2, "stages": (3, 2)},
        LINEAR | {"recompute": "full"},
        CONVOLVED | {"tp": 2, "cp": 2},
        REUSED | {"tp": 2, "sequence_parallel": True, "recompute": "selective"},
        HYBRID | {"tp": 2, "sequence_parallel": True, "recompute": "selective"},
        HYBRID | {"layer_pattern": "MEM*E", "experts": 4, "top_k": 2, "moe_latent": 32, "mtp_layers": 1},
    ],
)
def test_hybrids_are_predicted(fields: dict[str, Any]) -> None:
    job = make_job(**fields)
    found = predict(job)
    assert 0 < found.mfu < 1 and sum(found.breakdown.values()) == pytest.approx(found.step_time_s)
    assert len(memory_of(job, build(job))) == job.plan.pp


def test_latent_experts_take_narrow_tokens() -> None:
    fields = HYBRID | {"layer_pattern": "MEM*E", "experts": 4, "top_k": 2, "ep": 4, "dp": 4, "moe_latent": 16}
    workload = build(make_job(**fields))
    block = block_of(workload, "moe layer")
    ops = workload.ops
    down, up = (one(workload, block, name) for name in ("latent down", "expert up"))
    assert (ops.k[down], ops.n[down], ops.k[up]) == (64, 16, 16)
    assert ops.bytes[one(workload, block, "dispatch")] == 256 * 2 * 16 * 2.0
    assert workload.stage_experts[0] == 2 * 1 * (2 * 16 * 128)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"layer_pattern": "MDM*-"}, "one sub-module each"),
        ({"ssm_heads": None}, "model.ssm_heads"),
        ({"mixer_pattern": "A"}, "mixer_pattern"),
        ({"parallel_block": True}, "parallel_block"),
        ({"ssm_groups": 3}, "ssm_groups"),
        ({"layer_pattern": "*-*-*"}, "layers M"),
        ({"linear_heads": 4}, "linear_heads"),
        ({"tp": 4}, "ssm_groups"),
        ({"cp": 16}, "context parallelism cuts its heads"),
        ({"moe_latent": 8}, "model.experts"),
        ({"layer_pattern": "MEM*-"}, "layer E"),
    ],
)
def test_impossible_hybrids_say_so(change: dict[str, Any], word: str) -> None:
    with pytest.raises(SpecError, match=word):
        make_job(**HYBRID | change)


@pytest.mark.parametrize(
    ("change", "word"),
    [({"mixer_pattern": "R2A2"}, "an A layer"), ({"mixer_pattern": "AR3"}, "same window"), ({"pp": 2}, "earlier layers"),
     ({"tp": 2, "reuse_ffn": 255}, "reuse_ffn")],
)  # fmt: skip
def test_layers_that_reuse_keys_need_some_on_their_stage(change: dict[str, Any], word: str) -> None:
    with pytest.raises(SpecError, match=word):
        make_job(**REUSED | change)


def test_channels_of_a_convolution_are_whole_on_a_rank() -> None:
    with pytest.raises(SpecError, match="whole channels"):
        make_job(**CONVOLVED | {"hidden": 68, "heads": 4, "tp": 2, "cp": 4, "seq": 256})
