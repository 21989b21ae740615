"""Constants of recurrences, short convolutions and rates of 8 bits, and the choice of them for a GPU; `forward.py` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, ConfigDict

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.compute.curves import STRICT, GemmCurve, Number, Positive, Provenance, provenance_of

Named = Annotated[Provenance, BeforeValidator(provenance_of)]
"""A provenance by its name in lower case."""


@dataclass(frozen=True)
class ScanConstants:
    """One direction of a recurrence; see `scan.py`."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    latency: Number
    """Seconds of the shortest of its kernels."""
    memory: Positive
    """Share of memory bandwidth at which operands and states of chunks move."""
    rate: Positive = 1.0
    """Share of the 16-bit peak that products of chunks reach."""
    step: Number = 0.0
    """Seconds from one chunk of a sequence to the next, in the kernels that go through chunks in order."""


@dataclass(frozen=True)
class ScanCurve:
    """A recurrence in both directions. `held_out`: median error in per cent of the rows that no fit saw, `rows` of them."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    forward: ScanConstants
    backward: ScanConstants
    error: Number
    provenance: Named
    source: str
    held_out: Number = 0.0
    rows: int = 0


@dataclass(frozen=True)
class ConvolutionCurve:
    """Causal depthwise convolutions of a few tokens, which read and write 16 bits a number."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    latency: Number
    memory: Positive
    error: Number
    provenance: Named
    source: str
    held_out: Number = 0.0
    rows: int = 0


@dataclass(frozen=True)
class NarrowRate:
    """Rate of large products of a recipe over that of bf16 on the same GPU, quantising apart."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    rate: Positive
    error: Number
    source: str
    held_out: Number = 0.0
    rows: int = 0


@dataclass(frozen=True)
class SustainedProducts:
    """Products in bf16 at the power limit, which replace those of the GPU's file or of the GPU that it is carried from."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    curve: GemmCurve
    error: Number
    source: str
    held_out: Number = 0.0
    rows: int = 0


@dataclass(frozen=True)
class ForwardCurves:
    """The constants of one GPU. `rates` by recipe (current, blockwise); `scans`: state_space, delta, delta_by_channel."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    scans: Mapping[str, ScanCurve]
    convolution: ConvolutionCurve
    rates: Mapping[str, NarrowRate] = field(default_factory=dict)
    products: SustainedProducts | None = None


@dataclass(frozen=True)
class ForwardChoice:
    """The constants for a GPU, the provenance that they have at best, and the relative error that carrying them adds."""

    curves: ForwardCurves
    provenance: Provenance = Provenance.MODELLED
    added: float = 0.0
    carried_from: str = ""

    def founding(self, found: ScanCurve | ConvolutionCurve) -> tuple[float, Provenance]:
        """Relative error and provenance of a curve on this GPU."""
        return float(hypot(found.error, self.added)), max(found.provenance, self.provenance)

    def source(self, name: str, found: ScanCurve | ConvolutionCurve) -> str:
        """What a prediction says about where a curve is from."""
        how = f", {self.provenance.name.lower()} from {self.carried_from}" if self.carried_from else ""
        return f"{name}{how}: {found.source}"

    def rate_of(self, recipe: str) -> NarrowRate | None:
        """The measured rate of a recipe on this GPU itself. Delayed scaling has the products of current scaling."""
        return None if self.carried_from else self.curves.rates.get("current" if recipe == "delayed" else recipe)
