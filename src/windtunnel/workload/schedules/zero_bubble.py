"""Zero bubble (Qi et al. 2023, arXiv 2401.10241): 1F1B with split backward passes, whose weight gradients are delayed to fill the
bubble. ZB-H1 (§2.1) has the memory of 1F1B; ZB-H2 (§2.2) twice its warm-up, and so twice its memory, but no bubble; interleaved
zero bubble (PyTorch's InterleavedZeroBubble) has several virtual stages a stage.
"""

from __future__ import annotations

from windtunnel.workload.schedules.action import Order, Pass
from windtunnel.workload.schedules.interleaved import per_round, turn


def interleaved_zb(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage; every stage holds as many micro batches as 1F1B's first."""
    return held_back(stages, chunks, micro_batches, 1)


def held_back(stages: int, chunks: int, micro_batches: int, hops: int) -> tuple[Order, ...]:
    """Stage s warms up with `hops` forwards for every stage after it, and its weight gradients run `hops` s passes late.

    Delayed weight gradients fill the cool-down; later stages, which start later, delay more of them.
    """
    total, width = micro_batches * chunks, per_round(stages, micro_batches)
    plans = []
    for stage in range(stages):
        warm_up = min((chunks - 1) * width + hops * (stages - stage - 1), total)
        late = hops * stage
        actions = [turn(i, Pass.FORWARD, chunks, width) for i in range(warm_up)]
        for i in range(total):
            if warm_up + i < total:
                actions.append(turn(warm_up + i, Pass.FORWARD, chunks, width))
            actions.append(turn(i, Pass.INPUT_GRADIENT, chunks, width))
            if i >= late:
                actions.append(turn(i - late, Pass.WEIGHT_GRADIENT, chunks, width))
        actions += [turn(i, Pass.WEIGHT_GRADIENT, chunks, width) for i in range(max(0, total - late), total)]
        plans.append(tuple(actions))
    return tuple(plans)


def zb_h1(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage; `chunks` is 1. The bubble is (stages - 1) (F + B - W), B and W the halves of the backward pass."""
    return held_back(stages, chunks, micro_batches, 1)


def zb_h2(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage; `chunks` is 1. With 2 stages - 1 micro batches or more, a stage idles max(0, (stages - 1) (F + B -
    2W)) between its first pass and its last."""
    return held_back(stages, chunks, micro_batches, 2)
