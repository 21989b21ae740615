"""The result: plain data, one `StageMemory` per pipeline stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.memory.tiers import NAMES, TierMemory

USABLE = 0.989
"""Share of the data sheet's memory that CUDA offers: PyTorch's out-of-memory texts print 79.15 of 80 GiB on A100, 79.10 on H100."""


@dataclass(frozen=True)
class StageMemory:
    """Bytes on the fullest GPU of one pipeline stage at its peak, by kind.

    weights + gradients + optimizer + activations + logits + buffers + workspace = allocated.
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
    """CUDA context and NCCL."""
    fragmentation: float
    allocated: float
    """All tensors."""
    reserved: float
    """`allocated` with `fragmentation`: what the framework's allocator holds."""
    total: float
    """`reserved` with `context`: what nvidia-smi shows."""
    capacity: float
    fits: bool
    """Whether the GPU has room, and so have all `tiers`."""
    curve: Sequence[tuple[float, float]] = ()
    """(second in the step, allocated bytes)."""
    tiers: tuple[TierMemory, ...] = ()
    """Bytes outside the GPU."""

    @property
    def usable(self) -> float:
        """Bytes of `capacity` that CUDA can provide."""
        return USABLE * self.capacity

    @property
    def missing(self) -> float:
        """Bytes beyond the capacity of the GPU, or of an offload tier: positive if and only if the stage does not fit."""
        over = self.total - self.usable
        if self.fits:
            return min(0.0, over)  # a stage that fits may fill its room exactly; ignore rounding
        return max((over, *(tier.missing for tier in self.tiers)))

    @property
    def short(self) -> str:
        """Where `missing` bytes are missing: GPU memory, or an offload tier that lacks more."""
        over = max(self.tiers, key=lambda tier: tier.missing, default=None)
        return NAMES[over.place] if over is not None and over.missing > max(0.0, self.total - self.usable) else "GPU memory"


def stage_of(table: Mapping[str, Any]) -> StageMemory:
    """The stage that JSON of an answer has as `table`."""
    return StageMemory(**{**table, "tiers": tuple(TierMemory(**tier) for tier in table["tiers"])})
