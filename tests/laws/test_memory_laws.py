"""Laws of memory that hold for any plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from jobs import make_job

from windtunnel.memory import activation_walk, memory_of
from windtunnel.spec import Job, load_job
from windtunnel.spec.offload import Offload
from windtunnel.workload import build

FEW = examples(10)
FRAMEWORKS = st.sampled_from(["megatron-lm", "megatron-deepspeed", "torchtitan", "fsdp", "nemo", "unknown"])
SHAPES = st.fixed_dictionaries(
    {
        "layers": st.sampled_from([8, 16]),
        "hidden": st.sampled_from([512, 1024]),
        "framework": FRAMEWORKS,
        "attention": st.sampled_from(["unfused", "fused_softmax", "flash"]),
        "dropout": st.booleans(),
        "fused_wgrad": st.booleans(),
        "fused_cross_entropy": st.booleans(),
    }
)
LEVELS = st.sampled_from(["none", "selective", "ops", "full"])


def fullest(job: Job) -> float:
    return max(stage.total for stage in memory_of(job, build(job)))


def sized(shape: dict[str, Any], **more: Any) -> Job:
    return make_job(**(shape | {"heads": 16, "ffn": 4 * shape["hidden"], "global_batch": 64, "seq": 512} | more))


@FEW
@given(SHAPES, st.sampled_from(["zero1", "zero2", "zero3", "fsdp"]), st.sampled_from([1, 2]), LEVELS)
def test_more_sharding_ranks_never_need_more(shape: dict[str, Any], sharding: str, pp: int, recompute: str) -> None:
    sizes = [
        max(s.allocated for s in memory_of(job, build(job)))
        for dp in (2, 4, 8)
        for job in [sized(shape, dp=dp, pp=pp, sharding=sharding, recompute=recompute, global_batch=8 * 16)]
    ]
    assert sizes[0] >= sizes[1] >= sizes[2]


@FEW
@given(SHAPES, st.sampled_from([1, 2]), st.sampled_from([4, 8]), LEVELS)
def test_a_stronger_zero_stage_never_needs_more(shape: dict[str, Any], pp: int, dp: int, recompute: str) -> None:
    sizes = [fullest(sized(shape, dp=dp, pp=pp, sharding=s, recompute=recompute)) for s in ("none", "zero1", "zero2")]
    assert sizes[0] >= sizes[1] >= sizes[2]


@FEW
@given(SHAPES, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))
def test_stronger_recompute_never_needs_more(shape: dict[str, Any], pp: int, tp: int) -> None:
    sizes = [fullest(sized(shape, pp=pp, tp=tp, recompute=r)) for r in ("none", "selective", "full")]
    assert sizes[0] >= sizes[1] >= sizes[2]
    assert fullest(sized(shape, pp=pp, tp=tp, recompute="ops")) >= sizes[2]


@FEW
@given(SHAPES, st.sampled_from([1, 2, 4]), LEVELS)
def test_larger_micro_batches_need_more(shape: dict[str, Any], pp: int, recompute: str) -> None:
    sizes = [fullest(sized(shape, pp=pp, micro_batch=m, recompute=recompute)) for m in (1, 2, 4)]
    assert sizes[0] < sizes[1] < sizes[2]


@FEW
@given(SHAPES, st.sampled_from([(2, 1), (4, 1), (2, 2), (4, 2)]), LEVELS, st.sampled_from([8, 16]))
def test_walks_return_to_zero_and_the_first_stage_holds_most(
    shape: dict[str, Any], cut: tuple[int, int], recompute: str, batch: int
) -> None:
    pp, vpp = cut
    workload = build(sized(shape, pp=pp, vpp=vpp, global_batch=batch, recompute=recompute, vocab=128))
    walks = [activation_walk(workload, stage) for stage in range(pp)]
    peaks = [walk.max() for walk in walks]
    assert all(walk[-1] == 0.0 and walk.min() >= 0.0 for walk in walks)
    assert peaks[0] == max(peaks)


@FEW
@given(SHAPES, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), LEVELS)
def test_what_is_allocated_covers_the_walk(shape: dict[str, Any], pp: int, tp: int, recompute: str) -> None:
    job = sized(shape, pp=pp, tp=tp, recompute=recompute)
    workload = build(job)
    for memory in memory_of(job, workload):
        values = np.array(
            [
                memory.weights,
                memory.gradients,
                memory.optimizer,
                memory.activations,
                memory.logits,
                memory.buffers,
                memory.workspace,
                memory.context,
                memory.fragmentation,
            ]
        )
        assert (values >= 0.0).all() and np.isfinite(values).all()
        state = memory.weights + memory.gradients + memory.optimizer
        assert memory.allocated - state >= activation_walk(workload, memory.stage).max()


@FEW
@given(SHAPES, st.sampled_from([(1, 1), (2, 1), (2, 2)]), st.sampled_from(["none", "full"]), st.sampled_from([1, 2]))
def test_what_leaves_the_gpu_is_elsewhere(shape: dict[str, Any], cut: tuple[int, int], recompute: str, layers: int) -> None:
    """Tensors of more layers leave: the GPU never holds more, and what it holds less is in host memory."""
    pp, vpp = cut
    plans = [Offload(activations=count) for count in (0, layers - 1, layers)]
    jobs = [sized(shape, pp=pp, vpp=vpp, recompute=recompute, offload=plan) for plan in plans]
    found = [memory_of(job, build(job)) for job in jobs]
    for none, fewer, more in zip(*found, strict=True):
        assert more.activations <= fewer.activations <= none.activations
        held = sum(tier.activations for tier in more.tiers)
        assert none.activations + none.logits - more.activations - more.logits <= held * (1 + 1e-9)
        assert more.weights == none.weights and more.optimizer == none.optimizer


@pytest.mark.parametrize("framework", ["nemo", "deepspeed", "torchtitan", "meta"])
def test_sharding_over_one_rank_gathers_nothing(framework: str) -> None:
    """Where the sharding group is one rank there is nothing to gather, so ZeRO-3 holds what ZeRO-2 does."""
    sets = [f"runtime={framework}", "plan.tp=8", "plan.dp=1", "plan.micro_batch=1", "plan.global_batch=2"]
    two, three = (
        memory_of(job, build(job))[0]
        for job in (load_job("llama3-8b-8xh100", [*sets, f"plan.sharding={sharding}"]) for sharding in ("zero2", "zero3"))
    )
    assert three.buffers == 0.0 and three.total <= two.total
