"""Experts, latent attention and patterns of layers: parameters, FLOPs and bytes by hand, and what the plan must hold to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jobs import make_job

from windtunnel.base.errors import SpecError
from windtunnel.memory import memory_of
from windtunnel.network.groups.shape import rows_of
from windtunnel.predict import predict
from windtunnel.spec.job import Job
from windtunnel.workload import Axis, Block, Comm, Kind, Phase, Workload, build, hardware_flops, model_flops, parameter_count
from windtunnel.workload.blocks.routing import distinct, routing

PLAIN: dict[str, Any] = {
    "activation": "swiglu",
    "norm": "rmsnorm",
    "position": "rope",
    "tied_embeddings": False,
    "linear_bias": False,
    "attention": "flash",
}
SMALL: dict[str, Any] = PLAIN | {"layers": 2, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 32, "global_batch": 8}
MIXED: dict[str, Any] = SMALL | {"experts": 8, "top_k": 2, "expert_ffn": 96, "shared_ffn": 32}


def rows(workload: Workload, block: Block, name: str) -> list[int]:
    return [r for r in (*block.forward, *block.backward) if workload.ops.names[r] == name]


def test_parameters_of_a_tiny_mixture() -> None:
    model = make_job(**MIXED).model
    attention, experts, shared, router = 4 * 64 * 64, 8 * 3 * 64 * 96, 3 * 64 * 32, 64 * 8
    assert parameter_count(model) == 2 * (attention + experts + shared + router + 2 * 64) + 64 + 2 * 256 * 64


def test_parameters_of_a_tiny_latent_attention() -> None:
    model = make_job(**SMALL, q_lora_rank=24, kv_lora_rank=16, qk_nope_dim=12, qk_rope_dim=4, v_dim=8).model
    query, key = 64 * 24 + 24 + 24 * 4 * 16, 64 * (16 + 4) + 16 + 16 * 4 * (12 + 8)
    layer = query + key + 4 * 8 * 64 + 3 * 64 * 128 + 2 * 64
    assert parameter_count(model) == 2 * layer + 64 + 2 * 256 * 64


def test_flops_count_the_experts_that_a_token_goes_to() -> None:
    job = make_job(**MIXED)
    weights = 2 * (4 * 64 * 64 + 64 * 8 + 3 * 64 * (2 * 96 + 32)) + 64 * 256
    assert model_flops(job) == 8 * 32 * (6 * weights + 12 * 2 * 64 * 32)


@pytest.mark.parametrize("dispatch", ["alltoall", "allgather", "deepep"])
@pytest.mark.parametrize(
    ("plan", "local", "each"),
    [
        ({}, 8, 8),
        ({"ep": 4, "dp": 4}, 2, 32),
        ({"ep": 2, "etp": 2, "dp": 4}, 4, 32),
        ({"ep": 8, "tp": 2, "dp": 4, "sequence_parallel": True}, 1, 32),
    ],
)
def test_experts_of_a_rank_take_their_share(plan: dict[str, Any], local: int, each: int, dispatch: str) -> None:
    """Each of the ranks that share the experts sends its 32 tokens (16 with tp 2) to 2 of 8 experts."""
    workload = build(make_job(**MIXED, **plan, moe_dispatch=dispatch))
    up = rows(workload, workload.blocks[1], "expert up")[0]
    ops, etp = workload.ops, plan.get("etp", 1)
    assert (ops.batch[up], ops.m[up], ops.n[up], ops.k[up]) == (local, each, 2 * 96 // etp, 64)
    assert ops.flops[up] == 2.0 * ops.batch[up] * ops.m[up] * ops.n[up] * ops.k[up]


def test_bytes_to_experts_and_back() -> None:
    """Every token is sent twice, 64 numbers of 2 bytes; FP8 on the way there takes a byte and a scale for 128."""
    job = make_job(**MIXED, ep=4, dp=4)
    flow = routing(job, 32, 2.0)
    assert (flow.dispatch, flow.combine, flow.experts, flow.each) == (32 * 2 * 64 * 2, 32 * 2 * 64 * 2, 2, 32)
    small = routing(make_job(**MIXED, ep=4, dp=4, moe_dispatch_fp8=True), 32, 2.0)
    assert small.dispatch == 32 * 2 * 64 * (1 + 4 / 128) and small.combine == flow.combine
    workload = build(job)
    assert [workload.ops.bytes[r] for r in rows(workload, workload.blocks[1], "dispatch")] == [flow.dispatch]


def test_one_copy_a_rank_when_its_experts_share_it() -> None:
    assert distinct(8, 8, 2) == 2.0  # an expert a place
    assert distinct(2, 8, 2) == pytest.approx(2 * (1 - (4 / 8) * (3 / 7)))
    assert distinct(1, 8, 2) == 1.0
    copies = routing(make_job(**MIXED, ep=2, dp=2, moe_dispatch="deepep"), 32, 2.0).sent
    assert copies == pytest.approx(32 * distinct(2, 8, 2)) and copies < 64


def test_the_busiest_rank_paces_and_capacity_bounds_it() -> None:
    even, odd = (routing(make_job(**MIXED, ep=4, dp=4, moe_imbalance=load), 32, 2.0) for load in (1.0, 1.5))
    assert odd.each == 48 and even.each == 32 and odd.dispatch == 1.5 * even.dispatch
    assert routing(make_job(**MIXED, ep=4, dp=4, moe_imbalance=1.5, moe_capacity=1.25), 32, 2.0).each == 40


def test_optimizer_state_of_experts_is_cut_over_the_ranks_that_hold_the_same() -> None:
    """4 ranks, ep 2: a rank holds half of the experts, and 2 ranks the same half."""
    job = make_job(**MIXED, ep=2, dp=4, sharding="zero1", gradient_dtype="fp32")
    stage = memory_of(job, build(job))[0]
    experts = 2 * 8 * 3 * 64 * 96 / 2
    dense = parameter_count(job.model) - 2 * experts
    assert job.expert_dp == 2
    assert stage.weights == pytest.approx(2 * (dense + experts), rel=1e-3)
    assert stage.optimizer == pytest.approx(12 * (dense / 4 + experts / 2), rel=1e-3)


def test_gradients_of_experts_are_reduced_among_the_ranks_that_hold_the_same() -> None:
    found = predict(make_job(**MIXED, ep=2, dp=4, sharding="zero1"))
    calls = {(str(row["axis"]), str(row["op"])): row for row in found.collectives}
    assert calls["expert_dp", "reduce_scatter"]["ranks"] == 2 and calls["shard", "reduce_scatter"]["ranks"] == 4
    assert calls["expert_dp", "reduce_scatter"]["bytes"] == pytest.approx(4 * 2 * 8 * 3 * 64 * 96 / 2)
    assert calls["ep", "all_to_all"]["ranks"] == 2


def test_axes_of_experts_cut_a_stage() -> None:
    """8 ranks of a stage, tp 2 innermost: etp 2, then ep 2, then 2 copies."""
    sizes, order = {"tp": 2, "cp": 1, "dp": 4, "pp": 2}, ("tp", "cp", "ep", "dp", "pp")
    found = {axis: rows_of(axis, sizes, order, 4, 2, 1, 2).tolist() for axis in (Axis.ETP, Axis.EP, Axis.EXPERT_DP)}
    assert found[Axis.ETP] == [[8, 9], [10, 11], [12, 13], [14, 15]]
    assert found[Axis.EP] == [[8, 10], [9, 11], [12, 14], [13, 15]]
    assert sorted(found[Axis.EXPERT_DP]) == [[8, 12], [9, 13], [10, 14], [11, 15]]


def test_saved_bytes_of_a_mixture() -> None:
    """Norms' inputs, router's and products' inputs, activations; 32 tokens, 64 copies."""
    workload = build(make_job(**MIXED))
    t, copies, w = 32, 64, 2
    attention = t * 64 * w * 2 + w * (2 * t * 64 + t * 2 * 64) + 4 * t * 4  # norm, qkv input; q, k, v, out, log sums
    router = t * 64 * w + 4 * t * 8
    experts = copies * 64 * w + 2 * copies * 96 * w + copies * 96 * w
    shared = 2 * t * 32 * w + t * 32 * w  # its input is the router's
    assert workload.blocks[1].saved == attention + t * 64 * w + router + experts + shared


