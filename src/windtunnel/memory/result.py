"""The answer of this room: plain data, one per pipeline stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StageMemory:
    """Bytes on the fullest GPU of one pipeline stage at its peak, by kind.

    weights + gradients + optimizer + activations + logits + buffers + workspace = `allocated`; with `fragmentation` it is what the
    framework's allocator holds (`reserved`); with `context` (CUDA context, NCCL) what the driver's tool shows (`total`).
    """

    stage: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    workspace: float
    context: float
    fragmentation: float
    allocated: float
    reserved: float
    total: float
    capacity: float
    fits: bool
    curve: Sequence[tuple[float, float]] = ()  # (second in the step, allocated bytes)

    @property
    def missing(self) -> float:
        """Bytes of `total` beyond `capacity`; negative is what is free."""
        return self.total - self.capacity
