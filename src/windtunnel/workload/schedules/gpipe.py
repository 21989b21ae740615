"""GPipe (Huang et al. 2019): all forwards, then all backwards."""

from __future__ import annotations

from windtunnel.workload.schedules.action import Action, Order, Pass


def gpipe(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage; `chunks` is 1."""
    forward = tuple(Action(Pass.FORWARD, 0, m) for m in range(micro_batches))
    backward = tuple(Action(Pass.BACKWARD, 0, m) for m in range(micro_batches))
    return (forward + backward,) * stages
