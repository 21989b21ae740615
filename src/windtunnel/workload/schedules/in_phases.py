"""All forwards, then all backwards: GPipe (Huang et al. 2019), and breadth-first (Lamy-Poirier 2023, arXiv 2211.05953; PyTorch's
LoopedBFS), in which all micro batches run a virtual stage before the next. There a virtual stage's parameters are gathered and its
gradients reduced once for all micro batches, but memory is that of GPipe.
"""

from __future__ import annotations

from windtunnel.workload.schedules.action import Action, Order, Pass


def gpipe(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage; `chunks` is 1."""
    forward = tuple(Action(Pass.FORWARD, 0, m) for m in range(micro_batches))
    backward = tuple(Action(Pass.BACKWARD, 0, m) for m in range(micro_batches))
    return (forward + backward,) * stages


def breadth_first(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage; backward takes both virtual stages and micro batches in reverse."""
    forward = tuple(Action(Pass.FORWARD, c, m) for c in range(chunks) for m in range(micro_batches))
    backward = tuple(Action(Pass.BACKWARD, c, m) for c in reversed(range(chunks)) for m in reversed(range(micro_batches)))
    return (forward + backward,) * stages
