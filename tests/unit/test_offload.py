"""Offload: windows, rates, bytes and seconds by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import PlanError, SpecError, WindtunnelError
from windtunnel.compute.cpu import CPU_UPDATE, cpu_seconds, update_bytes
from windtunnel.memory import memory_of
from windtunnel.memory.tiers import COPY_LATENCY, legs, pool_collective, pool_leg
from windtunnel.predict import Prediction, predict
from windtunnel.spec import Job, check, load_cluster, load_job
from windtunnel.workload import build
from windtunnel.workload.passes.recompute import windows

BASE = ("plan.recompute=none",)
POOL = (
    "cluster.memory_pool.ports=8",
    "cluster.memory_pool.bandwidth=100GB/s",
    "cluster.memory_pool.capacity=64TB",
    "cluster.memory_pool.gpu_bandwidth=256GB/s per GPU each way",
)


def job(*sets: str, name: str = "llama3-8b-8xh100") -> Job:
    return check(load_job(name, sets))


def run(*sets: str, name: str = "llama3-8b-8xh100") -> Prediction:
    return predict(job(*sets, name=name))


def copied(p: Prediction, name: str) -> float:
    return p.overlapped.get(name, 0.0) + p.breakdown.get(f"exposed_{name}", 0.0)


def test_copies_are_spread_over_the_layers_as_transformer_engine_does() -> None:
    assert windows(2, 8) == (3, 7)
    assert windows(3, 8) == (2, 5, 7)
    assert windows(40, 80)[:3] == (1, 3, 5)
    assert windows(92, 126)[33:36] == (67, 68, 69)
    assert windows(3, 3) == (1, 2, 3)  # the last layer's has no layer left to hide behind
    assert windows(0, 5) == ()


@pytest.mark.parametrize(
    ("name", "out", "back"),
    [
        ("h100-ib", 0.85 * 63e9, 0.85 * 63e9),
        ("selene", 0.85 * 31.5e9 / 2, 0.85 * 31.5e9 / 2),  # two GPUs behind a switch
        ("gb200-nvl72", 0.66 * 450e9 / 2, 0.83 * 450e9 / 2),
    ],
)
def test_host_copies_share_links(name: str, out: float, back: float) -> None:
    cluster = load_cluster(name)
    assert legs(cluster, "host", True)[0].rate == pytest.approx(out)
    assert legs(cluster, "host", False)[0].rate == pytest.approx(back)


def test_slow_host_memory_is_shared_by_the_nodes_gpus() -> None:
    cluster = job("cluster.node.host_memory_bandwidth=80GB/s").cluster
    assert legs(cluster, "host", True)[0].rate == pytest.approx(0.8 * 80e9 / 8)


def test_storage_is_reached_through_the_host() -> None:
    disks = ("cluster.node.storage.read=40GB/s", "cluster.node.storage.write=16GB/s", "cluster.node.storage.capacity=8TB")
    cluster = job(*disks).cluster
    assert [leg.rate for leg in legs(cluster, "nvme", True)] == pytest.approx([0.85 * 63e9, 2e9])
    assert [leg.rate for leg in legs(cluster, "nvme", False)] == pytest.approx([5e9, 0.85 * 63e9])


def test_bytes_of_activations_move_to_the_host() -> None:
    plain, moved = job(*BASE), job(*BASE, "plan.offload.activations=12")
    before, after = memory_of(plain, build(plain))[0], memory_of(moved, build(moved))[0]
    kept = build(plain).blocks[1].saved
    assert before.activations - after.activations == pytest.approx(12 * kept)
    assert after.buffers - before.buffers == pytest.approx(kept)
    assert after.tiers[0].activations == pytest.approx(12 * kept)
    assert before.tiers == ()


def test_copies_take_their_bytes_over_the_rate_both_ways() -> None:
    p = run(*BASE, "plan.offload.activations=8")
    size = 8 * build(p.job).blocks[1].saved * p.job.micro_batches
    rate = 0.85 * 63e9
    copies = 2 * 8 * p.job.micro_batches
    assert copied(p, "offload") == pytest.approx(2 * size / rate + copies * COPY_LATENCY, rel=1e-6)
    assert p.step_time_s == pytest.approx(run(*BASE).step_time_s, rel=2e-3)  # a quarter of the layers hides behind all of them


def test_a_slow_link_is_waited_for() -> None:
    slow = run(*BASE, "plan.offload.activations=8", "cluster.node.host_memory_bandwidth=80GB/s")
    assert slow.breakdown["exposed_offload"] > 0.5 * copied(slow, "offload")
    assert slow.step_time_s > copied(slow, "offload")  # nothing is free: copies of one direction do not overlap each other


def test_recomputed_layers_send_their_inputs_only() -> None:
    p = run("plan.recompute=full", "plan.offload.activations=8")
    assert p.memory[0].tiers[0].activations == pytest.approx(8 * build(p.job).boundary)


def test_tensors_of_single_modules_leave() -> None:
    whole, some = (
        job(*BASE, "plan.offload.activations=32"),
        job(*BASE, "plan.offload.activations=32", 'plan.offload.modules=["core_attn", "attn_norm"]'),
    )
    layer = next(block for block in build(some).blocks if block.offloaded)
    kept = next(block for block in build(whole).blocks if block.offloaded)
    tokens, width = some.plan.seq * some.plan.micro_batch, 2
    model = some.model
    read = tokens * (model.heads + 2 * model.groups) * model.dim_per_head * width + tokens * model.heads * 4  # q, k, v, log-sum-exp
    read += tokens * model.hidden * width * 2  # its output, and the norm's input
    assert layer.offloaded == pytest.approx(read)
    assert layer.offloaded + layer.saved == pytest.approx(kept.offloaded)
    assert sum(layer.tensors.kept) == pytest.approx(layer.saved)
    p, plain = predict(some), predict(job(*BASE))
    assert plain.memory[0].activations - p.memory[0].activations == pytest.approx(32 * read)
    assert copied(p, "offload") < copied(predict(whole), "offload")


def test_replicated_stages_and_pipelines_offload_too() -> None:
    plain, p = run(name="gpt3-175b-64"), run("plan.offload.activations=2", name="gpt3-175b-64")
    assert p.memory[0].activations < plain.memory[0].activations
    layer = build(p.job)
    chunks = len(layer.stages[0])
    moved = 2 * chunks * p.job.micro_batches * next(b for b in layer.blocks if b.offloaded).offloaded
    assert copied(p, "offload") == pytest.approx(2 * moved / (0.85 * 31.5e9 / 2), rel=0.01)


def test_the_cpu_updates_at_the_hosts_memory_bandwidth() -> None:
    p = run("plan.offload.optimizer=host", name="llama2-70b-64xh100")
    state = p.memory[0].tiers[0]
    elements = state.optimizer / 12
    seconds = elements * update_bytes(p.job, 2.0) / (CPU_UPDATE * 614.4e9 / 8)
    assert p.job.runtime.gradient_dtype == "bf16"
    assert update_bytes(p.job, 2.0) == 2 + 24 + 2
    assert p.breakdown["exposed_cpu_update"] + p.overlapped.get("cpu_update", 0.0) == pytest.approx(seconds, rel=0.02)
    plain = run(name="llama2-70b-64xh100")
    assert plain.memory[0].optimizer - p.memory[0].optimizer == pytest.approx(state.optimizer)
    assert p.memory[0].gradients == plain.memory[0].gradients  # ZeRO 1 keeps whole gradients on the GPU


def test_twin_flow_halves_what_the_cpu_does() -> None:
    whole = run("plan.offload.optimizer=host", name="llama2-70b-64xh100")
    half = run("plan.offload.optimizer=host", "plan.offload.optimizer_fraction=0.5", name="llama2-70b-64xh100")
    assert copied(half, "cpu_update") == pytest.approx(0.5 * copied(whole, "cpu_update"), rel=0.02)
    assert half.breakdown["optimizer"] > whole.breakdown["optimizer"]


def test_without_overlap_the_update_takes_longer() -> None:
    assert (
        run("plan.offload.optimizer=host", "plan.offload.overlap=false", name="llama2-70b-64xh100").step_time_s
        > run("plan.offload.optimizer=host", name="llama2-70b-64xh100").step_time_s
    )


def test_parameters_leave_with_full_sharding() -> None:
    plain = run()
    p = run("plan.offload.parameters=host", "plan.offload.optimizer=host")
    assert p.memory[0].weights == p.memory[0].optimizer == p.memory[0].gradients == 0.0
    assert p.memory[0].tiers[0].parameters == pytest.approx(plain.memory[0].weights)
    assert p.step_time_s > plain.step_time_s


def test_nvme_is_slower_than_the_host() -> None:
    disks = ("cluster.node.storage.read=25GB/s", "cluster.node.storage.write=12GB/s", "cluster.node.storage.capacity=15TB")
    host, nvme = run("plan.offload.optimizer=host"), run("plan.offload.optimizer=nvme", *disks)
    assert nvme.step_time_s > host.step_time_s
    places = {tier.place: tier for tier in nvme.memory[0].tiers}
    assert places["nvme"].optimizer == pytest.approx(host.memory[0].tiers[0].optimizer)
    assert places["host"].gradients > 0.0
    activations = run(*BASE, "plan.offload.activations=8", "plan.offload.activations_to=nvme", *disks)
    assert activations.breakdown["exposed_offload"] > 0.0


def test_a_host_that_is_too_small_is_said() -> None:
    p = run(*BASE, "plan.offload.activations=32", "cluster.node.host_memory=64GiB")
    stage = p.memory[0]
    assert not p.fits
    assert stage.short == "host memory"
    assert stage.missing == pytest.approx(stage.tiers[0].total - 0.9 * 64 * 2**30 / 8)
    assert any("host memory" in warning for warning in p.warnings)


def test_a_pool_is_as_fast_as_its_narrowest_part() -> None:
    cluster = job(*POOL).cluster
    assert pool_leg(cluster).rate == pytest.approx(8 * 100e9 / 8)
    wide = job(*POOL, "cluster.memory_pool.ports=64", "cluster.memory_pool.node_bandwidth=400GB/s").cluster
    assert pool_leg(wide).rate == pytest.approx(400e9 / 8)
    # gathered in the switches, the ports carry each byte once for all ranks and the node's way out once for all its GPUs
    assert pool_collective(wide, 4e9, 8) == pytest.approx(wide.memory_pool.latency + 4e9 / 256e9)
    assert pool_collective(cluster, 8e9, 8) == pytest.approx(2e-6 + 8e9 / 256e9)


def test_in_switch_collectives_replace_gather_and_reduction() -> None:
    sets = (*POOL, "plan.offload.parameters=pool", "plan.offload.optimizer=pool")
    plain, fused = run(*sets), run(*sets, "cluster.memory_pool.in_switch_collectives=true")
    assert "parameter_gather" in plain.overlapped
    assert "parameter_gather" not in fused.overlapped
    assert "gradient_reduce" not in fused.overlapped
    assert not any(row["axis"] == "shard" for row in fused.collectives)
    assert plain.memory[0].tiers[0].place == "pool"


BAD = [
    (("plan.offload.activations=33",), "at most the 32 layers"),
    (("plan.offload.optimizer=nvme",), "hgx-h100' has none"),
    (("plan.offload.optimizer=pool",), "memory pool"),
    (("plan.offload.parameters=expansion",), "memory expansion"),
    (("plan.offload.activations=1", "cluster.node.host_memory=none"), "host memory is known"),
    (("plan.offload.optimizer_fraction=0.5",), "only beside plan.offload.optimizer"),
    (("plan.offload.overlap=false",), "only beside plan.offload.optimizer"),
    (("plan.offload.activations_to=nvme",), "only beside plan.offload.activations"),
    (('plan.offload.modules=["core_attn"]',), "only beside plan.offload.activations"),
    (("plan.offload.activations=1", 'plan.offload.modules=["moe_act"]', "plan.recompute=none"), "it has no experts"),
    (("plan.offload.activations=1", 'plan.offload.modules=["core_attn"]', "plan.recompute=full"), "recompute = full"),
    (("plan.offload.parameters=host", "plan.sharding=zero1"), "shards parameters"),
    (("plan.offload.optimizer=host", "runtime.optimizer=lamb"), "no CPU kernel of lamb"),
]


@pytest.mark.parametrize(("sets", "said"), BAD)
def test_what_is_impossible_is_refused(sets: tuple[str, ...], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        job(*sets)


def test_schedules_with_halves_keep_their_activations() -> None:
    with pytest.raises(PlanError, match="whole backward passes"):
        job("plan.vpp=1", "plan.schedule=zb-h1", "plan.offload.activations=1", name="gpt3-175b-64")


def test_unknown_pcie_generation_asks_for_the_link() -> None:
    with pytest.raises(SpecError, match="host_link"):
        run(*BASE, "plan.offload.activations=1", "cluster.node.pcie_gen=9")


@pytest.mark.parametrize("text", ["plan.offload.optimizer=disk", "plan.offload.activations=-1", "plan.offload.layers=3"])
def test_bad_words_are_spec_errors(text: str) -> None:
    with pytest.raises(WindtunnelError):
        job(text)


@pytest.mark.parametrize(
    ("layers", "sharding", "place", "fits"),
    [
        (6, "none", "none", True),
        (8, "none", "none", False),  # 1.4 and 1.8 billion parameters
        (65, "zero2", "host", True),
        (80, "zero2", "host", False),  # 13.3 and 16.3
    ],
)
def test_a_v100_trains_what_zero_offload_publishes(layers: int, sharding: str, place: str, fits: bool) -> None:
    """Ren et al. 2021 (ZeRO-Offload, from memory): one V100 of 32 GB trains 1.4 billion parameters with PyTorch, 13 billion with
    the optimizer on the host."""
    one = job(
        "model=gpt-7.5b",
        f"model.layers={layers}",
        "cluster=dgx-2",
        "cluster.gpus=1",
        "plan.dp=1",
        f"plan.sharding={sharding}",
        f"plan.offload.optimizer={place}",
        "runtime.framework=deepspeed",
        "runtime.precision=fp16",
        "plan.recompute=full",
        "plan.micro_batch=1",
        "plan.global_batch=1",
        "plan.seq=1024",
        name="mpt-30b-64xa100",
    )
    assert memory_of(one, build(one))[0].fits == fits


def test_cpus_take_zero_offloads_time_for_an_update() -> None:
    """0.22 s for 10^9 parameters on a DGX-2 whose memory one process has to itself (the same paper, table 4, from memory)."""
    assert cpu_seconds(28e9, 256e9) == pytest.approx(0.22, rel=0.02)


def test_gradients_of_every_micro_batch_leave_on_one_gpu_too() -> None:
    sets = ("cluster.gpus=1", "plan.dp=1", "plan.sharding=zero2", "plan.offload.optimizer=host", "plan.micro_batch=1")
    once, twice = run(*sets, "plan.global_batch=1"), run(*sets, "plan.global_batch=2")
    sent = [sum(span.end - span.start for span in p.timeline if span.category == "offload") for p in (once, twice)]
    assert sent[1] == pytest.approx(2 * sent[0], rel=0.01)
    assert [p.memory[0].gradients for p in (once, twice)] == [0.0, 0.0]


def test_blocks_of_an_imported_graph_leave_too() -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / "jobs" / "dit-xl-2-64xh100.toml"
    plain, moved = (check(load_job(path, sets)) for sets in ((), ("plan.offload.activations=4",)))
    before, after = memory_of(plain, build(plain))[0], memory_of(moved, build(moved))[0]
    held = sum(block.offloaded * times for b, times in build(moved).stages[0][0].blocks for block in [build(moved).blocks[b]])
    assert before.activations - after.activations == pytest.approx(held)
    assert after.tiers[0].activations == pytest.approx(held)
    p = predict(moved)
    assert copied(p, "offload") == pytest.approx(2 * held * moved.micro_batches / (0.85 * 63e9), rel=0.02)
    with pytest.raises(PlanError, match="does not say"):
        check(load_job(path, ("plan.offload.activations=4", 'plan.offload.modules=["core_attn"]')))


def test_the_timeline_shows_copies() -> None:
    p = run(*BASE, "plan.offload.activations=4", "plan.offload.optimizer=host")
    found = {(span.stream, span.category) for span in p.timeline}
    assert {("offload", "offload"), ("fetch", "fetch"), ("CPU", "cpu update")} <= found
    layers = [span for span in p.timeline if span.category == "fetch" and span.micro_batch >= 0]
    assert len(layers) == 4 * p.job.micro_batches


def test_a_host_keeps_the_master_copy_that_shards_on_the_gpu_were() -> None:
    """FSDP with fp32 shards: Adam's two moments leave the GPU, and a master copy of 4 bytes is made beside the 8 of these."""
    p = run("plan.sharding=fsdp", "plan.offload.optimizer=host", "runtime.master_weights=true")
    elements = build(p.job).stage_parameters[0] / p.job.dp
    assert p.memory[0].tiers[0].optimizer == pytest.approx(12.0 * elements, rel=1e-6)


def test_the_update_on_the_host_moves_what_each_optimizer_keeps() -> None:
    """Gradient read, master copy and moments of 4 bytes read and written, compute copy written."""
    assert update_bytes(job("runtime.optimizer=sgd"), 4.0) == 4 + 2 * 4 * 2 + 2
    assert update_bytes(job("runtime.optimizer=adam"), 2.0) == 2 + 2 * 4 * 3 + 2


def test_weights_of_four_bytes_have_no_second_copy_on_the_host() -> None:
    """fp32 weights are the master copy: nothing narrower is written beside it."""
    held = job("runtime.weight_dtype=fp32", "runtime.optimizer=adam")
    assert update_bytes(held, 4.0) == 4 + 2 * 4 * 3
