"""Base class and field types of all nouns: frozen, unknown keys are errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from windtunnel.base.dtypes import DTYPE_BYTES as DTYPE_BYTES  # also for those who import it from here
from windtunnel.base.dtypes import STATED

PositiveInt = Annotated[int, Field(ge=1, le=10**9, strict=True)]
NonNegativeInt = Annotated[int, Field(ge=0, le=10**9, strict=True)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Fraction = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
LARGEST_LAYERS = 100_000
Layers = Annotated[int, Field(ge=1, le=LARGEST_LAYERS, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=200)]

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]
"""Number format of the linear layers' inputs; accumulation is fp32 in all of them."""


KINDS_OF_FAILURE = ("crash", "hang", "slow_node", "bad_node", "storage", "network", "planned")
"""Fields of `Reliability` that are kinds of failures, in the order of reports."""


def _check_weight_format(name: str) -> str:
    if name not in STATED:
        raise ValueError("number formats " + ", ".join(STATED))
    return name


WeightFormatName = Annotated[str, AfterValidator(_check_weight_format), Field(json_schema_extra={"enum": list(STATED)})]
"""A member of `base.dtypes.STATED`."""

CacheFormat = Literal["bf16", "fp8", "nvfp4"]
"""Number format of a server's cache."""


def _known_precision(name: str) -> str:
    if name not in DTYPE_BYTES:
        raise ValueError("number formats " + ", ".join(DTYPE_BYTES))
    return name


PrecisionName = Annotated[str, AfterValidator(_known_precision)]
"""A key of a table by precision."""


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, ascending; takes O(square root)."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


class Noun(BaseModel):
    """Base of the nouns: immutable, hashable, unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), defer_build=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, but without cached properties, which belong to the old fields."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def __hash__(self) -> int:
        """Hash of the fields only, without cached properties; tables count as their sorted items."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return hash((type(self), *(tuple(sorted(v.items())) if isinstance(v, dict) else v for v in values)))


def _count_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


LengthText = Annotated[str, BeforeValidator(_count_as_text), Field(min_length=1, max_length=4096)]
"""A number of tokens, or the words of a distribution."""
