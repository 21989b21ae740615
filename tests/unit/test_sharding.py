"""What each way of sharding moves and keeps, by hand; and what it refuses."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from jobs import make_job

from windtunnel.base.errors import PlanError
from windtunnel.memory import memory_of
from windtunnel.network.groups.shape import rows_of
from windtunnel.predict import predict
from windtunnel.predict.price.costs import price
from windtunnel.predict.program.lower import lower
from windtunnel.spec import Job, load_job, load_runtime
from windtunnel.workload import Axis, Comm, Phase, build
from windtunnel.workload.identity import LAYERS as LAYER_KINDS
from windtunnel.workload.ops import Kind
from windtunnel.workload.passes.fsdp import INT4, INT8, blocks_ahead

MOE: dict[str, Any] = {"experts": 4, "top_k": 2, "tied_embeddings": False}


def job(**fields: Any) -> Job:
    """Two nodes of eight GPUs, two micro batches, everything sharded."""
    return make_job(
        **{
            "gpus": 16,
            "dp": 16,
            "global_batch": 32,
            "sharding": "fsdp",
            "attention": "flash",
            "tied_embeddings": False,
            "overlap_param_gather": True,
            "overlap_grad_reduce": True,
            "reduce_dtype": "bf16",
            **fields,
        }
    )


def moved(of: Job) -> dict[tuple[Comm, Axis], float]:
    """Bytes of a step's calls of sharded state, in all parameters' elements."""
    workload = build(of)
    total: dict[tuple[Comm, Axis], float] = {}
    for (comm, axis, size), times in lower(workload, price(workload)).calls[0].items():
        if axis != Axis.WORLD:
            total[comm, axis] = total.get((comm, axis), 0.0) + size * times
    return {key: size / workload.stage_parameters[0] for key, size in total.items()}


GATHER, SCATTER, ALL, REDUCE = Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.ALL_REDUCE
SHARD, NEAR, FAR, REPLICA = Axis.SHARD, Axis.NEAR, Axis.FAR, Axis.REPLICA

HIDDEN, LAYERS, VOCABULARY, POSITIONS = 1024, 4, 51200, 2048
IN_LAYER = 12 * HIDDEN**2 + 13 * HIDDEN
EMBEDDING, HEAD = (VOCABULARY + POSITIONS) * HIDDEN, VOCABULARY * HIDDEN + 2 * HIDDEN
ALL_PARAMETERS = EMBEDDING + LAYERS * IN_LAYER + HEAD
AGAIN = LAYERS * IN_LAYER / ALL_PARAMETERS
"""Share of the parameters that backward gathers again: those of layers. Embedding, last norm and head stay gathered."""


@pytest.mark.parametrize(
    "fields, expected",
    [
        # two micro batches, each forward and layers in backward, 2 bytes an element; gradients twice
        ({}, {(GATHER, SHARD): 4.0 + 4.0 * AGAIN, (SCATTER, SHARD): 4.0}),
        ({"root_unit": "joined"}, {(GATHER, SHARD): 4.0 + 4.0 * AGAIN, (SCATTER, SHARD): 4.0}),
        ({"root_unit": "freed"}, {(GATHER, SHARD): 8.0 - 4.0 * HEAD / ALL_PARAMETERS, (SCATTER, SHARD): 4.0}),
        ({"reshard_after_forward": False}, {(GATHER, SHARD): 4.0, (SCATTER, SHARD): 4.0}),
        ({"gradient_accumulation": "local"}, {(GATHER, SHARD): 4.0 + 4.0 * AGAIN, (SCATTER, SHARD): 2.0}),
        # hpZ, or reshard_after_forward = 8: backward inside the node
        ({"secondary_group": 8}, {(GATHER, SHARD): 4.0, (GATHER, NEAR): 4.0 * AGAIN, (SCATTER, SHARD): 4.0}),
        ({"quantised_gather": True}, {(GATHER, SHARD): (2 + 2 * AGAIN) * INT8, (SCATTER, SHARD): 4.0}),
        # qgZ: INT4 inside a node, an eighth of it across nodes
        ({"quantised_reduce": True}, {(GATHER, SHARD): 4.0 + 4.0 * AGAIN, (ALL, NEAR): 2 * INT4, (ALL, FAR): 2 * INT4 / 8}),
        (
            {"hierarchical_gather": True},
            {(GATHER, FAR): 0.5 + 0.5 * AGAIN, (GATHER, NEAR): 4.0 + 4.0 * AGAIN, (SCATTER, SHARD): 4.0},
        ),
        # HSDP sums its replicas' shards after each pass, MiCS once
        (
            {"sharding": "hsdp", "shard_group": 8},
            {(GATHER, SHARD): 4.0 + 4.0 * AGAIN, (SCATTER, SHARD): 4.0, (REDUCE, REPLICA): 4.0 / 8},
        ),
        (
            {"sharding": "mics", "shard_group": 8},
            {(GATHER, SHARD): 4.0 + 4.0 * AGAIN, (SCATTER, SHARD): 4.0, (REDUCE, REPLICA): 2.0 / 8},
        ),
        # Megatron's distributed optimizer in two instances: reduced once, parameters gathered once
        ({"sharding": "zero1", "shard_group": 8}, {(GATHER, SHARD): 2.0, (SCATTER, SHARD): 2.0, (REDUCE, REPLICA): 2.0 / 8}),
        ({"sharding": "none"}, {(REDUCE, SHARD): 2.0}),
        ({"sharding": "none", "gradient_accumulation": "reduced"}, {(REDUCE, SHARD): 4.0}),
    ],
)
def test_what_a_step_moves(fields: dict[str, Any], expected: dict[tuple[Comm, Axis], float]) -> None:
    assert moved(job(**fields)) == pytest.approx(expected)


def test_zero_plus_plus_sends_a_quarter_across_nodes() -> None:
    """Table 1 of arXiv 2306.10209: of M for each of forward, backward and gradients 0.5 M + 0 + 0.25 M are left. It counts as if
    nothing that is used soon again stayed gathered."""

    def across(of: Job) -> float:
        """What passes a node's boundary: a ring's buffer once, and eight ranks' parts of the second all-to-all."""
        return sum(size * {SHARD: 1, FAR: 8}.get(axis, 0) for (_, axis), size in moved(of).items())

    plain = job(reuse_distance=0)
    plus = job(reuse_distance=0, secondary_group=8, quantised_gather=True, quantised_reduce=True)
    assert across(plus) / across(plain) == pytest.approx(0.25, rel=0.01)
    assert predict(plus).breakdown["exposed_parameter_gather"] < predict(plain).breakdown["exposed_parameter_gather"]


