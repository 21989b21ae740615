"""Our schedules are those of `torch.distributed.pipelining.schedules`, action for action, over a grid of sizes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from windtunnel.workload.schedules import SCHEDULES, Pass

schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
pytestmark = pytest.mark.torch

Step = tuple[str, int, int]
"""Direction, virtual stage over the whole model, micro batch."""


def ours(name: str, stages: int, chunks: int, micro_batches: int) -> list[list[Step]]:
    """Each stage's actions as PyTorch names them."""
    plans = SCHEDULES[name](stages, chunks, micro_batches)
    return [
        [("F" if a.direction is Pass.FORWARD else "B", a.chunk * stages + stage, a.micro_batch) for a in plan]
        for stage, plan in enumerate(plans)
    ]


def theirs(order: dict[int, list[Any]]) -> list[list[Step]]:
    """PyTorch's order by rank: passes alone, without idle slots and gradient reductions."""
    passes = {"FORWARD": "F", "FULL_BACKWARD": "B"}
    return [
        [(passes[a.computation_type.name], a.stage_index, a.microbatch_index) for a in order[rank]
         if a is not None and a.computation_type.name in passes]
        for rank in sorted(order)
    ]  # fmt: skip


def loop(name: str, stages: int, chunks: int, micro_batches: int) -> list[list[Step]]:
    """Order of a schedule of several virtual stages, from the functions that its constructor calls."""
    kind = getattr(schedules, name)
    rounds = max(1, micro_batches // stages)
    blank = SimpleNamespace(
        n_local_stages=chunks, pp_group_size=stages, _n_microbatches=micro_batches, number_of_rounds=rounds,
        microbatches_per_round=micro_batches // rounds, _num_stages=stages * chunks,
    )  # fmt: skip
    return theirs({rank: kind._calculate_single_rank_operations(blank, rank) for rank in range(stages)})


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize(("name", "kind"), [("1f1b", "Schedule1F1B"), ("gpipe", "ScheduleGPipe")])
def test_one_virtual_stage(name: str, kind: str, stages: int, times: int) -> None:
    micro_batches = stages * times
    blank = SimpleNamespace(_num_stages=stages, _n_microbatches=micro_batches)
    expected = theirs(getattr(schedules, kind)._get_pipeline_order(blank))
    if name == "1f1b":  # without warm-up the last rank's forwards are numbered from 1 in this listing; what runs starts at 0
        expected[-1] = [(way, stage, m - (way == "F")) for way, stage, m in expected[-1]]
    assert ours(name, stages, 1, micro_batches) == expected


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
@pytest.mark.parametrize("chunks", [2, 3, 6])
@pytest.mark.parametrize("times", [2, 3, 5])
def test_interleaved(stages: int, chunks: int, times: int) -> None:
    """With as many micro batches as stages the two differ on purpose: Megatron then runs all forwards first, and so do we."""
    assert ours("interleaved", stages, chunks, stages * times) == loop("ScheduleInterleaved1F1B", stages, chunks, stages * times)
