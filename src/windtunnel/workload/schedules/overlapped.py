"""1F1B and interleaved 1F1B with each forward pass of the steady state beside a backward pass, so that the all-to-alls of one micro
batch overlap with computation of another: Megatron-Core's `--overlap-moe-expert-parallel-comm` (combined_1f1b.py)."""

from __future__ import annotations

from windtunnel.workload.schedules.action import Action, Order, Pass
from windtunnel.workload.schedules.interleaved import per_round, turn


def overlapped_order(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage: one forward more than interleaved 1F1B before the first pair, so that the passes of a pair are
    independent. With one stage, micro batch i + 1 runs forward beside the backward pass of micro batch i."""
    total, width = micro_batches * chunks, per_round(stages, micro_batches)
    plans = []
    for stage in range(stages):
        warm_up = total if 1 < stages == micro_batches else min(2 * (stages - stage - 1) + (chunks - 1) * width + 1, total)
        actions = [turn(i, Pass.FORWARD, chunks, width) for i in range(warm_up)]
        for i in range(total - warm_up):
            ahead = turn(i + warm_up, Pass.FORWARD, chunks, width)
            actions += [Action(*ahead[:3], beside_next=True), turn(i, Pass.BACKWARD, chunks, width)]
        actions += [turn(i, Pass.BACKWARD, chunks, width) for i in range(total - warm_up, total)]
        plans.append(tuple(actions))
    return tuple(plans)
