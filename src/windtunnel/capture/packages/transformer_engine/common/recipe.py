"""Recipes of quantisation: names and fields alone."""

from enum import Enum
from typing import Any


class Format(Enum):
    E4M3 = "e4m3"
    E5M2 = "e5m2"
    HYBRID = "hybrid"


class AnyRecipe:
    """Any recipe: what it is made with."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def mxfp8(self) -> bool:
        return isinstance(self, MXFP8BlockScaling)

    def float8_current_scaling(self) -> bool:
        return isinstance(self, Float8CurrentScaling)

    def float8_block_scaling(self) -> bool:
        return isinstance(self, Float8BlockScaling)


class DelayedScaling(AnyRecipe): ...


class Float8CurrentScaling(AnyRecipe): ...


class Float8BlockScaling(AnyRecipe): ...


class MXFP8BlockScaling(AnyRecipe): ...


class NVFP4BlockScaling(AnyRecipe): ...
