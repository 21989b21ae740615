"""Our schedules are those of `torch.distributed.pipelining.schedules`, action for action, over a grid of sizes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from windtunnel.spec.shapes import SHAPES
from windtunnel.workload.schedules import SCHEDULES, Pass

schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
utils = pytest.importorskip("torch.distributed.pipelining._utils")
pytestmark = pytest.mark.torch

Step = tuple[str, int, int, bool]
"""Kind of pass, virtual stage over the whole model, micro batch, whether it runs beside the step after it."""

LETTERS = {Pass.FORWARD: "F", Pass.BACKWARD: "B", Pass.INPUT_GRADIENT: "I", Pass.WEIGHT_GRADIENT: "W"}


def ours(name: str, stages: int, chunks: int, micro_batches: int) -> list[list[Step]]:
    """Each stage's actions as PyTorch names them."""
    places = SHAPES[name].places(stages, chunks)
    return [
        [(LETTERS[a.direction], places[stage][a.chunk], a.micro_batch, a.beside_next) for a in plan]
        for stage, plan in enumerate(SCHEDULES[name](stages, chunks, micro_batches))
    ]


def theirs(order: dict[int, list[Any]]) -> list[list[Step]]:
    """PyTorch's order by rank: passes alone, without idle slots and gradient reductions; an overlapped pair as its two passes."""
    passes = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}

    def steps(action: Any) -> list[Step]:
        if action is None:
            return []
        if action.computation_type.name == "OVERLAP_F_B":
            pair = [step for sub in action.sub_actions for step in steps(sub)]
            return [(*pair[0][:3], True), pair[1]]
        kind = passes.get(action.computation_type.name)
        return [] if kind is None else [(kind, action.stage_index, action.microbatch_index, False)]

    return [[step for action in order[rank] for step in steps(action)] for rank in sorted(order)]


def multi(name: str, stages: int, chunks: int, micro_batches: int) -> list[list[Step]]:
    """Order of a schedule of several virtual stages, from the functions that its constructor calls."""
    kind = getattr(schedules, name)
    rounds = max(1, micro_batches // stages)
    blank = SimpleNamespace(
        n_local_stages=chunks, pp_group_size=stages, _n_microbatches=micro_batches, number_of_rounds=rounds,
        microbatches_per_round=micro_batches // rounds, _num_stages=stages * chunks, num_stages=stages * chunks,
        _stages=[None] * chunks,
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
        expected[-1] = [(way, stage, m - (way == "F"), pair) for way, stage, m, pair in expected[-1]]
    assert ours(name, stages, 1, micro_batches) == expected


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
@pytest.mark.parametrize("chunks", [2, 3, 6])
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4, 6, 8, 10, 16, 24, 40])
def test_interleaved(stages: int, chunks: int, micro_batches: int) -> None:
    """With as many micro batches as stages the two differ on purpose: Megatron then runs all forwards first, and so do we."""
    if micro_batches != stages and micro_batches % max(1, micro_batches // stages) == 0:
        expected = multi("ScheduleInterleaved1F1B", stages, chunks, micro_batches)
        assert ours("interleaved", stages, chunks, micro_batches) == expected


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("micro_batches", [1, 3, 8, 16])
def test_breadth_first(stages: int, chunks: int, micro_batches: int) -> None:
    assert ours("breadth-first", stages, chunks, micro_batches) == multi("ScheduleLoopedBFS", stages, chunks, micro_batches)


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("chunks", [1, 2, 3, 6])
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4, 6, 8, 10, 16, 24, 40])
def test_zero_bubble_by_rounds(stages: int, chunks: int, micro_batches: int) -> None:
    """With one virtual stage it is the paper's ZB-H1."""
    if micro_batches % max(1, micro_batches // stages) == 0:
        expected = multi("ScheduleInterleavedZeroBubble", stages, chunks, micro_batches)
        assert ours("interleaved-zb", stages, chunks, micro_batches) == expected
        if chunks == 1:
            assert ours("zb-h1", stages, 1, micro_batches) == expected


@pytest.mark.parametrize("stages", [2, 3, 4, 5, 8, 16])
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4, 7, 8, 15, 16, 17, 32, 40])
def test_zbv(stages: int, micro_batches: int) -> None:
    assert ours("zbv", stages, 2, micro_batches) == multi("ScheduleZBVZeroBubble", stages, 2, micro_batches)


@pytest.mark.parametrize("stages", [2, 3, 4, 5, 8, 16])
@pytest.mark.parametrize("more", [0, 1, 2, 7, 20])
def test_dualpipev(stages: int, more: int) -> None:
    micro_batches = 2 * stages + more
    assert ours("dualpipev", stages, 2, micro_batches) == multi("ScheduleDualPipeV", stages, 2, micro_batches)


@pytest.mark.parametrize("style", ["loop", "v"])
@pytest.mark.parametrize("stages", [2, 3, 8])
def test_virtual_stages_sit_where_pytorch_puts_them(style: str, stages: int) -> None:
    expected = utils.generate_rank_to_stage_mapping(stages, 2 * stages, style=style)
    places = SHAPES["zbv" if style == "v" else "interleaved"].places(stages, 2)
    assert [sorted(held) for held in places] == [sorted(expected[rank]) for rank in range(stages)]


def test_every_schedule_of_pytorch_is_compared() -> None:
    """A schedule that a later PyTorch adds shows here."""
    known = {"Schedule1F1B", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleLoopedBFS", "ScheduleInterleavedZeroBubble",
             "ScheduleZBVZeroBubble", "ScheduleDualPipeV"}  # fmt: skip
    assert {name for name in dir(schedules) if name.startswith("Schedule")} == known
