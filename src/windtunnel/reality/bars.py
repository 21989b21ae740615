"""The accuracy bars of the project: which rows, how far from them the model may be.

A bar picks rows by what they are (family, framework, size, precision); it says nothing to the model. `measure` scores them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.reality.report import Family, Score, summary
from windtunnel.reality.rows import TrainingRow

NO_BAR = "no bar"
Pick = Callable[[TrainingRow], bool]
ScoreRow = Callable[[TrainingRow], list[Score]]


@dataclass(frozen=True)
class Bar:
    """Rows by `pick`, their `quantity`, the most that mean and median |error| may be, in percent, and the share to be predicted."""

    name: str
    quantity: str
    pick: Pick
    mean: float | None = None
    median: float | None = None
    share: float = 0.0


@dataclass(frozen=True)
class Line:
    """A bar and what was measured under it."""

    bar: Bar
    found: Family

    @property
    def holds(self) -> bool:
        """Whether the bar is met; a bar without scored rows is not."""
        bar, found = self.bar, self.found
        if found.mape_pct is None or found.median_abs_pct is None or found.n < bar.share * (found.n + found.skipped):
            return False
        return (bar.mean is None or found.mape_pct <= bar.mean) and (bar.median is None or found.median_abs_pct <= bar.median)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.bar.name,
            "wanted": self.wanted,
            "holds": self.holds if self.wanted != NO_BAR else None,
            **{key: value for key, value in self.found.as_dict().items() if key not in ("family", "fitted")},
        }

    @property
    def wanted(self) -> str:
        """The bar in words."""
        limits = (("mean", self.bar.mean), ("median", self.bar.median))
        parts = [f"{name} ≤ {limit:g} %" for name, limit in limits if limit is not None]
        if self.bar.share:
            parts.append(f"≥ {100 * self.bar.share:g} % predicted")
        return ", ".join(parts) or NO_BAR


def _ids(first: str, last: str) -> Pick:
    return lambda row: first <= row.id <= last


def _family(name: str, billions: float | None = None) -> Pick:
    return lambda row: row.family == name and billions in (None, row.params_b)


def _megascale(row: TrainingRow) -> bool:
    return row.family == "A100-ByteDance" and row.framework == "megatron" and bool(row.iter_time_s)


def _narayanan(row: TrainingRow) -> bool:
    return row.family == "A100-Megatron-Selene" and "T0001" <= row.id <= "T0020"


def _eos(row: TrainingRow) -> bool:
    return row.family == "H100-Megatron-Eos"


def _dense_half(row: TrainingRow) -> bool:
    dense = row.arch in ("gpt", "mpt", "llama", "nemotron")
    return row.id.startswith("T") and row.complete == "y" and dense and row.precision in ("bf16", "fp16")


def _complete(row: TrainingRow) -> bool:
    return row.id.startswith("T") and row.complete == "y" and bool(row.iter_time_s)


def _mixture(row: TrainingRow) -> bool:
    return bool(row.experts) and bool(row.iter_time_s)


def _mixture_or_narrow(row: TrainingRow) -> bool:
    return _complete(row) and (bool(row.experts) or row.precision in ("fp8", "mxfp8", "nvfp4")) and row.arch != "hybrid"


STEP, MEMORY = "step_time_s", "memory_gib"
BARS: tuple[Bar, ...] = (
    Bar("vTrain, 109 multi-node runs", STEP, _family("A100-vTrain"), mean=11, median=7),
    Bar("vTrain, 175B", STEP, _family("A100-vTrain", 175), mean=4),
    Bar("vTrain, 39.1B", STEP, _family("A100-vTrain", 39.1)),
    Bar("vTrain, 18.4B", STEP, _family("A100-vTrain", 18.4)),
    Bar("vTrain, 3.6B", STEP, _family("A100-vTrain", 3.6), mean=15),
    Bar("Korthikanti et al. 2022, T0054–T0061", STEP, _ids("T0054", "T0061"), mean=3.5),
    Bar("MegaScale's Megatron-LM rows", STEP, _megascale),
    Bar("Narayanan et al. 2021 and README, T0001–T0020", STEP, _narayanan),
    Bar("Megatron-Core on Eos", STEP, _eos),
    Bar("the last three pooled", STEP, lambda row: _megascale(row) or _narayanan(row) or _eos(row), mean=7),
    Bar("vTrain, single node", STEP, _family("A100-vTrain-node"), mean=15),
    Bar("dense, bf16 or fp16, complete", STEP, _dense_half, median=10, share=0.9),
    Bar("complete rows of all families", STEP, _complete, median=8, share=0.97),
    Bar("experts, FP8, MXFP8 or NVFP4, complete", STEP, _mixture_or_narrow, median=10, share=0.97),
    Bar("mixtures of experts alone, H100 and GB200", STEP, _mixture),
    Bar("MegaScale's Table 2, 16 rows", STEP, lambda row: row.family == "A100-ByteDance" and bool(row.iter_time_s), mean=5),
    Bar("MegaScale's Table 3, 9 steps", "mfu_pct", lambda row: row.family == "A100-ByteDance" and not row.iter_time_s),
    Bar("Llama 3 405B, Table 4", "mfu_pct", _family("H100-Meta"), mean=5),
    Bar("DeepSeek-V3's GPU hours", STEP, _family("H800-DeepSeek"), mean=10),
    Bar("memory, all", MEMORY, lambda row: row.mem_gib is not None, median=4),
    Bar("memory, BLOOM's planning runs", MEMORY, lambda row: row.mem_kind == "device", median=4),
    Bar("memory, torchtitan", MEMORY, lambda row: row.mem_kind == "reserved", median=4),
)


def measure(rows: Sequence[TrainingRow], score: ScoreRow, bars: Iterable[Bar] = BARS) -> list[Line]:
    """Every bar with rows among `rows`; a row under several bars is scored once."""
    known: dict[str, list[Score]] = {}
    lines = []
    for bar in bars:
        picked = [row for row in rows if bar.pick(row)]
        for row in picked:
            if row.id not in known:
                known[row.id] = score(row)
        if picked:
            lines.append(_line(bar, [each for row in picked for each in known[row.id]]))
    return lines


def of_scores(rows: Sequence[TrainingRow], scores: Iterable[Score]) -> list[Line]:
    """The same from scores that are already there."""
    known: dict[str, list[Score]] = {}
    for each in scores:
        known.setdefault(each.id, []).append(each)
    return measure([row for row in rows if row.id in known], lambda row: known[row.id])


def _line(bar: Bar, scores: list[Score]) -> Line:
    return Line(bar, summary(bar.name, bar.quantity, [each for each in scores if each.quantity == bar.quantity]))
