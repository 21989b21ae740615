"""Interleaved 1F1B (Narayanan et al. 2021, §2.2): stages hold several virtual stages and walk them `stages` micro batches at a
time."""

from __future__ import annotations

from windtunnel.workload.schedules.action import Action, Pass


def interleaved(stages: int, chunks: int, micro_batches: int) -> tuple[tuple[Action, ...], ...]:
    """Actions of each stage; micro batches are a multiple of stages.

    Stage s runs 2 (stages - s - 1) + (chunks - 1) stages forwards before its first pair, or all of them if that is fewer
    (or if there are only `stages` micro batches).
    """
    total = micro_batches * chunks
    group = stages * chunks

    def turn(index: int, direction: Pass) -> Action:
        place = index % group
        chunk = place // stages
        micro_batch = index // group * stages + place % stages
        return Action(direction, chunk if direction is Pass.FORWARD else chunks - 1 - chunk, micro_batch)

    plans = []
    for stage in range(stages):
        warm_up = total if micro_batches == stages else min(2 * (stages - stage - 1) + (chunks - 1) * stages, total)
        actions = [turn(i, Pass.FORWARD) for i in range(warm_up)]
        for i in range(total - warm_up):
            actions += [turn(i + warm_up, Pass.FORWARD), turn(i, Pass.BACKWARD)]
        actions += [turn(i, Pass.BACKWARD) for i in range(total - warm_up, total)]
        plans.append(tuple(actions))
    return tuple(plans)
