"""Charts of serving and of steps of reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.draw.page.charts import COLOURS
from windtunnel.service.page.charts.plot import (
    BLUE,
    GOLD,
    GREEN,
    GREY,
    INK,
    LINE,
    ORANGE,
    PINK,
    SKY,
    Options,
    names_axis,
    numbers_axis,
    plot,
)  # fmt: skip
from windtunnel.sheet import numbers as say

PERCENTILES = ("p50", "p90", "p99")
_PARTS = {
    "weights": BLUE, "optimizer": "#5b4b8a", "gradients": GREEN, "activations": ORANGE, "logits": PINK, "buffers": GOLD,
    "contexts": GREY, "critic": "#8a6d3b", "training states": "#5b4b8a", "engine: weights": SKY, "engine: activations": ORANGE,
    "engine: cache": GREEN, "bucket": GOLD,
}  # fmt: skip
_NO_PART = ("capacity", "total", "fits", "on", "phase")


def choice_words(choice: Mapping[str, Any]) -> str:
    """A choice of a search of servers, in words."""
    plan = choice["plan"]
    parts = [f"{name} {plan[name]}" for name in ("tp", "pp", "dp", "ep") if plan.get(name, 1) > 1] or ["tp 1"]
    prefill = choice.get("prefill")
    return ", ".join([
        choice["engine"], choice["formats"]["weights"], *parts, f"{choice['users']:,} users", *(["prefill"] if prefill else []),
    ])  # fmt: skip


def serve_scatter(front: Sequence[Mapping[str, Any]], best: Mapping[str, Any] | None, names: Mapping[str, str]) -> Options:
    """Tokens/s of a GPU against those of a user. `names`: x, y, front, best."""

    def point(choice: Mapping[str, Any], number: int) -> Options:
        told = f"{choice_words(choice)}: {choice['interactivity']:,.4g} · {choice['throughput']:,.4g}"
        return {"name": told, "value": [choice["interactivity"], choice["throughput"]], "choice": number}

    ordered = sorted(enumerate(front), key=lambda one: one[1]["interactivity"])
    series: list[Options] = [{
        "type": "line", "name": names["front"], "data": [point(one, number) for number, one in ordered], "symbol": "circle",
        "symbolSize": 11,
        "itemStyle": {"color": BLUE}, "lineStyle": {"color": BLUE, "width": 1.5},
    }]  # fmt: skip
    if best is not None:
        series.append({"type": "scatter", "name": names["best"], "data": [point(best, -1)], "symbol": "diamond",
             "symbolSize": 20, "z": 9,
                       "itemStyle": {"color": ORANGE}})  # fmt: skip
    x, y = numbers_axis(names["x"], least=0), numbers_axis(names["y"], vertical=True, least=0)
    return plot(x, y, series, legend=True)


def latency_bars(values: Mapping[str, float], limit: float | None, axis: str) -> Options:
    """Percentiles and mean of a time (s); `limit`: what it may be."""
    shown = [name for name in ("mean", *PERCENTILES) if name in values]
    scale, unit = (1e3, "ms") if max(values.values(), default=0.0) < 1 else (1.0, "s")
    data = [{"name": f"{name}: {say.seconds(values[name])}", "value": scale * values[name],
             "label": {"show": True, "position": "top", "formatter": say.seconds(values[name]), "color": INK},
             "itemStyle": {"color": GREY if name == "mean" else BLUE, "borderRadius": 3}} for name in shown]  # fmt: skip
    bars: Options = {"type": "bar", "data": data, "barMaxWidth": 34}
    if limit:
        bars["markLine"] = {"symbol": "none", "silent": True, "label": {"show": False}, "data": [{"yAxis": scale * limit}],
                            "lineStyle": {"color": ORANGE, "type": "dashed"}}  # fmt: skip
    return plot(names_axis(shown), numbers_axis(f"{axis} ({unit})", vertical=True, least=0), [bars])


def phase_spans(spans: Sequence[Mapping[str, Any]], axis: str) -> Options:
    """Phases of a step on a line of time (s), a row for each."""
    names = [str(one["name"]) for one in spans]
    gaps = [{"value": one["start"], "itemStyle": {"color": "transparent"}} for one in spans]
    bars = [
        {"name": f"{one['name']}: {say.seconds(one['end'] - one['start'])}", "value": one["end"] - one["start"],
         "label": {"show": True, "position": "right" if one["end"] < 0.8 * _last(spans) else "insideRight",
                   "formatter": say.seconds(one["end"] - one["start"]),
                   "color": INK if one["end"] < 0.8 * _last(spans) else "#fff"},
         "itemStyle": {"color": COLOURS[number % len(COLOURS)], "borderRadius": 3}}
        for number, one in enumerate(spans)
    ]  # fmt: skip
    y = names_axis(names, vertical=True, downwards=True)
    y["axisLabel"] |= {"width": 178, "overflow": "truncate"}
    still = {"silent": True, "tooltip": {"show": False}}
    series = [
        {"type": "bar", "stack": "time", "data": gaps, **still},
        {"type": "bar", "stack": "time", "data": bars, "barWidth": 18},
    ]
    return plot(numbers_axis(axis, least=0), y, series, left=194)


def _last(spans: Sequence[Mapping[str, Any]]) -> float:
    return max((float(one["end"]) for one in spans), default=1.0)


def phase_memory(phases: Sequence[Mapping[str, Any]], axis: str) -> Options:
    """What each phase holds on its fullest GPU, by part, in GB, with the GPU's capacity."""
    names = [str(one["phase"]) for one in phases]
    parts = list(dict.fromkeys(part for one in phases for part, value in one.items() if part not in _NO_PART and value))
    series: list[Options] = [
        {"type": "bar", "stack": "memory", "name": part, "barWidth": 18, "itemStyle": {"color": _PARTS.get(part, GREY)},
         "data": [{"name": f"{one['phase']}, {part}: {say.size(one.get(part) or 0.0)}", "value": (one.get(part) or 0.0) / 1e9}
                  for one in phases]}
        for part in parts
    ]  # fmt: skip
    if series and phases:
        series[0]["markLine"] = {"symbol": "none", "silent": True, "label": {"show": False},
                                 "data": [{"xAxis": phases[0]["capacity"] / 1e9}],
                                 "lineStyle": {"color": INK, "type": "dashed"}}  # fmt: skip
    y = names_axis(names, vertical=True, downwards=True)
    y["axisLabel"] |= {"width": 178, "overflow": "truncate"}
    y["axisLine"] = {"lineStyle": {"color": LINE}}
    x = numbers_axis(axis, least=0)
    x["max"] = max((1.05 * one["capacity"] / 1e9 for one in phases), default=None)
    x["axisLabel"] |= {"showMaxLabel": False}
    return plot(x, y, series, legend=True, left=194)
