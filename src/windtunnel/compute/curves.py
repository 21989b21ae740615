"""Fitted constants of kernels: curves by class, the basis of each class, and the choice for a GPU.

One JSON file of `catalog/kernels/` per GPU holds them (`kernel_file.py`): the GPU they were fitted on, and for each kernel class
the constants, their source, the error on shapes held out of the fit, and a provenance.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from windtunnel.base.dataclasses import dataclass, field

LARGEST = 1e30
"""Upper limit of a constant, so that products of a few constants stay in the range of a float."""

Number = Annotated[float, Field(ge=0.0, le=LARGEST, allow_inf_nan=False, strict=True)]
"""Zero or more."""

Positive = Annotated[float, Field(ge=1e-6, le=LARGEST, allow_inf_nan=False, strict=True)]
"""A divisor, a share or a factor: above zero."""

BeyondOne = Annotated[float, Field(gt=1.0, le=LARGEST, allow_inf_nan=False, strict=True)]
Exponent = Annotated[float, Field(ge=0.1, le=16.0, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=1, le=2**30, strict=True)]
STRICT = ConfigDict(extra="forbid")
"""Refuses files with unknown keys."""


class Provenance(IntEnum):
    """The basis of an estimate, best first."""

    MEASURED = 0
    INTERPOLATED = 1
    MODELLED = 2
    TRANSFERRED = 3
    ASSUMED = 4


PROVENANCES = tuple(code.name.lower() for code in Provenance)
"""Names of the codes, as reports show them."""


def provenance_of(name: object) -> object:
    """The code of a provenance that a file names in lower case."""
    if not isinstance(name, str) or name not in PROVENANCES:
        raise ValueError("not " + ", ".join(PROVENANCES))
    return Provenance(PROVENANCES.index(name))


@dataclass(frozen=True)
class GemmCurve:
    """Constants of the tile/wave model; see `gemm.py` for the equations."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    fraction: Positive
    """Asymptotic rate over peak, bf16."""
    tiles: Annotated[tuple[tuple[Count, Count], ...], Field(min_length=1)]
    """(rows, columns) of output per thread block."""
    tile_cost: Number
    """Elements: main-loop slowdown 1 + tile_cost (1/rows + 1/columns)."""
    prologue: Number
    """Elements of k that filling and draining a block's pipeline costs."""
    wave: Number
    """0: no loss in a partial wave, 1: a partial wave costs a whole one."""
    memory: Positive
    """Share of HBM bandwidth that operands and results reach."""
    latency: Number
    """Seconds of the shortest kernel."""
    split: Number
    """Seconds that splitting k costs in addition."""
    blend: Exponent
    """Exponent of the norm that joins compute and memory time; large = perfect overlap."""
    throttle: Number
    """Share by which a long kernel is slower: the clock falls under the power limit."""
    settle: Positive
    """Seconds of a kernel at which half of `throttle` shows."""
    dgrad: Positive = 1.0
    """Time factor of the NN layout."""
    wgrad: Positive = 1.0
    """Time factor of the NT layout."""
    store: Positive = 1.0
    """Rate of writing results over the rate of reading operands."""
    sharp: Exponent = 1.0
    """How suddenly the clock falls: exponent of kernel length / settle."""


@dataclass(frozen=True)
class AttentionCurve:
    """Constants of a fused attention kernel in one direction; see `attention.py`."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    fraction: Positive
    """Asymptotic rate over peak: long sequences, large heads, no mask."""
    rows: Count
    """Query rows of a block."""
    wave: Number
    """Longest blocks' times that SMs idle at the end."""
    setup: Number
    """Key positions: fixed cost of a block."""
    head: Number
    """Elements: slowdown of small head sizes, 1 + head/k."""
    causal: Number
    """Time factor of half-masked work."""
    latency: Number
    """Seconds of the shortest kernel."""


@dataclass(frozen=True)
class MemoryCurve:
    """Constants of a kernel that moves bytes; see `memory.py`."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    efficiency: Positive
    """Share of HBM bandwidth that large kernels reach."""
    latency: Number
    """Seconds of the shortest kernel."""
    cache: Positive = 1.0
    """Rate of bytes that stay in L2 over the rate of HBM."""
    backward: Positive = 1.0
    """Time factor of the backward kernel."""
    reach: BeyondOne = 4.0
    """Working set over L2 at which nothing stays resident."""
    row: Number = 0.0
    """Seconds that a block needs for a row, however short."""
    element: Number = 0.0
    """Seconds that it needs for each element of the row."""


@dataclass(frozen=True)
class ErrorStatistics:
    """Errors ln(predicted / measured) of n rows in percent: median and 90 % quantile of their size, and their mean."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    n: Number
    median_pct: Number
    p90_pct: Number
    bias_pct: Annotated[float, Field(allow_inf_nan=False, strict=True)]


@dataclass(frozen=True)
class Basis:
    """The basis of one kernel class.

    `error` is the relative 1-sigma error on held-out shapes; `held_out` and `trained` are statistics by part of the rows, empty
    where the class was not fitted on this GPU.
    """

    error: float
    provenance: Provenance
    source: str
    held_out: Mapping[str, ErrorStatistics] = field(default_factory=dict)
    trained: Mapping[str, ErrorStatistics] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelCurves:
    """Constants of one GPU and the GPU they were fitted on."""

    id: str
    architecture: str
    peak: float
    """FLOP/s, bf16 or fp16, dense."""
    achievable: float
    """FLOP/s, best measured matmul."""
    sms: float
    l2: float
    power: float
    narrow: float
    """(best measured / peak) of FP8 over that of bf16."""
    bandwidth: float
    """B/s."""
    gemm: GemmCurve
    memory: dict[str, MemoryCurve]
    """By class, or by name@library for one kernel."""
    attention: dict[str, dict[str, AttentionCurve]]
    """Library -> direction (forward, backward) -> constants."""
    tables: dict[str, Basis]
    """By table: gemm, grouped_gemm, keys of `memory`, attention.LIBRARY."""
    grouped: GemmCurve | None = None
    """Products of many weights in one launch, where measured."""
    datasheet: Mapping[str, Any] = field(default_factory=dict)
    """For a device that is not in the catalogue: fields of spec.GPU."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Environment of the measurement: fields of records.About."""


@dataclass(frozen=True)
class Choice:
    """The constants of a GPU, and how they were chosen."""

    kernels: KernelCurves
    provenance: Provenance
    own: tuple[str, ...] = ()
    """Tables of curves that are carried from another GPU which were measured on this one."""
