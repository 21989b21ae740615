"""Breadth-first (Lamy-Poirier 2023, arXiv 2211.05953; PyTorch's LoopedBFS): all micro batches run a virtual stage before the next.

A virtual stage's parameters are gathered and its gradients reduced once for all micro batches, but memory is that of GPipe.
"""

from __future__ import annotations

from windtunnel.workload.schedules.action import Action, Order, Pass


def breadth_first(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage; backward takes both virtual stages and micro batches in reverse."""
    forward = tuple(Action(Pass.FORWARD, c, m) for c in range(chunks) for m in range(micro_batches))
    backward = tuple(Action(Pass.BACKWARD, c, m) for c in reversed(range(chunks)) for m in reversed(range(micro_batches)))
    return (forward + backward,) * stages
