"""How frameworks run experts: the host's wait, graphs of modules, overlapped calls, biases, fused kernels, uneven load."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jobs import make_job

from windtunnel.base.errors import PlanError
from windtunnel.predict import predict
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.price.host import host_seconds
from windtunnel.predict.program.passes import host_of_blocks
from windtunnel.spec import Host
from windtunnel.spec.job import Job
from windtunnel.workload import Workload, build
from windtunnel.workload.blocks.routing import busiest, routing
from windtunnel.workload.schedules import Pass, overlapped_order

MIXED: dict[str, Any] = {
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
    "global_batch": 8,
    "experts": 8,
    "top_k": 2,
    "expert_ffn": 96,
    "ep": 4,
    "dp": 4,
    "moe_grouped_gemm": "each",
}


def rows(workload: Workload, name: str, block: int = 1) -> list[int]:
    of = workload.blocks[block]
    return [r for r in (*of.forward, *of.backward) if workload.ops.names[r] == name]


def layer_host(job: Job) -> tuple[float, float]:
    """Host seconds of a layer's forward and backward rows."""
    workload = build(job)
    cost, block = host_seconds(workload, CallBook(job).group), workload.blocks[1]
    return float(cost[block.forward].sum()), float(cost[block.backward].sum())


def test_the_host_waits_once_a_layer_forward_and_not_backward() -> None:
    workload = build(make_job(**MIXED, moe_host_wait=True))
    block = workload.blocks[1]
    assert workload.ops.sync[block.forward].sum() == 1 and workload.ops.sync[block.backward].sum() == 0
    assert rows(workload, "token counts to host")[0] < rows(workload, "dispatch")[0]
    again = build(make_job(**MIXED, moe_host_wait=True, recompute="full"))
    assert again.ops.sync[again.blocks[1].backward].sum() == 1  # runs again, and waits again
    padded = build(make_job(**MIXED, moe_host_wait=True, moe_capacity=1.0, moe_pad_to_capacity=True))
    assert not padded.ops.sync.any()


def test_a_wait_costs_what_the_host_was_ahead() -> None:
    free, waits = (predict(make_job(**MIXED, moe_host_wait=wait)).step_time_s for wait in (False, True))
    back = predict(make_job(**MIXED, moe_host_wait=True, host=Host(launch=5e-6, wait=50e-6))).step_time_s
    assert free < waits < back
    # a wait of 50 us more before two layers of two micro batches, all in a host-bound step
    assert back - waits == pytest.approx(2 * 2 * 50e-6, rel=0.05)


def test_a_graph_costs_one_launch() -> None:
    eager = make_job(**MIXED, host=Host(launch=10e-6, graph=15e-6))
    graphs = make_job(**MIXED, host=Host(launch=10e-6, graph=15e-6), graph_scope=("attn",))
    workload = build(eager)
    block = workload.blocks[1]
    for part, (before, after) in enumerate(zip(layer_host(eager), layer_host(graphs), strict=True)):
        index = block.backward if part else block.forward
        attention = [r for r in index if workload.ops.modules[r] == "attention"]
        launches = sum(int(workload.ops.launches[r]) for r in attention)
        assert before - after == pytest.approx(launches * 10e-6 - 15e-6)


def test_a_graph_of_router_and_counts_ends_where_the_host_waits() -> None:
    workload = build(make_job(**MIXED, moe_host_wait=True, graph_scope=("attn", "moe_router", "moe_preprocess")))
    graphed = {workload.ops.names[r] for r in workload.blocks[1].forward if workload.ops.graphed[r]}
    assert {"norm1", "attention", "norm2", "router", "top-k", "token counts"} <= graphed
    assert not graphed & {"token counts to host", "dispatch", "expert up", "combine"}


@pytest.mark.parametrize("beside", [False, True])
def test_shared_experts_are_in_the_router_s_graph_unless_they_run_beside_the_dispatch(beside: bool) -> None:
    fields = {**MIXED, "shared_ffn": 64, "moe_latent": 32, "moe_host_wait": True, "moe_shared_overlap": beside}
    workload = build(make_job(**fields, graph_scope=("moe_router", "moe_preprocess")))
    graphed = {workload.ops.names[r] for r in workload.blocks[1].forward if workload.ops.graphed[r]}
    assert ("shared expert up" in graphed) != beside and "latent down" in graphed
    waits = rows(workload, "token counts to host")[0]  # after what the router's graph holds
    assert (rows(workload, "shared expert down")[0] < waits) != beside and rows(workload, "latent down")[0] < waits


def test_modules_of_graphs_take_none_of_a_layer_s_seconds() -> None:
    def hosts(direction: Pass, **fields: Any) -> list[float]:
        return host_of_blocks(build(make_job(**MIXED, host=Host(launch=5e-6, layer=2e-3), **fields)))[direction]

    layer = 1
    assert hosts(Pass.FORWARD)[layer] == hosts(Pass.BACKWARD)[layer] == pytest.approx(2e-3)
    assert hosts(Pass.FORWARD, graph_scope=("attn",))[layer] == pytest.approx(1e-3)  # experts alone are eager
    assert hosts(Pass.FORWARD, graph_scope=("attn", "moe_router"))[layer] == pytest.approx(1e-3)
    assert hosts(Pass.FORWARD, graph_scope=("attn", "moe"))[layer] == 0.0
    assert hosts(Pass.WEIGHT_GRADIENT, graph_scope=("attn",))[layer] == 0.0


