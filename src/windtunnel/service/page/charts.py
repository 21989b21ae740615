"""Charts of the page: one function a chart, from data to the options of ECharts. They know no page and no door. Predicted against
measured as points, and the support matrix as markup. Charts of a watched run: ranks by steps, its pace, where a step goes,
incidents on a line.

What all charts share: axes, colours that colour-blind people tell apart, tooltips in words.

Charts are drawn as SVG, so that text and lines take the colours of the theme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import escape

from windtunnel.draw.page.charts import COLOURS
from windtunnel.service.page.published import FAR, NEAR, PublishedRow, SupportCell, values_of
from windtunnel.sheet import numbers as say

INK, SOFT, LINE, CARD = "var(--ink)", "var(--soft)", "var(--line)", "var(--card)"
BLUE, ORANGE, GREEN, PINK, SKY, GOLD, GREY = COLOURS
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", "Noto Sans CJK SC", sans-serif'
"""Named here too: widths of labels are measured with it."""
Options = dict[str, Any]


def plot(x: Options, y: Options, series: Sequence[Options], *, legend: bool = False, left: int = 64) -> Options:
    """Options of a chart with two axes. `legend`: whether series are named below it; `left`: pixels for the labels of y."""
    options: Options = {
        "animation": False,
        "aria": {"enabled": True},
        "color": list(COLOURS),
        "textStyle": {"fontFamily": FONT, "color": SOFT},
        "grid": {"left": left, "right": 24, "top": 28, "bottom": 76 if legend else 52, "containLabel": False},
        "tooltip": tooltip(),
        "xAxis": x,
        "yAxis": y,
        "series": list(series),
    }
    if legend:
        options["legend"] = {"bottom": 0, "type": "scroll", "itemWidth": 14, "itemHeight": 10, "textStyle": {"color": SOFT}}
    return options


def tooltip(trigger: str = "item") -> Options:
    """A tooltip that says the name of what is pointed at."""
    return {
        "trigger": trigger,
        "formatter": "{b}",
        "confine": True,
        "backgroundColor": CARD,
        "borderColor": LINE,
        "textStyle": {"color": INK, "fontSize": 13},
    }


def numbers_axis(name: str, *, log: bool = False, least: float | None = None, vertical: bool = False) -> Options:
    """An axis of numbers with its name and unit."""
    axis = _axis(name, vertical)
    axis |= {"type": "log" if log else "value", "scale": least is None}
    if least is not None:
        axis["min"] = least
    return axis


def names_axis(names: Sequence[str], name: str = "", *, vertical: bool = False, downwards: bool = False) -> Options:
    """An axis of names. `downwards`: the first is on top."""
    axis = _axis(name, vertical)
    axis |= {"type": "category", "data": list(names), "inverse": downwards, "splitLine": {"show": False}}
    return axis


def _axis(name: str, vertical: bool) -> Options:
    return {
        "name": name,
        "nameLocation": "end" if vertical else "middle",
        "nameGap": 12 if vertical else 30,
        "nameTextStyle": {"color": SOFT, "align": "left" if vertical else "center"},
        "axisLabel": {"color": SOFT, "hideOverlap": True},
        "axisLine": {"lineStyle": {"color": LINE}},
        "axisTick": {"show": False},
        "splitLine": {"lineStyle": {"color": LINE}},
    }


MOST_GROUPS = len(COLOURS) - 1
"""Groups with a colour and a shape of their own; the others share grey."""
SHAPES = ("circle", "diamond", "triangle", "rect", "roundRect", "pin", "arrow")
CLASSES = (5.0, 10.0, 20.0)
"""Percent: bounds of the four shades of the matrix."""


def accuracy_points(
    rows: Sequence[PublishedRow], by: str, names: Mapping[str, str], tell: Callable[[PublishedRow], str]
) -> Options:  # fmt: skip
    """Points on log axes with lines of equality and of both bands. `by`: the field whose values are told apart by colour and shape;
    `names`: x, y, equal, near, far, others; `tell`: what is said of a point."""
    shown = values_of(rows, by)[:MOST_GROUPS]
    groups: dict[str, list[PublishedRow]] = {name: [] for name in [*shown, names["others"]]}
    for row in rows:
        if row.measured > 0 and row.predicted > 0:
            value = getattr(row, by)
            groups[value if value in groups else names["others"]].append(row)
    low, high = _bounds([row for members in groups.values() for row in members])
    series = [*_bands(low, high, names)]
    for place, (name, members) in enumerate(groups.items()):
        if members:
            data = [{"name": tell(row), "value": [row.measured, row.predicted], "id": row.id} for row in members]
            look = {"color": COLOURS[place], "opacity": 0.72}
            series.append({"type": "scatter", "name": name, "data": data, "symbol": SHAPES[place], "symbolSize": 8,
                           "itemStyle": look, "cursor": "pointer"})  # fmt: skip
    options = plot(numbers_axis(names["x"], log=True), numbers_axis(names["y"], log=True, vertical=True), series, legend=True)
    for axis in ("xAxis", "yAxis"):
        options[axis] |= {"min": low, "max": high, "scale": True}
        options[axis]["axisLabel"] = {**options[axis]["axisLabel"], "showMinLabel": False, "showMaxLabel": False}
    options["legend"]["data"] = [name for name, members in groups.items() if members]
    return options


def _bounds(rows: Sequence[PublishedRow]) -> tuple[float, float]:
    values = [value for row in rows for value in (row.measured, row.predicted)] or [1.0]
    return float(f"{min(values) / 1.4:.2g}"), float(f"{max(values) * 1.4:.2g}")


def _bands(low: float, high: float, names: Mapping[str, str]) -> list[Options]:
    """Straight lines: on log axes, so are constant relative errors. Cut to the square of the axes."""
    lines = []
    for name, percent, dash in (
        (names["equal"], 0.0, "solid"), (names["near"], NEAR, "dashed"), (names["near"], -NEAR, "dashed"),
        (names["far"], FAR, "dotted"), (names["far"], -FAR, "dotted"),
    ):  # fmt: skip
        factor = 1.0 + percent / 100.0
        begin, end = max(low, low / factor), min(high, high / factor)
        line = {"type": dash, "color": INK if percent == 0 else SOFT, "width": 1.2 if percent == 0 else 1.0, "opacity": 0.8}
        lines.append({
            "type": "line", "name": name, "data": [[begin, begin * factor], [end, end * factor]], "symbol": "none", "silent": True,
            "lineStyle": line, "tooltip": {"show": False}, "z": 1,
        })  # fmt: skip
    return lines


def support_matrix(cells: Sequence[SupportCell], link: Callable[[SupportCell], str], words: Mapping[str, str]) -> str:
    """A table: a row for each GPU and precision, a column for each model family and framework. A cell has the typical error and how
    many rows it is of. `words`: gpu, precision, rows, caption."""
    columns = sorted({(cell.model, cell.framework) for cell in cells})
    lines = sorted({(cell.gpu, cell.precision) for cell in cells})
    known = {((cell.gpu, cell.precision), (cell.model, cell.framework)): cell for cell in cells}
    head = "".join(f'<th scope="col">{escape(model)}<small>{escape(framework)}</small></th>' for model, framework in columns)
    body = ""
    for line in lines:
        body += f'<tr><th scope="row">{escape(line[0])}<small>{escape(line[1])}</small></th>'
        for column in columns:
            cell = known.get((line, column))
            if cell is None:
                body += "<td></td>"
                continue
            found = cell.accuracy
            about = ", ".join((cell.gpu, cell.precision, cell.model, cell.framework))
            about += f": {found.typical:.1f} %, {found.count} {words['rows']}"
            body += (
                f'<td><a class="wt-level{level_of(found.typical)}" href="{escape(link(cell))}" aria-label="{escape(about)}">'
                f"{found.typical:.1f} %<small>{found.count}</small></a></td>"
            )
        body += "</tr>"
    return (
        f'<table class="wt-matrix"><caption>{escape(words["caption"])}</caption><thead><tr><th scope="col">{escape(words["gpu"])}'
        f"<small>{escape(words['precision'])}</small></th>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def level_of(percent: float) -> int:
    """The shade of an error: 0, within 5 %, to 3, above 20 %."""
    return sum(abs(percent) > bound for bound in CLASSES)


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
