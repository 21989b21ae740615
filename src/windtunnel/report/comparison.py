"""Two predictions side by side as data: fields that differ, figures, and the breakdown of time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from windtunnel.predict.prediction import Prediction
from windtunnel.report.json import to_json
from windtunnel.report.words.parts import label_of
from windtunnel.sheet import numbers as say


@dataclass(frozen=True)
class Comparison:
    """`fields`: path -> values in A and B where the jobs differ. `figures`: name -> (A, B) in SI. `parts`: key -> seconds."""

    a: Prediction
    b: Prediction
    fields: dict[str, tuple[Any, Any]]
    figures: dict[str, tuple[float, float]]
    parts: dict[str, tuple[float, float]]

    def as_dict(self) -> dict[str, Any]:
        """Plain data: `a`, `b` (as `predict --json`), `fields`, `figures` and `breakdown`, each entry {a, b, …}."""
        return {
            "a": to_json(self.a),
            "b": to_json(self.b),
            "fields": {k: {"a": x, "b": y} for k, (x, y) in self.fields.items()},
            "figures": {k: {"a": x, "b": y, "ratio": y / x if x else None} for k, (x, y) in self.figures.items()},
            "breakdown": {k: {"a": x, "b": y, "difference_s": y - x} for k, (x, y) in self.parts.items()},
        }


class Figure(NamedTuple):
    """How a figure is called, read and written, and whether more of it is better."""

    label: str
    read: Callable[[Prediction], float | None]
    write: Callable[[float], str]
    more: bool


FIGURES = {
    "step_time_s": Figure("step time", lambda p: p.step_time_s, say.seconds, False),
    "tokens_per_s": Figure("tokens/s", lambda p: p.tokens_per_s, say.count, True),
    "tokens_per_s_per_gpu": Figure("tokens/s/GPU", lambda p: p.tokens_per_s_per_gpu, say.count, True),
    "model_tflops_per_gpu": Figure("model TFLOP/s/GPU", lambda p: p.model_tflops_per_gpu, lambda v: f"{v:.1f}", True),
    "mfu": Figure("MFU", lambda p: p.mfu, say.percent, True),
    "hfu": Figure("HFU", lambda p: p.hfu, say.percent, True),
    "memory_bytes": Figure("memory", lambda p: max((s.total for s in p.memory), default=None), say.size, False),
    "days": Figure("days of the run", lambda p: p.days, say.duration, False),
    "cost": Figure("cost of the run", lambda p: p.cost, say.dollars, False),
    "energy_j": Figure("energy of the run", lambda p: p.energy_j, say.energy, False),
}


def compare(a: Prediction, b: Prediction) -> Comparison:
    """The comparison of two predictions."""
    fields = _different(flatten(to_json(a)["job"]), flatten(to_json(b)["job"]))
    figures = {}
    for name, figure in FIGURES.items():
        first, second = figure.read(a), figure.read(b)
        if first is not None and second is not None:
            figures[name] = (float(first), float(second))
    keys = dict.fromkeys([*a.breakdown, *b.breakdown])
    parts = {k: (a.breakdown.get(k, 0.0), b.breakdown.get(k, 0.0)) for k in keys}
    return Comparison(a, b, fields, figures, {k: v for k, v in parts.items() if v != (0.0, 0.0)})


def flatten(table: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(table, dict):
        return {path: table}
    return {k: v for key, value in table.items() for k, v in flatten(value, f"{path}.{key}" if path else str(key)).items()}


def _different(a: dict[str, Any], b: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    keys = dict.fromkeys([*a, *b])
    return {k: (a.get(k), b.get(k)) for k in keys if a.get(k) != b.get(k) and not k.endswith("source")}


def told_apart(comparison: Comparison, side: int) -> str:
    """The first fields that differ, if both jobs have the same name."""
    if comparison.a.job.name != comparison.b.job.name or not comparison.fields:
        return ""
    first = [f"{path} {say_field(values[side])}" for path, values in list(comparison.fields.items())[:2]]
    return f"  with {', '.join(first)}" + (", …" if len(comparison.fields) > 2 else "")


def verdict(comparison: Comparison) -> str:
    """One sentence: which is faster per token, by how much, and the largest cause of the difference."""
    a, b = comparison.a, comparison.b
    ratio = b.tokens_per_s / a.tokens_per_s if a.tokens_per_s else 1.0
    if abs(ratio - 1.0) < 5e-4:
        return "Both make the same number of tokens a second, within 0.05 %."
    faster, factor = ("B", ratio) if ratio > 1.0 else ("A", 1.0 / ratio)
    text = f"{faster} makes {say.percent(factor - 1.0)} more tokens a second"
    moved = sorted(comparison.parts.items(), key=lambda kv: -abs(kv[1][1] - kv[1][0]))
    if moved and a.job.plan.global_batch * a.job.plan.seq == b.job.plan.global_batch * b.job.plan.seq:
        key, (x, y) = moved[0]
        text += f"; the largest difference is {label_of(key)}: {say.seconds(x)} in A, {say.seconds(y)} in B"
    return text + "."


_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)((?:FLOP|B|b)/s.*)")
"""A rate as job files write it, exact to the last digit."""


def say_field(value: Any) -> str:
    if isinstance(value, str) and (match := _QUANTITY.fullmatch(value)):
        rate = float(match[1])
        scale, prefix = next(((s, p) for s, p in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")) if rate >= s), (1.0, ""))
        return f"{rate / scale:.4g} {prefix}{match[2]}"
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