def test_modules_cost_host_time_beside_their_launches() -> None:
    base = np.array(layer_host(make_job(**MIXED)))
    linear = np.array(layer_host(make_job(**MIXED, host=Host(launch=5e-6, linear=100e-6)))) - base
    assert linear == pytest.approx([5 * 100e-6] * 2)  # qkv, out, router, up, down
    expert = np.array(layer_host(make_job(**MIXED, host=Host(launch=5e-6, expert=30e-6)))) - base
    assert expert == pytest.approx([2 * 2 * 30e-6] * 2)  # two layers of two local experts
    mixture = np.array(layer_host(make_job(**MIXED, host=Host(launch=5e-6, mixture=1e-3)))) - base
    assert mixture == pytest.approx([1e-3] * 2)
    graphed = {**MIXED, "graph_scope": ("moe_router", "moe_preprocess")}
    router = np.array(layer_host(make_job(**graphed, host=Host(launch=5e-6, mixture=1e-3))))
    assert router - layer_host(make_job(**graphed, host=Host(launch=5e-6))) == pytest.approx([5e-4] * 2)  # dispatch and experts
    apart = {**MIXED, "moe_grouped_gemm": "modules"}
    host = Host(launch=5e-6, mixture=1e-3, mixture_of_modules=4e-4, expert=30e-6, expert_of_modules=70e-6)
    assert np.array(layer_host(make_job(**apart, host=host))) - base == pytest.approx([4e-4 + 2 * 2 * 70e-6] * 2)


@pytest.mark.parametrize(("stages", "chunks", "micro_batches"), [(1, 1, 4), (2, 2, 4), (4, 3, 8), (4, 2, 4)])
def test_pairs_hold_a_forward_and_a_backward_that_do_not_need_each_other(stages: int, chunks: int, micro_batches: int) -> None:
    for order in overlapped_order(stages, chunks, micro_batches):
        passes = sorted((a.direction, a.chunk, a.micro_batch) for a in order)
        wanted = [(d, c, m) for d in (Pass.FORWARD, Pass.BACKWARD) for c in range(chunks) for m in range(micro_batches)]
        assert passes == wanted
        for place, action in enumerate(order):
            if action.beside_next:
                beside = order[place + 1]
                assert action.direction is Pass.FORWARD and beside.direction is Pass.BACKWARD
                assert (action.chunk, action.micro_batch) != (beside.chunk, beside.micro_batch)
    if stages == 1:
        assert sum(a.beside_next for a in order) == micro_batches - 1


def test_overlap_hides_travelling_tokens() -> None:
    big = MIXED | {"hidden": 2048, "seq": 2048, "expert_ffn": 1024, "heads": 16, "global_batch": 32}
    plain, overlap = (predict(make_job(**big, moe_a2a_overlap=on)) for on in (False, True))
    exposed = [p.breakdown["exposed_expert_parallel"] for p in (plain, overlap)]
    assert exposed[1] < 0.6 * exposed[0] and overlap.step_time_s < plain.step_time_s
    layer = build(make_job(**big)).blocks[1].saved
    grown = overlap.memory[0].activations - plain.memory[0].activations
    assert 0.5 * layer < grown < 1.5 * layer  # the forward pass is a layer ahead of the backward pass beside it


def test_biases_of_experts_are_parameters_and_kernels() -> None:
    plain, biased = (build(make_job(**MIXED | {"linear_bias": bias})) for bias in (False, True))
    ops = biased.ops
    assert not rows(plain, "expert down bias")
    (forward,), (backward,) = rows(biased, "expert down bias"), rows(biased, "expert down bias grad")
    taken = 32 * 2 * 64  # copies of this rank times hidden numbers
    assert ops.bytes[forward] == taken * 28 and ops.bytes[backward] == taken * 40
    assert ops.launches[forward] == 2 * 2 + 2 and ops.launches[backward] == 5 * 2 + 2
    more = biased.blocks[1].expert_parameters - plain.blocks[1].expert_parameters
    assert more == 2 * (2 * 96 + 64)


def test_a_clamped_activation_step_by_step() -> None:
    fused, steps = (build(make_job(**MIXED, clamped_activation=True, fused_clamp=on)) for on in (True, False))
    taken = 32 * 2 * 96  # copies of this rank times inner numbers
    for workload, forward, backward, launches in ((fused, 6, 10, (1, 1)), (steps, 34, 72, (7, 11))):
        (ahead,), (back,) = rows(workload, "gated activation"), rows(workload, "gated activation grad")
        assert (workload.ops.bytes[ahead], workload.ops.bytes[back]) == (taken * forward, taken * backward)
        assert (workload.ops.launches[ahead], workload.ops.launches[back]) == launches
    kept = steps.blocks[1].saved - fused.blocks[1].saved
    assert kept == taken * 4 * 2
    recompute = {"recompute": "selective", "recompute_modules": ("moe_act",)}
    again = [build(make_job(**MIXED, **recompute, clamped_activation=True, fused_clamp=on)) for on in (True, False)]
    assert again[0].blocks[1].saved == again[1].blocks[1].saved  # recompute brings all of it back but the input


