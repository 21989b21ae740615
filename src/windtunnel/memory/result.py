"""The answer of this room: plain data, one per pipeline stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from windtunnel.memory.replay import Replays

PLAIN = ("stage", "weights", "gradients", "optimizer", "activations", "logits", "buffers", "workspace", "context", "fragmentation",
         "allocated", "reserved", "total", "capacity", "usable", "fits", "curve")


@dataclass(frozen=True)
class StageMemory:
    """Bytes on the fullest GPU of one pipeline stage at its peak, by kind.

    weights + gradients + optimizer + activations + logits + buffers + workspace = `allocated`; with `fragmentation` it is what the
    framework's allocator holds (`reserved`); with `context` (CUDA context, NCCL) what the driver's tool shows (`total`). `capacity`
    is the data sheet's, `usable` the part of it that CUDA hands out; the stage `fits` if `allocated` and `context` are within it.
    Fragmentation comes from a replay, which runs when it is first asked for.
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
    allocated: float
    capacity: float
    usable: float
    fits: bool
    overhead: float = 0.0  # what the framework reserves beyond the replay, as a fraction of allocated
    replays: Replays | None = field(default=None, repr=False, compare=False)
    curve: Sequence[tuple[float, float]] = ()  # (second in the step, allocated bytes)

    @cached_property
    def fragmentation(self) -> float:
        """Reserved less allocated, as far as the GPU has room: before it fails, PyTorch gives unused segments back."""
        if not self.fits:
            return 0.0
        share = self.replays.share(self.stage) if self.replays is not None else 0.0
        return max(0.0, min(self.allocated * (share + self.overhead), self.usable - self.context - self.allocated))

    @property
    def reserved(self) -> float:
        return self.allocated + self.fragmentation

    @property
    def total(self) -> float:
        return self.reserved + self.context

    @property
    def lacking(self) -> float:
        """Bytes of `allocated` and `context` beyond `usable`, negative where it fits; needs no replay."""
        return self.allocated + self.context - self.usable

    @property
    def missing(self) -> float:
        """Bytes of `total` beyond `usable`; negative is what is free."""
        return self.total - self.usable

    @property
    def tight(self) -> bool:
        """Fits by its bytes, but in the replay the allocator found no room in one piece: a real job may fail here."""
        return self.fits and self.replays is not None and self.replays.of(self.stage).failed

    def plain(self) -> dict[str, Any]:
        """All figures by name, as JSON has them."""
        return {name: getattr(self, name) for name in PLAIN}
