"""Settings of PYTORCH_CUDA_ALLOC_CONF that change memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from windtunnel.base.errors import SpecError, UnknownName

MIB = 2**20
BLOCK = 512
"""Every size is rounded up to a multiple of this (kMinBlockSize)."""

MOST_DIVISIONS = 64


@dataclass(frozen=True)
class AllocatorSettings:
    """Settings of PyTorch's CUDA caching allocator; sizes in bytes, defaults as PyTorch's.

    `max_split`: free blocks from this size on are neither split nor given to smaller requests.
    `power2_divisions`: sizes are rounded up to one of this many steps between powers of two (0 or 1: to 512 B).
    `collect_above`: share of the memory limit above which old cached segments are freed before a new one is asked for (0: never).
    """

    expandable: bool = False
    max_split: float = math.inf
    power2_divisions: int = 0
    collect_above: float = 0.0

    def round_size(self, size: int) -> int:
        """Bytes of the block that a request of `size` gets at least."""
        divisions = self.power2_divisions
        if divisions > 1 and size > BLOCK * divisions:
            below = 1 << (size.bit_length() - 1)
            step = below // divisions
            return size if size == below else -(-size // step) * step
        return max(BLOCK, -(-size // BLOCK) * BLOCK)


def settings_of(text: str) -> AllocatorSettings:
    """Settings from the text of PYTORCH_CUDA_ALLOC_CONF: `name:value` pairs with commas between.

    Accepts expandable_segments, max_split_size_mb, roundup_power2_divisions (one number), garbage_collection_threshold and
    backend:native. Raises SpecError or UnknownName for anything else.
    """
    settings = AllocatorSettings()
    for pair in (part.strip() for part in text.split(",") if part.strip()):
        name, _, value = pair.partition(":")
        if name not in READERS:
            raise UnknownName("runtime.alloc_conf", name, tuple(READERS))
        settings = READERS[name](settings, value.strip())
    return settings


def _expandable(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    if value not in ("True", "False"):
        raise SpecError("runtime.alloc_conf", f"expandable_segments:{value}", "True or False")
    return replace(settings, expandable=value == "True")


def _max_split(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    if not value.isdigit() or int(value) <= 20:  # PyTorch: larger than the 20 MiB of its large segments
        raise SpecError("runtime.alloc_conf", f"max_split_size_mb:{value}", "a whole number of MiB above 20")
    return replace(settings, max_split=int(value) * MIB)


def _divisions(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    if not value.isdigit() or int(value) > MOST_DIVISIONS or int(value) & (int(value) - 1):
        raise SpecError("runtime.alloc_conf", f"roundup_power2_divisions:{value}", f"a power of two up to {MOST_DIVISIONS}, or 0")
    return replace(settings, power2_divisions=int(value))


def _collect(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    try:
        share = float(value)
    except ValueError:
        share = math.nan
    if not 0.0 < share < 1.0:
        raise SpecError("runtime.alloc_conf", f"garbage_collection_threshold:{value}", "a share between 0 and 1")
    return replace(settings, collect_above=share)


def _backend(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    if value != "native":
        raise SpecError("runtime.alloc_conf", f"backend:{value}", "native", "cudaMallocAsync is not modelled.")
    return settings


READERS: dict[str, Callable[[AllocatorSettings, str], AllocatorSettings]] = {
    "expandable_segments": _expandable,
    "max_split_size_mb": _max_split,
    "roundup_power2_divisions": _divisions,
    "garbage_collection_threshold": _collect,
    "backend": _backend,
}