def test_experts_shard_inside_their_replica() -> None:
    """16 ranks, ep 4: four copies of each expert; two replicas of eight ranks hold two each."""
    of = job(**MOE, ep=4, sharding="hsdp", shard_group=8)
    assert (of.expert_dp, of.replicas, of.expert_shard_ranks) == (4, 2, 2)
    shares = moved(of)
    assert shares[GATHER, Axis.EXPERT_SHARD] > 0.0 and shares[REDUCE, Axis.EXPERT_REPLICA] > 0.0
    sizes, placement = {"tp": 1, "cp": 1, "dp": 16, "pp": 1}, ("tp", "cp", "ep", "dp", "pp")
    near = rows_of(Axis.EXPERT_SHARD, sizes, placement, 8, 4, experts=2)
    far = rows_of(Axis.EXPERT_REPLICA, sizes, placement, 8, 4, experts=2)
    assert near[0].tolist() == [0, 4] and far[0].tolist() == [0, 8]
    dense, expert = build(of).stage_parameters[0] - build(of).stage_experts[0], build(of).stage_experts[0]
    held = memory_of(of, build(of))[0].optimizer
    assert held == pytest.approx(8.0 * (dense / 8 + expert / 2))  # two moments; the fp32 shards are the weights


def test_near_and_far_ranks_of_a_sharding_group() -> None:
    sizes, placement = {"tp": 2, "cp": 1, "dp": 8, "pp": 1}, ("tp", "cp", "ep", "dp", "pp")
    assert rows_of(NEAR, sizes, placement, 8, 1, near=4)[0].tolist() == [0, 2, 4, 6]
    assert rows_of(FAR, sizes, placement, 8, 1, near=4)[0].tolist() == [0, 8]


