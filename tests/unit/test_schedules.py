"""Every schedule runs each pass once, in an order that data allows, and holds no more micro batches than its paper says."""

from __future__ import annotations

import pytest

from windtunnel.workload.schedules import SCHEDULES, Action, Pass

GRID = [
    (name, p, v, m)
    for name in SCHEDULES
    for p in (1, 2, 4, 8)
    for v in ((2, 3) if name == "interleaved" else (1,))
    for m in (p, 2 * p, 4 * p)
    if not (name == "interleaved" and p == 1)
]


@pytest.mark.parametrize("name, stages, chunks, micro_batches", GRID)
def test_each_pass_runs_once_and_data_flows(name: str, stages: int, chunks: int, micro_batches: int) -> None:
    plans = SCHEDULES[name](stages, chunks, micro_batches)
    assert len(plans) == stages
    done: set[tuple[Pass, int, int]] = set()
    position = [0] * stages
    last = stages * chunks - 1

    def ready(stage: int, action: Action) -> bool:
        k = action.chunk * stages + stage
        if action.direction is Pass.FORWARD:
            return k == 0 or (Pass.FORWARD, k - 1, action.micro_batch) in done
        own = (Pass.FORWARD, k, action.micro_batch) in done
        return own and (k == last or (Pass.BACKWARD, k + 1, action.micro_batch) in done)

    progress = True
    while progress:
        progress = False
        for stage, plan in enumerate(plans):
            while position[stage] < len(plan) and ready(stage, plan[position[stage]]):
                action = plan[position[stage]]
                key = (action.direction, action.chunk * stages + stage, action.micro_batch)
                assert key not in done
                done.add(key)
                position[stage] += 1
                progress = True
    assert position == [len(plan) for plan in plans], "the schedule deadlocks"
    assert len(done) == 2 * (last + 1) * micro_batches


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_1f1b_keeps_at_most_stages_minus_rank_micro_batches(stages: int) -> None:
    for stage, plan in enumerate(SCHEDULES["1f1b"](stages, 1, 3 * stages)):
        held = peak = 0
        for action in plan:
            held += 1 if action.direction is Pass.FORWARD else -1
            peak = max(peak, held)
        assert peak == stages - stage


def test_interleaved_warm_up_is_megatrons() -> None:
    plans = SCHEDULES["interleaved"](4, 2, 8)
    warm_up = [next(i for i, a in enumerate(plan) if a.direction is Pass.BACKWARD) - 1 for plan in plans]
    assert warm_up == [2 * 3 + 4, 2 * 2 + 4, 2 * 1 + 4, 4]
