"""Charts of a watched run: ranks by steps, its pace, where a step goes, incidents on a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.service.page.charts.plot import (
    BLUE,
    GOLD,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    SKY,
    SOFT,
    Options,
    names_axis,
    numbers_axis,
    plot,
)
from windtunnel.sheet import numbers as say

SHADES = ("#2166ac", "#92c5de", "#eceff3", "#f4a582", "#b2182b")
"""From shorter to longer than equals; told apart by all eyes, and by lightness."""
FULL = 30.0
"""Percent at which a colour is full."""
PARTS = {
    "forward": BLUE, "backward": SKY, "optimizer": GREEN, "inference": PINK, "data": GOLD, "checkpoint": PINK, "outside": GREY,
    "no_core": "#5b6472", "blocked": ORANGE,
}  # fmt: skip
"""Part of a step -> its colour, in the order in which bars are stacked."""
MOST_BARS = 24
"""Ranks of which bars are drawn: the slowest."""


def heat_map(heat: Mapping[str, Any], layer: str, bins: Sequence[int], names: Mapping[str, str]) -> Options:
    """Excess over equals in percent, ranks downwards, steps to the right. `heat` and `bins` as of a look; `names`: x, shorter,
    longer, of."""
    lines, values = heat["lines"], heat["layers"].get(layer, [])
    steps = [str(step) for step in bins]
    data = [
        {
            "name": f"{names['of']} {lines[y]}, {names['x']} {steps[x]}: {value:+.1f} %",
            "value": [x, y, max(-FULL, min(FULL, value))],
        }
        for y, row in enumerate(values)
        for x, value in enumerate(row)
        if value is not None
    ]
    vertical = names_axis(lines, vertical=True, downwards=True)
    vertical["axisLabel"] |= {"width": 92, "overflow": "truncate"}
    options = plot(names_axis(steps, names["x"]), vertical, [{"type": "heatmap", "data": data, "progressive": 0}], left=104)
    options["grid"] |= {"top": 8, "bottom": 92}
    options["visualMap"] = {
        "min": -FULL, "max": FULL, "orient": "horizontal", "left": "center", "bottom": 0, "itemWidth": 12, "itemHeight": 120,
        "text": [names["longer"], names["shorter"]], "textStyle": {"color": SOFT}, "inRange": {"color": list(SHADES)},
        "calculable": False,
    }  # fmt: skip
    return options


def pace_line(bins: Sequence[int], seconds: Sequence[float | None], names: Mapping[str, str]) -> Options:
    """Seconds of a step over the steps. `names`: x, y."""
    data = [
        {"name": f"{names['x']} {step}: {say.seconds(value)}", "value": [step, value]}
        for step, value in zip(bins, seconds, strict=False)
        if value is not None
    ]
    line = {"type": "line", "data": data, "symbolSize": 5, "lineStyle": {"width": 1.8}, "itemStyle": {"color": BLUE}}
    return plot(numbers_axis(names["x"]), numbers_axis(names["y"], vertical=True, least=0), [line])


def step_parts(ranks: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> Options:
    """Where a step of each rank goes: stacked bars in milliseconds. `ranks` as of `fleet show`; `names`: a part each, x, of."""
    shown = list(ranks)[:MOST_BARS]
    labels = [f"{one['rank']} · {one['host']}" for one in shown]
    series = []
    for part, colour in PARTS.items():
        values = [one.get(f"{part}_s") for one in shown]
        if any(values):
            data = [
                {
                    "name": f"{names['of']} {label}, {names[part]}: {say.seconds(value or 0.0)}",
                    "value": round(1e3 * (value or 0.0), 4),
                }
                for label, value in zip(labels, values, strict=True)
            ]
            series.append({"type": "bar", "name": names[part], "stack": "step", "data": data, "barMaxWidth": 16,
                           "itemStyle": {"color": colour}})  # fmt: skip
    vertical = names_axis(labels, vertical=True, downwards=True)
    vertical["axisLabel"] |= {"width": 92, "overflow": "truncate"}
    options = plot(numbers_axis(names["x"], least=0), vertical, series, legend=True, left=104)
    options["grid"] |= {"top": 8, "bottom": 84}
    return options


def incident_line(wall: float, incidents: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> Options:
    """Incidents on the time of the run. `wall`: its seconds; `names`: x, y, down."""
    data = []
    for one in incidents:
        if one.get("from_s") is not None:
            where = f" · {one['node']}" if one.get("node") else ""
            told = f"{one['number']}: {one['what']}{where}, {names['down']} {say.seconds(one['down_s'])}"
            data.append({"name": told, "value": [one["from_s"] / 3600.0, one["down_s"]]})
    points = {"type": "scatter", "data": data, "symbol": "triangle", "symbolSize": 13, "itemStyle": {"color": ORANGE}}
    options = plot(numbers_axis(names["x"], least=0), numbers_axis(names["y"], vertical=True, least=0), [points])
    options["xAxis"]["max"] = wall / 3600.0
    return options
