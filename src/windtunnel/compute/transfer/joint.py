"""Curves shared by all measured GPUs, used for a GPU of an unmeasured architecture.

`catalog/kernels/transfer/joint.json` contains them fitted on all GPUs with data, and also without each of them, with the errors
of predicting the one left out. `windtunnel fit transfer --write` writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from windtunnel.base.dataclasses import dataclass, fields
from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, read_text
from windtunnel.compute.curves import STRICT, AttentionCurve, GemmCurve, Number
from windtunnel.compute.kernel_file import FOLDER, first_mistake

FILE = FOLDER / "transfer" / "joint.json"
LARGEST_FILE = 16 * MIB
WANTED = "a file that `windtunnel fit transfer --write` wrote"


@dataclass(frozen=True)
class JointCurves:
    """Shared constants. `gemm` is at full clock; `attention` (by direction) is without exponentials; `exposed`: their exposed
    share."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    gemm: GemmCurve
    attention: dict[str, AttentionCurve]
    exposed: Number
    energy: Annotated[float, Field(gt=0.0, le=1.0, strict=True)]  # J/FLOP at 7 nm, see `law`
    fitted_on: tuple[str, ...]


@dataclass(frozen=True)
class Stored:
    """The file: constants of all GPUs, without each one, and relative errors (1 sigma) by class and nearness of the relative."""

    every: JointCurves
    without: Mapping[str, JointCurves]
    error: Mapping[str, float]  # gemm, attention, memory: each `same` and `other`; foreign


class _JointFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    every: JointCurves = Field(alias="all")
    without: dict[str, JointCurves]
    error: dict[str, Number]


@lru_cache(maxsize=1)
def stored_curves() -> Stored:
    """The catalogue's file. Raises FileError as `read` does."""
    return read(FILE)


def read(path: Path) -> Stored:
    """A file that `fit transfer --write` wrote. Raises FileError."""
    try:
        file = _JointFile.model_validate_json(read_text(path, LARGEST_FILE, WANTED))
    except ValidationError as error:
        raise FileError(str(path), first_mistake(error), WANTED) from None
    return Stored(file.every, file.without, file.error)


def text(content: Stored) -> str:
    """The file's text, numbers to four digits."""
    data = {
        "all": _table(content.every),
        "without": {name: _table(each) for name, each in content.without.items()},
        "error": {name: _round_figure(value) for name, value in content.error.items()},
    }
    return json.dumps(data, indent=1) + "\n"


def _table(joint: JointCurves) -> dict[str, Any]:
    attention = {way: _numbers(curve) for way, curve in joint.attention.items()}
    return {
        "fitted_on": list(joint.fitted_on),
        "energy": _round_figure(joint.energy),
        "exposed": _round_figure(joint.exposed),
        "gemm": _numbers(joint.gemm),
        "attention": attention,
    }


def _numbers(curve: GemmCurve | AttentionCurve) -> dict[str, Any]:
    """Constants that differ from a curve's defaults."""
    given = {f.name: getattr(curve, f.name) for f in fields(curve) if getattr(curve, f.name) != f.default}
    return {name: _round_figure(value) if isinstance(value, float) else value for name, value in given.items()}


def _round_figure(value: float) -> float:
    return float(f"{value:.4g}")
