"""1F1B (PipeDream-flush; Narayanan et al. 2021, fig. 3): warm-up forwards, forwards and backwards in turn, cool-down."""

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
