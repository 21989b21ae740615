"""Memory formulas: state by ZeRO stage, activations by recompute level, in-flight micro batches, the allocator."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jobs import make_job

from windtunnel.base.errors import SpecError
from windtunnel.memory import activation_walk, curve, memory_of
from windtunnel.memory.buffers import buffers_of
from windtunnel.memory.habits import habits
from windtunnel.memory.state import step_bytes
from windtunnel.memory.walk import block_needs
from windtunnel.spec import Job
from windtunnel.spec.model import Lora
from windtunnel.workload import build

GIB = 2.0**30
LLAMA = {"activation": "swiglu", "norm": "rmsnorm", "position": "rope", "tied_embeddings": False, "linear_bias": False}
SBH = 1024 * 1024  # tokens of a micro batch x hidden of the small job


def layer_bytes(job: Job) -> float:
    return block_needs(build(job))[1].saved


@pytest.mark.parametrize(
    "tp, sp, recompute, per_sbh",
    [
        (1, False, "none", 34 + 5 * 16 * 1024 / 1024),
        (4, False, "none", 10 + 24 / 4 + 5 * 16 / 4),
        (4, True, "none", (34 + 5 * 16) / 4),
        (4, True, "selective", 34 / 4),
        (4, False, "full", 2),
        (4, True, "full", 2 / 4),
    ],
)
def test_one_layers_activations_are_korthikanti_table_2(tp: int, sp: bool, recompute: str, per_sbh: float) -> None:
    job = make_job(tp=tp, sequence_parallel=sp, recompute=recompute, dropout=True)
    assert layer_bytes(job) == pytest.approx(per_sbh * SBH)


@pytest.mark.parametrize(
    "sharding, weights, gradients, optimizer",
    [
        ("none", 2, 4, 12),
        ("zero1", 2, 4, 12 / 4),
        ("zero2", 2, 4 / 4, 12 / 4),
        ("zero3", 2 / 4, 4 / 4, 12 / 4),
        ("fsdp", 4 / 4, 4 / 4, 8 / 4),
    ],
)
def test_state_is_eighteen_bytes_per_parameter_before_sharding(
    sharding: str, weights: float, gradients: float, optimizer: float
) -> None:
    job = make_job(dp=4, sharding=sharding)
    workload = build(job)
    memory, count = memory_of(job, workload)[0], workload.stage_parameters[0]
    found = (memory.weights / count, memory.gradients / count, memory.optimizer / count)
    assert found == pytest.approx((weights, gradients, optimizer))


def test_hybrid_sharding_divides_by_its_group_only() -> None:
    jobs = make_job(dp=8, sharding="fsdp"), make_job(dp=8, sharding="hsdp", shard_group=4)
    whole, half = (memory_of(job, build(job))[0] for job in jobs)
    assert half.optimizer == pytest.approx(2 * whole.optimizer)


def test_first_stage_of_1f1b_keeps_as_many_micro_batches_as_there_are_stages() -> None:
    job = make_job(pp=4, global_batch=16, recompute="full", position="rope", layers=8)
    walks = [activation_walk(build(job), stage) for stage in range(4)]
    boundary = 2 * SBH
    assert [walk.max() / (2 * boundary) for walk in walks[:3]] == pytest.approx([4, 3, 2])
    assert all(walk[-1] == 0.0 for walk in walks)


def test_interleaving_costs_the_published_factor_more() -> None:
    plain = make_job(pp=4, global_batch=16, layers=32, recompute="full", position="rope")
    cut = make_job(pp=4, vpp=4, global_batch=16, layers=32, recompute="full", position="rope")
    more = activation_walk(build(cut), 0).max() / activation_walk(build(plain), 0).max()
    assert more == pytest.approx(1 + (4 - 1) / (4 * 4))  # 1 + (p - 1) / (p m), Korthikanti et al. 2022, section 4.2.3


@pytest.mark.parametrize("sp, recompute, at", [(False, "none", 0), (True, "selective", 1)])
@pytest.mark.parametrize(
    "heads, layers, hidden, vpp, pp, state, activations",
    [
        (96, 96, 12288, 3, 8, 45.5625, (66.8438, 12.3516)),
        (128, 105, 20480, 3, 35, 31.6406, (114.0234, 23.0762)),
        (160, 128, 25600, 1, 64, 32.9590, (131.25, 26.5625)),
    ],
)
def test_stages_match_korthikantis_figure_1(
    heads: int,
    layers: int,
    hidden: int,
    vpp: int,
    pp: int,
    state: float,
    activations: tuple[float, float],
    sp: bool,
    recompute: str,
    at: int,
) -> None:
    job = make_job(
        8 * pp,
        heads=heads,
        layers=layers,
        hidden=hidden,
        ffn=4 * hidden,
        seq=2048,
        tp=8,
        pp=pp,
        vpp=vpp,
        global_batch=2 * pp,
        sequence_parallel=sp,
        recompute=recompute,
        dropout=True,
    )
    workload = build(job)
    middle = memory_of(job, workload)[1]
    assert (middle.weights + middle.gradients + middle.optimizer) / GIB == pytest.approx(state, rel=0.001)
    # the figure leaves out the embedding, of whose chunk as many micro batches are in flight
    embedding = (2 * pp if vpp > 1 else pp) * block_needs(workload)[0].saved
    assert (activation_walk(workload, 0).max() - embedding) / GIB == pytest.approx(activations[at], rel=1e-4)


def test_op_level_recompute_keeps_the_outputs_that_torchtitan_lists() -> None:
    size = {
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "ffn": 14336,
        "vocab": 128256,
        "layers": 32,
        "seq": 8192,
        "attention": "flash",
    }
    job = make_job(**size, **LLAMA, recompute="ops", framework="torchtitan", launch="compile")
    # input, query, value, attention output, gate; and 32 fp32 log-sums
    assert layer_bytes(job) == pytest.approx(8192 * (2 * (4096 + 4096 + 1024 + 4096 + 14336) + 4 * 32))
    eager = make_job(**size, **LLAMA, recompute="ops", framework="torchtitan", launch="eager")
    assert layer_bytes(eager) - layer_bytes(job) == pytest.approx(8192 * 2 * 4096)  # the last product's output, which nothing reads


def test_the_loss_shows_as_logits_and_working_set() -> None:
    job = make_job(vocab=65536, framework="torchtitan", fused_cross_entropy=False)
    memory = memory_of(job, build(job))[0]
    assert memory.logits == pytest.approx(1024 * 65536 * 6)
    assert 1024 * 65536 * 6 < memory.workspace < 1024 * 65536 * 7
    fused = make_job(vocab=65536, framework="torchtitan", fused_cross_entropy=True)
    less = memory.fragmentation - memory_of(fused, build(fused))[0].fragmentation
    assert less == 1024 * 65536 * 2  # the 16-bit logits' block, which none of the loss's fp32 tensors fits into


def test_reserved_is_allocated_with_the_allocators_share_but_never_more_than_the_gpu_has() -> None:
    small = make_job(allocator_overhead=0.1)
    memory = memory_of(small, build(small))[0]
    assert memory.reserved == pytest.approx(1.1 * memory.allocated)
    assert memory.total == pytest.approx(memory.reserved + memory.context) and memory.fits
    big = make_job(layers=100, hidden=2048, ffn=8192, recompute="full", allocator_overhead=0.5)  # 90 GB of state
    over = memory_of(big, build(big))[0]
    assert not over.fits and over.fragmentation == 0.0 and over.total > over.capacity


def test_parts_add_up() -> None:
    job = make_job(pp=2, tp=2, dp=2, sharding="zero1", layers=8, allocator_overhead=0.2)
    for m in memory_of(job, build(job)):
        parts = m.weights + m.gradients + m.optimizer + m.activations + m.logits + m.buffers + m.workspace
        assert m.allocated == pytest.approx(parts) and m.reserved == pytest.approx(parts + m.fragmentation)


def test_fits_and_free_count_from_the_same_room() -> None:
    job = make_job(layers=32, hidden=2048, ffn=8192, recompute="full")
    stage = memory_of(job, build(job))[0]
    assert stage.fits and stage.missing == pytest.approx(stage.total - 0.989 * stage.capacity)
    # a GPU so large that the stage lies between what CUDA offers of it and what the data sheet says
    between = replace(stage, capacity=stage.total / 0.995, fits=False)
    assert between.total < between.capacity and between.missing == pytest.approx(0.006 * between.capacity)


def test_curve_follows_the_walk_and_refuses_other_lengths() -> None:
    job = make_job(pp=2, global_batch=4, layers=4)
    workload = build(job)
    memory = memory_of(job, workload)[0]
    ends = [float(i + 1) for i in range(len(workload.schedule[0]))]
    points = curve(workload, memory, ends)
    assert points[0][1] == pytest.approx(points[-1][1]) and max(p[1] for p in points) <= memory.allocated
    with pytest.raises(SpecError):
        curve(workload, memory, ends[:-1])


def test_16_bit_optimizer_keeps_half_precision_gradients_and_fp32_accumulation_costs_more() -> None:
    common = {
        "framework": "megatron-deepspeed",
        "pp": 2,
        "dp": 4,
        "sharding": "zero1",
        "layers": 8,
        "fused_wgrad": False,
        "recompute": "full",
        "global_batch": 64,
        "vocab": 1024,
        "hidden": 2048,
        "ffn": 8192,
    }
    half = make_job(**common, precision="fp16", weight_dtype="fp16", gradient_dtype="fp16")
    full = make_job(**common, precision="bf16", weight_dtype="bf16", gradient_dtype="fp32")
    count = build(half).stage_parameters[0]
    more = memory_of(full, build(full))[0].allocated - memory_of(half, build(half))[0].allocated
    # BLOOM's chronicles (28 February 2022) say 4 bytes a parameter; recomputed tensors and 16-bit gradients do not peak together
    assert 3 * count < more <= 4.01 * count


def test_recompute_around_fsdp2s_units_keeps_what_was_gathered() -> None:
    """One more block in 16 bits where recompute runs the units' forward hooks again; not in torchtitan, nor with FSDP1's views."""

    def buffers(framework: str, **more: object) -> float:
        return memory_of(job := make_job(framework=framework, sharding="fsdp", dp=4, **more), build(job))[0].buffers

    layer = 2.0 * build(make_job()).blocks[1].elements
    two = {"sharding_copies": True, "vocab": 128}  # the peak lies in a layer, not in the loss
    assert buffers("fsdp", recompute="full", **two) - buffers("fsdp", **two) == pytest.approx(layer)
    assert buffers("fsdp", recompute="full", sharding_copies=False) == buffers("fsdp", sharding_copies=False)
    assert buffers("torchtitan", recompute="full") == buffers("torchtitan", recompute="none")


def test_shards_pass_through_the_gpu_on_their_way_from_the_host() -> None:
    def buffers(dp: int, place: str) -> float:
        offload = {"optimizer": place, "parameters": place}
        job = make_job(framework="fsdp", sharding="fsdp", dp=dp, offload=offload, reduce_dtype="bf16")
        return memory_of(job, build(job))[0].buffers

    layer = build(make_job()).blocks[1].elements
    for dp in (2, 4):  # two shards in fp32, and one reduced gradient
        assert buffers(dp, "host") - buffers(dp, "none") == pytest.approx((2 * 4 + 2) * layer / dp)


def test_frozen_weights_are_on_the_host_too() -> None:
    job = make_job(framework="fsdp", sharding="fsdp", dp=2, lora=Lora(), offload={"optimizer": "host", "parameters": "host"})
    workload = build(job)
    held = memory_of(job, workload)[0].tiers[0].parameters
    assert held == pytest.approx((4.0 * workload.stage_parameters[0] + 2.0 * workload.stage_frozen[0]) / 2)


def test_zero_3_updates_a_group_after_the_other_with_a_flat_copy_of_its_gradients() -> None:
    """A group's 16-bit gradients are flattened, and widened to fp32: 2 + 4 bytes an element of it, of 1e9 at most."""
    sharded = {"framework": "deepspeed", "sharding": "zero3", "gradient_dtype": "bf16", "reduce_dtype": "bf16"}
    job = make_job(dp=8, live_parameters=1e9, **sharded)
    assert step_bytes(job, 8e8) == pytest.approx(6.0 * 1e8)
    assert step_bytes(job, 4e10) == pytest.approx(6.0 * 1e9)
    assert step_bytes(make_job(dp=8, live_parameters=1e9, **{**sharded, "gradient_dtype": "fp32"}), 8e8) == 0.0


