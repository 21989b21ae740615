"""1F1B (PipeDream-flush; Narayanan et al. 2021, fig. 3): warm-up forwards, forwards and backwards in turn, cool-down. Interleaved
(§2.2): a stage holds several virtual stages and runs `stages` micro batches on each before the next.

Overlapped: each forward pass of the steady state beside a backward pass, so that the all-to-alls of one micro batch overlap with
computation of another: Megatron-Core's `--overlap-moe-expert-parallel-comm` (combined_1f1b.py).
"""

from __future__ import annotations

from windtunnel.workload.schedules.action import Action, Order, Pass


def one_f_one_b(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage; stage s runs min(stages - s - 1, micro batches) forwards before its first pair; `chunks` is 1."""
    plans = []
    for stage in range(stages):
        warm_up = min(stages - stage - 1, micro_batches)
        actions = [Action(Pass.FORWARD, 0, m) for m in range(warm_up)]
        for m in range(micro_batches - warm_up):
            actions += [Action(Pass.FORWARD, 0, m + warm_up), Action(Pass.BACKWARD, 0, m)]
        actions += [Action(Pass.BACKWARD, 0, m) for m in range(micro_batches - warm_up, micro_batches)]
        plans.append(tuple(actions))
    return tuple(plans)


def per_round(stages: int, micro_batches: int) -> int:
    """Micro batches that run one virtual stage before the next: `stages`, or the nearest even share if they do not divide."""
    return micro_batches // max(1, micro_batches // stages)


def turn(index: int, direction: Pass, chunks: int, width: int) -> Action:
    """The `index`-th pass of a stage in a direction, if micro batches come in rounds of `width`; backward runs chunks in
    reverse."""
    place = index % (width * chunks)
    chunk = place // width
    micro_batch = index // (width * chunks) * width + place % width
    return Action(direction, chunk if direction is Pass.FORWARD else chunks - 1 - chunk, micro_batch)


def interleaved_order(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage.

    Stage s runs 2 (stages - s - 1) + (chunks - 1) stages forwards before its first pair, or all of them if that is fewer
    (or if there are only `stages` micro batches).
    """
    total, width = micro_batches * chunks, per_round(stages, micro_batches)
    forward, backward = ([turn(i, way, chunks, width) for i in range(total)] for way in (Pass.FORWARD, Pass.BACKWARD))
    plans = []
    for stage in range(stages):
        warm_up = total if micro_batches == stages else min(2 * (stages - stage - 1) + (chunks - 1) * width, total)
        actions = forward[:warm_up]
        for pair in zip(forward[warm_up:], backward, strict=False):
            actions += pair
        plans.append(tuple(actions + backward[total - warm_up :]))
    return tuple(plans)


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
