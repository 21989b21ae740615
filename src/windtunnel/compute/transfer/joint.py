"""Curves shared by all measured GPUs: what a GPU of an architecture that nobody measured takes.

`catalog/kernels/transfer/joint.json` holds them fitted on all GPUs with data, and once more without each of them, with the errors
of predicting the one left out. `windtunnel profile transfer --write` makes the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.compute.kernels import FOLDER, AttentionCurve, GemmCurve

FILE = FOLDER / "transfer" / "joint.json"


@dataclass(frozen=True)
class Joint:
    """Shared constants. `gemm` is at full clock; `attention` (by direction) without the exponentials, of which `exposed` shows."""

    gemm: GemmCurve
    attention: Mapping[str, AttentionCurve]
    exposed: float
    energy: float  # J/FLOP at 7 nm, see `law`
    fitted_on: tuple[str, ...]


@dataclass(frozen=True)
class Stored:
    """The file: constants of all GPUs, without each one, and relative errors (1 sigma) by class and nearness of the relative."""

    every: Joint
    without: Mapping[str, Joint]
    error: Mapping[str, float]  # gemm, attention, memory: each `same` and `other`; foreign


@lru_cache(maxsize=1)
def stored() -> Stored:
    """The catalogue's file; FileError if it is broken."""
    return read(FILE)


def read(path: Path) -> Stored:
    """A file that `profile transfer --write` wrote. Raises FileError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Stored(
            _joint(data["all"]),
            {name: _joint(each) for name, each in data["without"].items()},
            {name: float(value) for name, value in data["error"].items()},
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FileError(str(path), str(error), "a file that `windtunnel profile transfer --write` wrote") from error


def text(found: Stored) -> str:
    """The file's text, numbers to four digits."""
    data = {
        "all": _table(found.every),
        "without": {name: _table(each) for name, each in found.without.items()},
        "error": {name: _short(value) for name, value in found.error.items()},
    }
    return json.dumps(data, indent=1) + "\n"


def _joint(data: Mapping[str, Any]) -> Joint:
    gemm = dict(data["gemm"])
    gemm["tiles"] = tuple((int(r), int(c)) for r, c in gemm["tiles"])
    return Joint(
        GemmCurve(**gemm),
        {way: AttentionCurve(**data["attention"][way]) for way in ("forward", "backward")},
        float(data["exposed"]),
        float(data["energy"]),
        tuple(data["fitted_on"]),
    )


def _table(joint: Joint) -> dict[str, Any]:
    attention = {way: _numbers(curve) for way, curve in joint.attention.items()}
    return {
        "fitted_on": list(joint.fitted_on),
        "energy": _short(joint.energy),
        "exposed": _short(joint.exposed),
        "gemm": _numbers(joint.gemm),
        "attention": attention,
    }


def _numbers(curve: GemmCurve | AttentionCurve) -> dict[str, Any]:
    """Constants that are not as a curve has them by default."""
    given = {f.name: getattr(curve, f.name) for f in fields(curve) if getattr(curve, f.name) != f.default}
    return {name: _short(value) if isinstance(value, float) else value for name, value in given.items()}


def _short(value: float) -> float:
    return float(f"{value:.4g}")