LATENT: dict[str, Any] = SMALL | {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_dim": 12, "qk_rope_dim": 4, "v_dim": 8}


def test_attention_with_keys_wider_than_values() -> None:
    workload = build(make_job(**LATENT))
    core = rows(workload, workload.blocks[1], "attention")[0]
    assert workload.ops.flops[core] == 2.0 * 4 * 32 * 16.5 * (16 + 8)
    assert workload.ops.k[core] == 12  # the mean of both


def test_recomputed_up_projections_are_not_kept_and_run_again() -> None:
    kept = build(make_job(**LATENT, recompute="none")).blocks[1]
    workload = build(make_job(**LATENT, recompute="selective", recompute_modules=("mla_up_proj",)))
    layer, t, w = workload.blocks[1], 32, 2
    assert kept.saved - layer.saved == t * (24 + 16) * w + t * 4 * (16 + 16 + 8) * w
    again = [workload.ops.names[r] for r in layer.backward if workload.ops.phase[r] == Phase.RECOMPUTE]
    assert again == ["q norm", "q up", "kv norm", "kv up", "rope", "key concatenation"]
    place = [workload.ops.names[r] for r in layer.backward]
    assert place.index("q norm") == place.index("attention grad") - 6
    extra = 2 * 2 * t * (24 * 64 + 16 * 4 * 20)  # both layers, both products, forward FLOPs
    assert hardware_flops(workload) - model_flops(workload.job) == 8 * extra


@pytest.mark.parametrize(
    ("modules", "bytes_"),
    [
        (("moe_act",), 64 * 96 * 2),
        (("layernorm",), 2 * 32 * 64 * 2),
        (("moe",), 4 * 32 * 8 + 64 * 64 * 2 + 3 * 64 * 96 * 2 + 3 * 32 * 32 * 2),
    ],
)
def test_recompute_by_module_saves_what_it_runs_again(modules: tuple[str, ...], bytes_: int) -> None:
    layer = build(make_job(**MIXED, recompute="selective", recompute_modules=modules)).blocks[1]
    assert build(make_job(**MIXED)).blocks[1].saved - layer.saved == bytes_


def test_layers_follow_the_pattern_through_the_pipeline() -> None:
    job = make_job(**MIXED | {"layers": 8, "window": 8}, pp=2, layer_pattern="D3E5", window_pattern="L3G")
    workload = build(job)
    names = [[(workload.blocks[b].name, times) for b, times in chunk.blocks] for stage in workload.stages for chunk in stage]
    assert names == [
        [("embedding", 1), ("local dense layer", 3), ("global moe layer", 1)],
        [("local moe layer", 3), ("global moe layer", 1), ("head", 1)],
    ]
    layers = [block for block in workload.blocks if "layer" in block.name]
    core = {block.name: workload.ops.flops[rows(workload, block, "attention")[0]] for block in layers}
    assert core["local dense layer"] == core["local moe layer"] < core["global moe layer"]


def test_further_tokens_are_a_layer_and_a_head_on_the_last_stage() -> None:
    plain, more = (make_job(**MIXED, pp=2, mtp_layers=count) for count in (0, 1))
    a, b = build(plain), build(more)
    assert [b.blocks[i].name for i, _ in b.stages[1][0].blocks] == ["layer", "head", "mtp layer", "mtp head"]
    layer = a.blocks[1].parameters
    copy = 256 * 64  # of the embedding
    assert b.stage_parameters[1] - a.stage_parameters[1] == layer + 2 * 64 * 64 + 2 * 64 + 64 + copy
    assert b.stage_parameters[0] == a.stage_parameters[0]
    active = 4 * 64 * 64 + 64 * 8 + 3 * 64 * (2 * 96 + 32)
    assert model_flops(more) - model_flops(plain) == 8 * 32 * (6 * (active + 2 * 64 * 64 + 64 * 256) + 12 * 64 * 32)
    assert parameter_count(more.model) == parameter_count(plain.model)


def test_shared_experts_hide_the_calls_where_the_runtime_overlaps_them() -> None:
    times = {on: predict(make_job(**big(), moe_shared_overlap=on)).step_time_s for on in (False, True)}
    assert times[True] < times[False]


def big() -> dict[str, Any]:
    return MIXED | {"hidden": 2048, "heads": 16, "expert_ffn": 1024, "shared_ffn": 8192, "seq": 2048, "ep": 8, "dp": 8}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"ep": 3, "dp": 6}, "Divisors: 1, 2, 4, 8"),
        ({"ep": 8, "dp": 4}, "Largest plan.ep that fits: 4"),
        ({"top_k": 9}, "experts = 8"),
        ({"etp": 5, "dp": 5}, "width 96"),
        ({"experts": None, "ep": 2, "dp": 2}, "no experts"),
        ({"tp": 2}, "sequence_parallel=true"),
        ({"layer_pattern": "D"}, "a layer E"),
        ({"router_groups": 3}, "router_groups"),
        ({"router_groups": 8}, "top_k = 2"),
        ({"recompute_modules": ("moe_act",)}, "selective"),
        ({"recompute": "selective", "recompute_modules": ("mla_up_proj",)}, "latent"),
    ],
)
def test_impossible_plans_say_what_to_write(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        make_job(**MIXED | {"global_batch": 120} | fields)


@pytest.mark.parametrize(("fields", "row"), [({"moe_grouped_gemm": "one"}, 1), ({"moe_grouped_gemm": "each"}, 8)])
def test_launches_of_experts_products(fields: dict[str, Any], row: int) -> None:
    workload = build(make_job(**MIXED, **fields))
    assert workload.ops.launches[rows(workload, workload.blocks[1], "expert up")[0]] == row


def test_without_shared_experts_and_one_expert_it_is_a_dense_layer_with_a_router() -> None:
    dense, one = build(make_job(**SMALL)), build(make_job(**SMALL, experts=1, top_k=1, expert_ffn=128))
    for phase in Phase:
        flops = [
            sum(
                float(w.ops.flops[r])
                for b in w.blocks[1:2]
                for r in (*b.forward, *b.backward)
                if w.ops.phase[r] == phase and "router" not in w.ops.names[r]
            )
            for w in (dense, one)
        ]
        assert flops[0] == flops[1]
    assert one.blocks[1].parameters - dense.blocks[1].parameters == 64
    assert not any(one.ops.comm[r] != Comm.NONE for r in (*one.blocks[1].forward, *one.blocks[1].backward))


def whole(job: Job) -> tuple[float, float]:
    """Experts' parameters and FLOPs of a layer's forward pass, over the ranks that share its experts."""
    workload, ranks = build(job), job.plan.ep * job.plan.etp
    up = [r for r in workload.blocks[1].forward if workload.ops.kind[r] == Kind.GROUPED_GEMM]
    return workload.blocks[1].expert_parameters * ranks, float(np.sum(workload.ops.flops[up]))


@pytest.mark.parametrize(("ep", "etp"), [(1, 1), (2, 1), (8, 1), (2, 4), (1, 2), (4, 2)])
def test_expert_ranks_together_are_the_whole_model(ep: int, etp: int) -> None:
    parameters, flops = whole(make_job(**MIXED, ep=ep, etp=etp, dp=8))
    assert parameters == 8 * 3 * 64 * 96
    assert flops == 2.0 * 32 * 2 * 3 * 64 * 96  # each rank's tokens are worked on once, somewhere


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_weights_by_index_are_copied_forward_and_summed_whole_backward(recompute: str) -> None:
    """Copies of all experts' weights stay until their backward, beside zeros of the larger product's whole gradient."""
    plain, indexed = (
        build(make_job(**MIXED, recompute=recompute, moe_grouped_gemm="each", moe_weights_by_index=flag)) for flag in (False, True)
    )
    layer, other = (next(block for block in one.blocks if block.expert_parameters) for one in (indexed, plain))
    up, down = 8 * 64 * 2 * 96, 8 * 64 * 96  # elements of 2 bytes
    kept = "saved" if recompute == "none" else "working"
    assert getattr(layer, kept) - getattr(other, kept) == 2.0 * (up + down)
    assert sum(indexed.ops.bytes[r] for r in layer.forward) - sum(plain.ops.bytes[r] for r in other.forward) == 2 * 2.0 * (
        up + down
    )
    zeros = sum(
        indexed.ops.bytes[r] for name in ("expert up", "expert down") for r in rows(indexed, layer, f"{name} zeros and sum")
    )
    assert zeros == 2.0 * (up + down) * (8 + 3 * 7 + 2)


def test_weights_by_index_cost_memory_and_time_only_where_they_are_trained() -> None:
    jobs = [make_job(**MIXED, moe_grouped_gemm="each", moe_weights_by_index=flag, recompute="full") for flag in (False, True)]
    plain, indexed = (predict(job) for job in jobs)
    assert indexed.step_time_s > plain.step_time_s
    assert max(s.workspace for s in indexed.memory) >= max(s.workspace for s in plain.memory) + 2.0 * 8 * 64 * 96 * 3
    lora = {"rank": 4, "targets": ["linear_qkv"], "experts": "parameters"}
    frozen = build(make_job(**MIXED, moe_grouped_gemm="each", moe_weights_by_index=True, lora=lora))
    assert not any(name.endswith("zeros and sum") for name in frozen.ops.names)
    assert any(name.endswith("up index") for name in frozen.ops.names)