def test_a_second_copy_and_whole_gradients_take_memory() -> None:
    plain, second, local = (memory_of(j, build(j))[0] for j in (job(), job(secondary_group=8), job(gradient_accumulation="local")))
    parameters = build(job()).stage_parameters[0]
    assert second.buffers - plain.buffers == pytest.approx(2.0 * parameters / 8)
    assert local.gradients == pytest.approx(16 * plain.gradients)


def test_prefetch_depth() -> None:
    """A layer has 12.6 M parameters, its largest module 4.2 M."""

    def ahead(**fields: Any) -> int:
        return blocks_ahead(build(job(**fields)), 0)

    assert ahead() == 1 and ahead(prefetch_blocks=3) == 3 and ahead(prefetch_blocks=0) == 0
    assert ahead(prefetch_bucket=0.0) == 0 and ahead(prefetch_bucket=1e6) == 1 and ahead(prefetch_bucket=3e7) == 2
    assert ahead(prefetch_bucket=1e9, live_parameters=4e7) == 2
    assert ahead(prefetch_bucket=1e9, live_parameters=1e7) == 1  # two modules
    assert ahead(prefetch_bucket=1e9, live_parameters=5e6) == 0
    exposed = [predict(job(seq=512, prefetch_blocks=n)).breakdown["exposed_parameter_gather"] for n in (0, 1)]
    assert exposed[1] < exposed[0]
    held = [memory_of(j, build(j))[0].buffers for j in (job(prefetch_blocks=1), job(prefetch_blocks=2))]
    assert held[1] > held[0]


def test_small_tensors_stay_whole() -> None:
    """Norms and biases below the threshold are gathered once a step, after the update, and held in 16 bits."""
    plain, kept = job(), job(persistent_parameters=1e4)
    # of a layer: two norms, two biases of h that end a residual branch; and the last norm
    in_layers, outside = LAYERS * 6 * HIDDEN / ALL_PARAMETERS, 2 * HIDDEN / ALL_PARAMETERS
    less = 8.0 * in_layers + 4.0 * outside
    assert moved(kept)[GATHER, SHARD] == pytest.approx(moved(plain)[GATHER, SHARD] - less + 2.0 * (in_layers + outside))


def calls_of(of: Job, comm: Comm) -> int:
    workload = build(of)
    made = lower(workload, price(workload)).calls[0]
    return sum(times for (kind, axis, _), times in made.items() if (kind, axis) == (comm, SHARD))


def test_a_call_for_each_tensor() -> None:
    each, whole = job(sharded_calls="tensor"), job()
    assert moved(each) == pytest.approx(moved(whole))
    blocks = {block.name: len(block.tensors.weights) for block in build(whole).blocks}
    in_layers = LAYERS * blocks["layer"]
    tensors = blocks["embedding"] + in_layers + blocks["head"]
    assert calls_of(whole, GATHER) == 2 * (LAYERS + 2 + LAYERS) and calls_of(each, GATHER) == 2 * (tensors + in_layers)
    assert calls_of(each, SCATTER) == 2 * tensors
    assert predict(each).step_time_s > predict(whole).step_time_s  # the same bytes, more latencies


def test_the_root_unit_is_one_call() -> None:
    """FSDP's embedding, last norm and head: gathered before everything in forward, and reduced behind everything in backward."""
    joined, apart, freed = (job(root_unit=unit) for unit in ("joined", "kept", "freed"))
    assert [calls_of(of, GATHER) for of in (joined, apart, freed)] == [2 * (2 * LAYERS + more) for more in (1, 2, 3)]
    assert [calls_of(of, SCATTER) for of in (joined, apart)] == [2 * (LAYERS + 1), 2 * (LAYERS + 2)]
    exposed = [
        sum(predict(of).breakdown[f"exposed_{call}"] for call in ("parameter_gather", "gradient_reduce")) for of in (joined, apart)
    ]
    assert exposed[0] > exposed[1]
    stages = job(root_unit="joined", dp=8, pp=2, layers=4)  # each stage has its part of the root unit
    assert calls_of(stages, GATHER) == stages.micro_batches * (2 * 2 + 1)