def test_clamps_of_a_biased_gate_are_kernels_of_their_own() -> None:
    """Inner numbers of 2 bytes: two clamps and their join move 8, the fused rest 3; backward the rest 5, two masks 6, a join 4."""
    biased = MIXED | {"linear_bias": True, "clamped_activation": True}
    fused, apart = (build(make_job(**biased, clamp_apart=on)) for on in (False, True))
    taken = 32 * 2 * 96
    for workload, forward, backward, launches in ((fused, 6, 10, 1), (apart, 22, 30, 4)):
        (ahead,), (back,) = rows(workload, "gated activation"), rows(workload, "gated activation grad")
        assert (workload.ops.bytes[ahead], workload.ops.bytes[back]) == (taken * forward, taken * backward)
        assert workload.ops.launches[ahead] == workload.ops.launches[back] == launches
    assert apart.blocks[1].saved - fused.blocks[1].saved == taken * 2 * 2  # what the clamps read and what they wrote
    unbiased = build(make_job(**MIXED, clamped_activation=True, clamp_apart=True))
    assert unbiased.ops.bytes[rows(unbiased, "gated activation")[0]] == taken * 6  # Megatron-Core's clamped SwiGLU is fused


def test_fused_experts_are_products_alone() -> None:
    workload = build(make_job(**MIXED | {"linear_bias": True}, moe_fused_mlp=True))
    names = [workload.ops.names[r] for r in (*workload.blocks[1].forward, *workload.blocks[1].backward)]
    assert not any("activation" in name or name.startswith("expert") and "bias" in name for name in names)
    assert names.count("expert up") == names.count("expert down wgrad") == 1
    assert all(workload.ops.launches[r] == 1 for r in rows(workload, "expert up"))


def test_the_busiest_rank_under_zipf() -> None:
    assert busiest(64, 4, 8, 0.0, 0) == pytest.approx(1.0)
    # two experts, one chosen, skew 1: shares 2/3 and 1/3, so the busier of two ranks has 4/3 of the mean
    assert busiest(2, 1, 2, 1.0, 3) == pytest.approx(4 / 3)
    # no expert takes a token twice: with two chosen of two, both take every token
    assert busiest(2, 2, 2, 5.0, 0) == pytest.approx(1.0)
    loads = [busiest(64, 4, 8, skew, 1) for skew in (0.0, 0.3, 0.6, 1.0)]
    assert loads == sorted(loads) and loads[-1] > 1.5
    assert routing(make_job(**MIXED, moe_skew=1.0), 32, 2.0).load == busiest(8, 2, 4, 1.0, 0)


def test_padded_experts_compute_their_capacity() -> None:
    assert routing(make_job(**MIXED, moe_capacity=1.5), 32, 2.0).load == 1.0
    assert routing(make_job(**MIXED, moe_capacity=1.5, moe_pad_to_capacity=True), 32, 2.0).load == 1.5


@pytest.mark.parametrize(
    ("fields", "path", "word"),
    [
        ({"moe_host_wait": True, "launch": "cuda_graph"}, "runtime.launch", "moe_host_wait=false"),
        ({"moe_host_wait": True, "graph_scope": ("moe",)}, "runtime.graph_scope", "moe_router"),
        ({"graph_scope": ("attn",), "launch": "compile"}, "runtime.graph_scope", "launch=eager"),
        ({"graph_scope": ("mlp",)}, "runtime.graph_scope", "moe_router"),
        ({"moe_pad_to_capacity": True}, "runtime.moe_pad_to_capacity", "moe_capacity=1.0"),
        ({"moe_skew": 1.0, "moe_imbalance": 1.5}, "runtime.moe_skew", "moe_imbalance"),
        ({"moe_a2a_overlap": True, "ep": 1}, "runtime.moe_a2a_overlap", "plan.ep"),
        ({"moe_a2a_overlap": True, "recompute": "full"}, "runtime.moe_a2a_overlap", "selective"),
        ({"moe_a2a_overlap": True, "pp": 2}, "runtime.moe_a2a_overlap", "vpp"),
    ],
)
def test_switches_that_cannot_be(fields: dict[str, Any], path: str, word: str) -> None:
    with pytest.raises(PlanError) as caught:
        make_job(**MIXED | fields)
    assert caught.value.path == path and word in str(caught.value)


@pytest.mark.parametrize(
    "fields", [{"moe_a2a_overlap": True}, {"moe_skew": 1.0}, {"graph_scope": ("moe_router",)}, {"moe_pad_to_capacity": True}]
)
def test_switches_of_experts_are_refused_without_them(fields: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="experts"):
        make_job(**fields)
