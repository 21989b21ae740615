"""Two predictions side by side as data: fields that differ, figures, and the breakdown of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from windtunnel.api.json import to_json
from windtunnel.base.dataclasses import dataclass
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.sheet.job import flatten
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


def _different(a: dict[str, Any], b: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    keys = dict.fromkeys([*a, *b])
    return {k: (a.get(k), b.get(k)) for k in keys if a.get(k) != b.get(k) and not k.endswith("source")}