@pytest.mark.parametrize(
    ("recompute", "between", "stays", "whole"),
    [
        # the head twice, and the bias that ends a layer twice
        ("none", 2 * HEAD + 2 * HIDDEN, 4 * HIDDEN**2 + HIDDEN, 2 * (LAYERS * IN_LAYER + HEAD)),
        # the head twice, and the layer up to its first large matrix, once: the layer runs again
        ("full", 2 * HEAD + IN_LAYER - 4 * HIDDEN**2 - 4 * HIDDEN, 4 * HIDDEN**2 + 4 * HIDDEN, 3 * LAYERS * IN_LAYER + 2 * HEAD),
    ],
)
def test_what_is_used_again_soon_stays_gathered(recompute: str, between: int, stays: int, whole: int) -> None:
    """DeepSpeed's `__params_to_release`: a parameter stays if the modules between two uses of it have less than the distance."""

    def again(distance: float) -> float:
        return (moved(job(reuse_distance=distance, recompute=recompute))[GATHER, SHARD] - 4.0) / 4.0 * ALL_PARAMETERS

    assert again(0) == pytest.approx(ALL_PARAMETERS, rel=1e-9)
    assert again(1) == pytest.approx(ALL_PARAMETERS - VOCABULARY * HIDDEN, rel=1e-9)  # the head's matrix, not the norm before it
    assert again(2 * HEAD) == pytest.approx(ALL_PARAMETERS - HEAD, rel=1e-9)
    assert again(between + 1) - again(between) == pytest.approx(
        -4 * HIDDEN**2 - (4 * HIDDEN if recompute == "full" else 0), rel=1e-6
    )
    assert again(between + 1) == pytest.approx(ALL_PARAMETERS - HEAD - stays, rel=1e-9)
    assert again(whole) == pytest.approx(EMBEDDING, rel=1e-9)
    assert again(whole + 1) == pytest.approx(0.0, abs=1.0)


def test_deepspeed_keeps_what_it_uses_again_within_a_thousand_million_elements() -> None:
    """Captured of DeepSpeed 0.19.8 (docs/capture.md): of a Llama of 4 layers the embedding alone is gathered again."""
    sizes = {"layers": 4, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192}
    small = load_job(
        "llama3-8b-8xh100",
        [*(f"model.{name}={size}" for name, size in sizes.items()), "runtime.framework=deepspeed", "plan.sharding=zero3"],
    )
    embedding, whole = 128256 * 2048, build(small).stage_parameters[0]
    sharded = whole - (2 * 4 + 1) * 2048  # norms are below the threshold
    assert moved(small)[GATHER, SHARD] * whole == pytest.approx(small.micro_batches * 2 * (sharded + embedding) + 2 * 9 * 2048)


def test_what_does_not_stay_alive_is_gathered_for_recomputing_and_for_backward() -> None:
    layer = next(block for block in build(job()).blocks if block.name == "layer")
    fits = job(recompute="full", live_parameters=layer.parameters)
    crowded = job(recompute="full", live_parameters=0.9 * layer.parameters)
    share = job().model.layers * layer.parameters / build(job()).stage_parameters[0]
    assert share == AGAIN
    assert moved(fits)[GATHER, SHARD] == pytest.approx(4.0 + 4.0 * AGAIN)
    assert moved(crowded)[GATHER, SHARD] == pytest.approx(4.0 + 8.0 * AGAIN)  # two micro batches of 2 bytes an element
    kept = job(live_parameters=0.9 * layer.parameters)
    assert moved(kept)[GATHER, SHARD] == pytest.approx(4.0 + 4.0 * AGAIN)  # nothing is recomputed


def test_zero2_copies_gradients_into_its_bucket() -> None:
    of = build(job(sharding="zero2", contiguous_gradients=True, overlap_param_gather=False))
    layer = of.blocks[1]
    copies = [float(of.ops.bytes[r]) for r in layer.backward if of.ops.phase[r] == Phase.GRADIENT_SYNC]
    assert copies == [4.0 * layer.parameters]


