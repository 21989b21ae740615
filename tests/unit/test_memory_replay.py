"""Tensor lifetimes of a stage and what the allocator makes of them."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from jobs import make_job

from windtunnel.base.errors import SpecError
from windtunnel.memory import dumps, memory_of, replay, snapshot
from windtunnel.memory.buffers import output_bytes, passes_of
from windtunnel.memory.habits import habits
from windtunnel.memory.lifetimes import lifetimes, raw_gradient_bytes, shorten_order
from windtunnel.memory.over_time import replay_pool
from windtunnel.memory.result import USABLE
from windtunnel.memory.state import state_of
from windtunnel.memory.walk import activation_walk, block_needs
from windtunnel.predict import predict
from windtunnel.workload import build
from windtunnel.workload.ops import Axis, Comm, Kind
from windtunnel.workload.schedules import Pass

JOBS: list[dict[str, Any]] = [
    {},
    {"recompute": "full", "pp": 4, "global_batch": 16, "layers": 8},
    {"recompute": "selective", "attention": "unfused"},
    {"pp": 2, "vpp": 2, "global_batch": 8, "layers": 8, "tp": 2, "sequence_parallel": True},
    {"pp": 4, "global_batch": 16, "layers": 8, "schedule": "zb-h1"},
    {"pp": 2, "vpp": 2, "layers": 8, "global_batch": 16, "schedule": "zbv"},
    {"framework": "torchtitan", "sharding": "fsdp", "dp": 4, "global_batch": 16},
    {
        "framework": "megatron-deepspeed",
        "precision": "fp16",
        "weight_dtype": "fp16",
        "gradient_dtype": "fp16",
        "fused_wgrad": False,
        "global_batch": 4,
    },
    {"pp": 2, "schedule": "dualpipe", "layers": 8, "global_batch": 16},
    {"pp": 2, "vpp": 2, "schedule": "dualpipev", "layers": 8, "global_batch": 16},
    {"experts": 8, "expert_ffn": 1024, "top_k": 2, "ep": 4, "dp": 4, "global_batch": 16},
    {"framework": "torchtitan", "sharding": "hsdp", "shard_group": 2, "dp": 4, "global_batch": 16, "pp": 2, "schedule": "zb-h1"},
]


@pytest.mark.parametrize("plan", JOBS)
def test_every_tensor_is_freed_once_and_state_stays(plan: dict[str, Any]) -> None:
    workload = build(make_job(**plan))
    for stage in range(workload.job.plan.pp):
        live: dict[int, float] = {}
        for event in lifetimes(workload, stage):
            if event.size > 0.0:
                assert event.tensor not in live
                live[event.tensor] = event.size
            else:
                assert live.pop(event.tensor) == -event.size
        habit, parameters = habits(workload.job.runtime.framework), workload.stage_parameters[stage]
        state = state_of(workload.job, parameters, workload.stage_experts[stage])
        late = state.gradients if habit.flat == "none" or plan.get("gradient_dtype") == "fp16" else 0.0
        lasting = {e.tensor: e.label for e in lifetimes(workload, stage)}
        kept = sum(size for tensor, size in live.items() if not lasting[tensor].startswith(("cuBLAS", "pipeline", "framework")))
        assert kept == pytest.approx(state.total - late)


@pytest.mark.parametrize("plan", JOBS)
def test_the_replay_allocates_what_the_sums_say(plan: dict[str, Any]) -> None:
    job = make_job(**{"hidden": 2048, "ffn": 8192, "vocab": 8192} | plan)
    workload = build(job)
    for stage in memory_of(job, workload):
        assert replay_pool(workload, stage.stage, math.inf).allocated == pytest.approx(stage.allocated, rel=0.06)


def test_kept_tensors_of_a_layer_add_up_and_are_made_in_the_forward_pass() -> None:
    workload = build(make_job(dropout=True))
    needs, layer = block_needs(workload), workload.blocks[1]
    made = passes_of(workload, layer, needs[1], raw_gradient_bytes(workload.job))
    assert sum(size for size, kept in made.forward if kept) == pytest.approx(layer.saved) == pytest.approx(needs[1].saved)
    # 1024 tokens x 1024: fused attention keeps q, k and v, output (2 MiB a tensor), and log-sums of 16 heads
    assert sum(layer.tensors.kept) == pytest.approx(layer.saved) and min(layer.tensors.kept) > 0.0


def test_recompute_brings_back_what_was_dropped() -> None:
    full, none = (build(make_job(recompute=level)).blocks[1] for level in ("full", "none"))
    assert sum(full.tensors.again) == pytest.approx(full.working) == pytest.approx(none.saved - full.saved)
    assert none.tensors.again == () and len(full.tensors.kept) == 1


def test_a_shortened_step_reaches_the_highest_point_and_ends_empty() -> None:
    workload = build(make_job(pp=4, global_batch=64, layers=8, recompute="full"))
    order = shorten_order(workload, 0)
    assert len(order) < len(workload.schedule[0]) / 3
    forward = [(a.chunk, a.micro_batch) for a in order if a.direction is Pass.FORWARD]
    backward = [(a.chunk, a.micro_batch) for a in order if a.direction is Pass.BACKWARD]
    assert sorted(forward) == sorted(backward)
    level = highest = 0
    for action in order:
        level += 1 if action.direction is Pass.FORWARD else -1
        highest = max(highest, level)
    assert highest == 4 and activation_walk(workload, 0).max() > 0.0


def test_a_shortened_step_fragments_as_the_whole_step(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = build(make_job(pp=4, global_batch=32, layers=8, hidden=2048, ffn=8192))
    short = replay_pool(workload, 0, math.inf)
    monkeypatch.setattr(import_module("windtunnel.memory.lifetimes"), "shorten_order", lambda w, stage: list(w.schedule[stage]))
    assert replay_pool(workload, 0, math.inf).reserved == pytest.approx(short.reserved, rel=0.01)


def test_expandable_segments_leave_less_unused() -> None:
    sizes = {"hidden": 2048, "ffn": 5504, "vocab": 50000, "layers": 12, "recompute": "full"}
    plain, expandable = (
        replay_pool(build(make_job(**sizes, alloc_conf=conf)), 0, math.inf) for conf in ("", "expandable_segments:True")
    )
    assert plain.allocated == pytest.approx(expandable.allocated, rel=0.01)  # what is not split off counts
    assert expandable.reserved < plain.reserved


def test_a_setting_that_pytorch_would_not_take_is_refused_at_once() -> None:
    job = make_job(alloc_conf="max_split_size_mb:1")
    with pytest.raises(SpecError, match="above 20"):
        memory_of(job, build(job))


def test_a_replay_is_a_second_opinion_within_what_the_gpu_has() -> None:
    job = make_job(pp=2, global_batch=8, layers=8)
    workload = build(job)
    stages = memory_of(job, workload)
    found = replay(workload, stages)
    assert found == tuple(replay_pool(workload, stage, math.inf) for stage in range(2))  # a small job: the limit does not matter
    assert all(f.fragmentation == f.reserved - f.allocated > 0.0 for f in found)
    assert [m.fragmentation for m in stages] == pytest.approx([job.runtime.allocator_overhead * m.allocated for m in stages])
    none = tuple(replace(m, capacity=m.context / USABLE + 1e8, fits=True) for m in stages)  # 98.9 MB beside the context
    assert all(f.failed and f.reserved <= 1e8 for f in replay(workload, none))


def test_pieces_add_up_for_every_level_of_recompute_and_mixtures() -> None:
    selective = {
        "recompute": "selective",
        "recompute_modules": ("core_attn", "layernorm", "mlp"),
        "attention": "unfused",
        "dropout": True,
    }
    for plan in (*JOBS, {"recompute": "ops"}, selective):
        for block in build(make_job(**plan)).blocks:
            assert sum(block.tensors.kept) == pytest.approx(block.saved), (plan, block.name)
            assert sum(block.tensors.again) == pytest.approx(block.working), (plan, block.name)
            assert sum(block.tensors.weights) == block.parameters


@pytest.mark.parametrize("plan", JOBS)
def test_a_snapshot_is_of_the_highest_point(plan: dict[str, Any]) -> None:
    workload = build(make_job(**plan))
    found = snapshot(workload, 0)
    assert pickle.loads(dumps(found)) == found
    blocks = [block for segment in found["segments"] for block in segment["blocks"]]
    used = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
    assert used == replay_pool(workload, 0, math.inf).allocated
    trace, live, segments = found["device_traces"][0], {}, 0
    for entry in trace:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            assert live.pop(entry["addr"]) == entry["size"]
        elif entry["action"] == "segment_alloc":
            segments += entry["size"]
    assert live == {b["address"]: b["requested_size"] for b in blocks if b["state"] == "active_allocated"}
    assert segments == sum(segment["total_size"] for segment in found["segments"])
    assert {b["frames"][0]["name"] for b in blocks if b["frames"]} >= {"weights", "layer activation"}


def test_predict_never_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    def played(*_: Any) -> None:
        raise AssertionError("a replay")

    monkeypatch.setattr(import_module("windtunnel.memory.over_time"), "replay_pool", played)
    job = make_job()
    with pytest.raises(AssertionError, match="a replay"):
        replay(build(job), memory_of(job, build(job)))
    assert predict(job).memory[0].reserved > 0.0


def test_bytes_that_attention_and_calls_write() -> None:
    """Flash attention of 1 x 1024 tokens and 8 heads of 64 on each of two GPUs: 1024 x 8 x 64 numbers of 2 bytes. A tensor-parallel
    gather writes the whole sequence; the context-parallel ones are counted with what attention needs."""
    workload = build(make_job(tp=2, dp=2, sequence_parallel=True, attention="flash"))
    table = workload.ops
    rows = range(len(table.kind))
    attention = [output_bytes(workload, row) for row in rows if table.kind[row] == Kind.ATTENTION]
    assert attention and set(attention) == {1024.0 * 8 * 64 * 2}
    calls = [row for row in rows if table.kind[row] == Kind.COMM]
    gathers = {output_bytes(workload, row) for row in calls if table.axis[row] == Axis.TP and table.comm[row] == Comm.ALL_GATHER}
    assert 1024.0 * 1024 * 2 in gathers
    parted = build(make_job(cp=2, cp_kind="all_gather"))
    table = parted.ops
    others = [row for row in range(len(table.kind)) if table.kind[row] == Kind.COMM and table.axis[row] == Axis.CP]
    assert others and {output_bytes(parted, row) for row in others} == {0.0}