def test_deepspeeds_reduction_buffer_is_the_bucket_that_is_stated() -> None:
    def buffers(**more: object) -> float:
        job = make_job(framework="deepspeed", sharding="zero2", dp=4, contiguous_gradients=False, reduce_dtype="bf16", **more)
        return memory_of(job, build(job))[0].buffers

    assert buffers(bucket=2e6) == pytest.approx(2e6)
    assert buffers(bucket=1e9) == pytest.approx(2.0 * build(make_job()).stage_parameters[0])  # no more than there are gradients


@pytest.mark.parametrize("root", ["joined", "freed"])
def test_full_sharding_holds_less_at_the_loss_than_in_layers(root: str) -> None:
    """FSDP 2 by its hooks: with the loss's gradient comes the last layer's gather, if the root has parameters; gradients and
    the input of their sum come behind it, and what a stream once held stays its own."""
    loss = {"vocab": 65536, "fused_cross_entropy": False}
    job = make_job(**loss, framework="torchtitan", sharding="fsdp", dp=4, global_batch=4, root_unit=root)
    workload = build(job)
    buffers = buffers_of(workload, 0, habits("torchtitan"), workload.stage_parameters[0])
    embedding, layer, _, *_ = (block.elements for block in workload.blocks)
    head, reduced = workload.blocks[-1].elements, {"bf16": 2.0, "fp32": 4.0}[job.runtime.reduce_dtype]
    outer = head if root == "freed" else embedding + head
    assert buffers.loss == 2.0 * (outer + (0.0 if root == "freed" else layer))
    assert buffers.head == buffers.loss + 2.0 * head
    waiting = reduced * max(head, layer) if root == "freed" else reduced * layer + 2.0 * head
    assert buffers.layers == 2.0 * (outer + 2 * layer + layer) + waiting
    memory = memory_of(job, workload)[0]
    assert memory.buffers == buffers.loss
    assert memory.gradients == 0.0  # one micro batch: those of the step before are freed, their blocks serve the next ones
    assert memory.fragmentation >= 1024 * 65536 * 2 + job.plan.dp**-1 * 4.0 * (embedding + head)
