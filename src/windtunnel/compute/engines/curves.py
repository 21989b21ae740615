"""Constants of an engine's kernels on one GPU; `seconds.py` has the equations. All times are of kernels in a captured graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.compute.curves import STRICT, Count, ErrorStatistics, Exponent, GemmCurve, Number, Positive

FITTED = ("bf16", "fp8", "fp8_block", "nvfp4", "int4", "int8", "w8a8", "mxfp4", "mxfp4_wide")
"""Formats whose products or experts have curves."""

Statistics = Mapping[str, ErrorStatistics]


@dataclass(frozen=True)
class LinearCurve:
    """A linear layer on 16-bit inputs: the product, and before it the kernel that quantises its input (0 where none does)."""

    __pydantic_config__: ClassVar = STRICT

    product: GemmCurve
    quantise: Number = 0.0
    """Seconds of the shortest quantising kernel."""
    bandwidth: Positive = 1.0
    """Share of memory bandwidth at which it reads 16 bits a number and writes the format's."""
    held_out: Statistics = field(default_factory=dict)


@dataclass(frozen=True)
class DecodeCurve:
    """Attention of one new token a sequence over its cache."""

    __pydantic_config__: ClassVar = STRICT

    latency: Number
    """Seconds of the shortest call."""
    memory: Positive
    """Share of memory bandwidth at which caches are read."""
    setup: Number
    """Seconds that a block needs for its sequence and key-value head, however short."""
    key: Number
    """Seconds of a block for a cached key of 128 elements."""
    merge: Number
    """Seconds that joining the parts of a split cache costs."""
    blend: Exponent
    """Exponent of the norm that joins memory and blocks."""
    cache: Positive = 1.0
    """Rate of caches that the L2 holds over that of memory. Replayed kernels find theirs there, those of a model do not."""
    rate: Positive = 1.0
    """Share of peak at which scores and sums are computed, which bounds latent attention of many heads."""
    held_out: Statistics = field(default_factory=dict)


@dataclass(frozen=True)
class PrefillCurve:
    """Causal attention over prompts; see `prompts.py`."""

    __pydantic_config__: ClassVar = STRICT

    fraction: Positive
    """Share of peak of long prompts, large heads and keys that many query heads share."""
    rows: Count
    """Query rows of a block."""
    wave: Number
    """Longest blocks' times that SMs idle at the end."""
    alone: Number
    """Longest blocks' times that a call takes at least: a block alone on its SM is faster than one that shares it."""
    setup: Number
    """Key positions: fixed cost of a block, and of the part of a tile that the mask hides."""
    head: Number
    """Elements: an exponential for each score, 1 + head/k."""
    wide: Number
    """Slowdown for each 128 elements of a head beyond the first: fewer of them fit an SM."""
    own: Number
    """Slowdown where no two query heads share keys and values, which otherwise are in the L2."""
    latency: Number
    """Seconds of the shortest call."""
    held_out: Statistics = field(default_factory=dict)


@dataclass(frozen=True)
class ExpertsCurve:
    """Fused experts of one rank."""

    __pydantic_config__: ClassVar = STRICT

    latency: Number
    """Seconds of all kernels at one token."""
    memory: Positive
    """Share of memory bandwidth at which weights of chosen experts are read."""
    fraction: Positive
    """Share of peak that whole tiles reach."""
    tile: Number
    """Rows: a tile of r rows is 1 + tile / r times slower."""
    moved: Positive
    """Share of memory bandwidth at which a rank's tokens are copied to experts, activated and summed."""
    spread: Positive
    """The same for what is done for all tokens' copies, also those of experts on other ranks."""
    blend: Exponent
    """Exponent of the norm that joins weights and products."""
    held_out: Statistics = field(default_factory=dict)


@dataclass(frozen=True)
class ReduceCurve:
    """An engine's own all-reduce inside a node: every rank reads all others' buffers, or sums its part and gathers the others'."""

    __pydantic_config__: ClassVar = STRICT

    start: Number
    """Seconds of the shortest call of one step."""
    rank: Number
    """Seconds that each rank adds."""
    one: Positive
    """Share of the scale-up bandwidth at which one step reads."""
    starts: Positive
    """Starts of the call of two steps."""
    two: Positive
    """Share at which two steps read."""
    held_out: Statistics = field(default_factory=dict)


@dataclass(frozen=True)
class PointwiseCurve:
    """Kernels that move bytes: norms, activations, rotations, quantising with a known scale."""

    __pydantic_config__: ClassVar = STRICT

    latency: Number
    """Seconds of the shortest kernel."""
    memory: Positive
    """Share of memory bandwidth that long ones reach."""
    cache: Positive = 1.0
    """Rate of bytes that the L2 holds over that of memory, as `DecodeCurve.cache`."""
    held_out: Statistics = field(default_factory=dict)


@dataclass(frozen=True)
class EngineCurves:
    """The kernels of one engine on one GPU. By format: `linear`, `experts`; by the cache's format: `decode`, `latent_decode`;
    `prefill`, `windowed` (under a window), `latent_prefill` by the format of attention. `other_experts`: experts by slower kernels
    that a server may state, such as TensorRT-LLM's `moe_config: backend: CUTLASS`; by kernel, then by format."""

    __pydantic_config__: ClassVar = STRICT

    releases: tuple[str, ...]
    linear: Mapping[str, LinearCurve]
    decode: Mapping[str, DecodeCurve]
    prefill: Mapping[str, PrefillCurve]
    windowed: Mapping[str, PrefillCurve] = field(default_factory=dict)
    latent_decode: Mapping[str, DecodeCurve] = field(default_factory=dict)
    latent_prefill: Mapping[str, PrefillCurve] = field(default_factory=dict)
    experts: Mapping[str, ExpertsCurve] = field(default_factory=dict)
    other_experts: Mapping[str, Mapping[str, ExpertsCurve]] = field(default_factory=dict)
    reduce: ReduceCurve | None = None
    pointwise: PointwiseCurve | None = None
