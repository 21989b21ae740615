"""Interleaved 1F1B (Narayanan et al. 2021, §2.2): a stage holds several virtual stages and runs `stages` micro batches on each
before the next."""

from __future__ import annotations

from windtunnel.workload.schedules.action import Action, Order, Pass


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
