"""Predicted against measured as points, and the support matrix as markup."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from markupsafe import escape

from windtunnel.draw.page.charts import COLOURS
from windtunnel.service.page.charts.plot import INK, SOFT, Options, numbers_axis, plot
from windtunnel.service.page.published import FAR, NEAR, PublishedRow, SupportCell, values_of

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
