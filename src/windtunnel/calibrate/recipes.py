"""The published rows of each fit, from `catalog/calibration/fits.toml`."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path

from windtunnel.base.quantities import Strict
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.spec.loading.files import ROOT

FILE = ROOT / "calibration" / "fits.toml"
RECORDS = ROOT / "calibration" / "records"
SHARDED = ("zero3", "fsdp")


class TrainingRecipe(Strict):
    """Rows of training runs that a fit may use, at most `rows` of a family, spread evenly over its table."""

    families: tuple[str, ...]
    frameworks: tuple[str, ...] = ("megatron", "megatron-deepspeed")
    precisions: tuple[str, ...] = ("bf16", "fp16")
    rows: int = 24
    framework: str = ""  # entry of catalog/frameworks whose host costs are fitted

    def takes(self, row: TrainingRow) -> bool:
        """Whether a row may take part. Rows of fully sharded Megatron may not: such runs used other code."""
        sharded = (row.framework or "").startswith("megatron") and row.sharding in SHARDED
        return (
            row.family in self.families
            and row.framework in self.frameworks
            and row.precision in self.precisions
            and bool(row.iter_time_s)
            and not sharded
        )


class CollectiveStage(Strict):
    """Families, whether their groups span scale-up domains, and the constants that are free."""

    families: tuple[str, ...]
    between_domains: bool
    constants: tuple[str, ...]


class ByHand(Strict):
    """Constants that were set by hand after seeing rows, and the families of those rows."""

    constants: str
    families: tuple[str, ...]


class Fits(Strict):
    """The whole file."""

    source: str
    host: TrainingRecipe
    training: dict[str, TrainingRecipe]
    by_hand: tuple[ByHand, ...]
    collectives: tuple[CollectiveStage, ...]


@lru_cache(maxsize=1)
def fits(path: Path = FILE) -> Fits:
    """The catalogue's recipes."""
    return Fits.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