def test_parameters_are_gathered_in_buckets() -> None:
    fields: dict[str, Any] = {"sharding": "zero1", "overlap_param_gather": False}

    def count(of: Job) -> int:
        workload = build(of)
        return sum(n for (comm, _, _), n in lower(workload, price(workload)).calls[0].items() if comm == GATHER)

    assert count(job(**fields)) == 1
    assert count(job(**fields, gather_bucket=20e6)) == -(-int(2 * build(job()).stage_parameters[0]) // 20_000_000)


def test_torchs_pipelines_gather_and_reduce_once_a_step() -> None:
    """torch.distributed.pipelining, stage.py: parameters stay gathered and gradients whole until the last micro batch. As captured
    from torchtitan 0.2.2 (docs/capture.md); a vocabulary cut over tp adds the other ranks' rows to the embedding's gradient."""
    fields: dict[str, Any] = {"pp": 2, "tp": 2, "dp": 4, "sequence_parallel": True, "global_batch": 32, "reduce_dtype": "fp32"}
    whole = {**fields, "whole_in_pipeline": True}
    calls, each = moved(job(**whole)), moved(job(**fields))
    assert (calls[GATHER, SHARD], calls[SCATTER, SHARD]) == (pytest.approx(2.0), pytest.approx(4.0))
    assert each[SCATTER, SHARD] == pytest.approx(8 * calls[SCATTER, SHARD])
    one, last = build(job(**whole)), build(job(**{**whole, "collects_outputs": True}))
    kept, more = memory_of(job(**whole), one), memory_of(job(**{**whole, "collects_outputs": True}), last)
    assert kept[0].gradients == pytest.approx(4.0 * one.stage_parameters[0])
    assert [after.buffers - before.buffers for before, after in zip(kept, more, strict=True)] == [
        0.0,
        7 * 2 * 1024 * VOCABULARY / 2,
    ]
    layer = max(block.parameters for block in one.blocks if block.key.kind in LAYER_KINDS)
    rest = 2 * (one.stage_parameters[0] + layer) + 2 * one.boundary
    assert kept[0].buffers == pytest.approx(rest + 4 * VOCABULARY * HIDDEN / 2)


def test_dtensor_keeps_what_it_gathers_for_the_weights_gradient() -> None:
    """A layer of two column-parallel products, and the head: Megatron-Core gathers each input once more."""
    fields: dict[str, Any] = {"tp": 2, "dp": 8, "sequence_parallel": True}

    def gathers(of: Job) -> list[int]:
        workload = build(of)
        calls = (workload.ops.comm == GATHER) & (workload.ops.axis == Axis.TP) & (workload.ops.phase == Phase.WGRAD)
        return [int(calls[block.backward].sum()) for block in workload.blocks]

    assert gathers(job(**fields)) == [0, 2, 1]
    assert gathers(job(**fields, keeps_gathered=True)) == [0, 0, 0]
    assert [load_runtime(name).keeps_gathered for name in ("torchtitan", "megatron-core")] == [True, False]


def test_dtensor_copies_what_it_gathers_and_scatters_along_the_sequence() -> None:
    """Two gathers and two scatters of a layer forward, and as many backward: a copy of the whole tensor behind or before each."""
    fields: dict[str, Any] = {"tp": 2, "dp": 8, "sequence_parallel": True, "keeps_gathered": True, "micro_batch": 2}

    def copies(**more: Any) -> dict[Phase, int]:
        """Copies of a layer, each of which stands beside its call."""
        workload = build(job(**{**fields, **more}))
        ops, (layer,) = workload.ops, [block for block in workload.blocks if block.key.kind in LAYER_KINDS]
        rows = [int(row) for part in (layer.forward, layer.backward) for row in part if ops.kind[row] == Kind.COPY]
        assert all(ops.comm[row - 1] == GATHER or ops.comm[row + 1] == SCATTER for row in rows)
        assert {float(ops.bytes[row]) for row in rows} <= {2.0 * 2 * workload.job.plan.micro_batch * 1024 * HIDDEN}
        return dict(Counter(Phase(ops.phase[row]) for row in rows))

    assert copies() == {}
    assert copies(sequence_copies="all") == copies(sequence_copies="batched") == {Phase.FORWARD: 4, Phase.DGRAD: 4}
    assert copies(sequence_copies="all", micro_batch=1) == {Phase.FORWARD: 4, Phase.DGRAD: 4}
    assert copies(sequence_copies="batched", micro_batch=1) == {Phase.FORWARD: 2, Phase.DGRAD: 2}
    assert copies(sequence_copies="all", overlap_tp=True) == copies(sequence_copies="all", tp=1, dp=16) == {}


def test_a_chained_optimizer_gathers_everything_for_each_of_its_parts() -> None:
    """Megatron-Core 0.9 to 0.16: `start_param_sync` of the whole model behind the update of experts and behind that of all else."""
    fields: dict[str, Any] = {**MOE, "ep": 4, "sharding": "zero1", "overlap_param_gather": False}
    once, twice = moved(job(**fields)), moved(job(**fields, gathers_after_each_optimizer=True))
    gathers = {(GATHER, SHARD), (GATHER, Axis.EXPERT_DP)}
    assert {call: size / once[call] for call, size in twice.items() if size != once[call]} == dict.fromkeys(gathers, 2.0)
    beside, dense = {**fields, "overlap_param_gather": True}, {"sharding": "zero1", "overlap_param_gather": False}
    for other in (beside, dense):  # gathered ahead of use, or by one optimizer
        assert moved(job(**other, gathers_after_each_optimizer=True)) == moved(job(**other))
    assert [load_runtime("megatron-core", version=v).gathers_after_each_optimizer for v in ("0.8", "0.9", "0.16")] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    "fields, path, says",
    [
        ({"sharding": "zero1", "quantised_gather": True}, "plan.quantised_gather", "zero3"),
        ({"sharding": "zero2", "quantised_reduce": True}, "plan.quantised_reduce", "zero3"),
        ({"secondary_group": 3}, "plan.secondary_group", "divisor of the 16 ranks"),
        ({"secondary_group": 1}, "plan.secondary_group", "reshard_after_forward = false"),
        ({"secondary_group": 8, "reshard_after_forward": False}, "plan.secondary_group", "not gathered again"),
        ({"sharding": "mics"}, "plan.shard_group", "several copies"),
        ({"sharding": "hsdp", "shard_group": 8, "hierarchical_gather": True}, "plan.hierarchical_gather", "in one node"),
        ({"sharding": "zero2", "gradient_accumulation": "local"}, "plan.gradient_accumulation", "shard of the gradients"),
        ({**MOE, "ep": 4, "sharding": "hsdp", "shard_group": 2}, "plan.shard_group", "copies of each expert"),
    ],
)
def test_impossible_plans_say_why(fields: dict[str, Any], path: str, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        job(**fields)
    assert str(caught.value).startswith(path) and says in str(caught.value)


def test_framework_truths_by_version() -> None:
    """What each framework gathers, prefetches and exchanges by default, as its entry states with a source."""

    def of(name: str, **fields: Any) -> Any:
        return load_runtime(name, **fields)

    assert of("deepspeed").prefetch_bucket == 5e7 and of("deepspeed", version="0.4").prefetch_bucket == 0
    assert (of("deepspeed").cp_kind, of("torchtitan").cp_kind, of("meta").cp_kind, of("nemo").cp_kind) == (
        "a2a",
        "all_gather",
        "all_gather",
        "p2p",
    )
    assert of("torchtitan").cp_library == "torch"
    assert not of("torchtitan", launch="compile").fused_cross_entropy
    assert of("torchtitan", version="2025.06", launch="compile").fused_cross_entropy
    assert [of("fsdp", version=v).attention_library for v in ("0.3", "0.6", "2.2")] == ["fa1", "fa2", "fa2"]
    assert of("fsdp").attention_library == "cudnn"
    assert of("megatron-deepspeed").attention == "fused_softmax" and of("megatron-deepspeed", version="2023").attention == "flash"
    assert of("maxtext").launch == "compile" and of("maxtext").host.launch < 1e-6
