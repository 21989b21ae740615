"""Speedup of compiled code and CUDA graphs: each row against the eager row of the same shape."""

from __future__ import annotations

from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.records import Dataset

SAME = (
    "level",
    "op",
    "name",
    "phase",
    "dtype",
    "library",
    "model",
    "shape",
    "batch",
    "m",
    "n",
    "k",
    "heads_per_kv",
    "causal",
    "window",
)
"""Columns that are equal in both rows of a pair."""


@dataclass(frozen=True)
class Gain:
    """`what`: the shared columns. Times in s; `gain` is eager time over this mode's, above 1 if the mode is faster."""

    what: dict[str, Any]
    mode: str
    eager: float
    seconds: float

    @property
    def gain(self) -> float:
        return self.eager / self.seconds

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; seconds."""
        return {**self.what, "mode": self.mode, "eager_s": self.eager, "seconds": self.seconds, "gain": self.gain}


def gains(data: Dataset) -> list[Gain]:
    """Every usable pair, in the order of the file."""
    rows = [row for row in data.rows() if row["status"] == "ok"]
    eager = {tuple(row[name] for name in SAME): row["seconds"] for row in rows if row["mode"] == "eager"}
    gains_found = []
    for row in rows:
        before = eager.get(tuple(row[name] for name in SAME))
        if row["mode"] != "eager" and before is not None:
            gains_found.append(
                Gain({name: row[name] for name in SAME if row[name] is not None}, row["mode"], before, row["seconds"])
            )
    return gains_found
