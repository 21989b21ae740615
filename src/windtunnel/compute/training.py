"""Training factors: time in a training run over time in a loop, by architecture, fitted on published runs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.files import CATALOG

FILE = CATALOG / "calibration" / "training.toml"


@dataclass(frozen=True)
class TrainingFactor:
    """Time in training over time in a loop: matrix products, fused attention, kernels that move bytes.

    `throttle` is the share of a loop's slowdown of long matrix products (the power limit, see `gemm.py`) that remains when other
    kernels and waits lie between them.
    """

    throttle: float = 1.0
    matmul: float = 1.0
    attention: float = 1.0
    memory: float = 1.0
    fitted_on: tuple[str, ...] = ()


Factors = Mapping[str, TrainingFactor]
"""Architecture -> its factors."""


@lru_cache(maxsize=1)
def factors() -> dict[str, TrainingFactor]:
    """Architecture -> factors; architectures that no published run covers are not in it."""
    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {name: TrainingFactor(**{**row, "fitted_on": tuple(row["fitted_on"])}) for name, row in data.items()}


def training_factor(architecture: str, table: Factors | None = None) -> TrainingFactor:
    """Factors of an architecture, from `table` or the stored ones; all 1 if none were fitted."""
    return (factors() if table is None else table).get(architecture, TrainingFactor())
