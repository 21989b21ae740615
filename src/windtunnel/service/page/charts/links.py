"""Charts of the network: bandwidth of collectives against measured calls, load of links over time, queues, completion of flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.service.page.charts.plot import BLUE, ORANGE, SOFT, Options, names_axis, numbers_axis, plot, tooltip
from windtunnel.sheet import numbers as say
from windtunnel.sheet.colours import LOADS, load_step

MOST_BINS, MOST_ROWS = 120, 24
"""Bins of time and rows that a heat map shows."""
Measured = Sequence[tuple[float, float]]
"""Bytes and bus bandwidth (GB/s) of measured calls."""


def sweep_lines(rows: Sequence[Mapping[str, Any]], measured: Measured, names: Mapping[str, str]) -> Options:
    """Bus bandwidth by size, as predicted (with its ±) and as measured. `names`: x, y, predicted, measured."""
    sizes = sorted({float(row["size"]) for row in rows} | {size for size, _ in measured})
    labels = [say.size(size) for size in sizes]
    place = {size: number for number, size in enumerate(sizes)}

    def tell_row(row: Mapping[str, Any]) -> str:
        how = ", ".join(str(row[key]) for key in ("algorithm", "protocol") if row.get(key))
        return f"{say.size(row['size'])}: {row['busbw_GBs']:.4g} GB/s ± {say.percent(row.get('relative_error') or 0.0)}, {how}"

    line = [{"name": tell_row(row), "value": [place[row["size"]], row["busbw_GBs"]]} for row in rows]
    low = [[place[row["size"]], row["busbw_GBs"] / (1 + (row.get("relative_error") or 0.0))] for row in rows]
    high = [
        [at, row["busbw_GBs"] * (1 + (row.get("relative_error") or 0.0)) - under]
        for (at, under), row in zip(low, rows, strict=True)
    ]
    unseen = {"lineStyle": {"opacity": 0}, "symbol": "none", "silent": True, "stack": "band", "tooltip": {"show": False}}
    series: list[Options] = [
        {"type": "line", "data": low, **unseen},
        {"type": "line", "data": high, "areaStyle": {"color": BLUE, "opacity": 0.15}, **unseen},
        {"type": "line", "name": names["predicted"], "data": line, "symbol": "circle", "symbolSize": 8,
         "itemStyle": {"color": BLUE},
         "lineStyle": {"color": BLUE, "width": 2}},
    ]  # fmt: skip
    if measured:
        points = [{"name": f"{say.size(size)}: {speed:.4g} GB/s", "value": [place[size], speed]} for size, speed in measured]
        series.append({"type": "scatter", "name": names["measured"], "data": points, "symbol": "diamond", "symbolSize": 12,
                       "itemStyle": {"color": ORANGE}})  # fmt: skip
    options = plot(names_axis(labels, names["x"]), numbers_axis(names["y"], vertical=True, least=0), series, legend=True)
    options["legend"]["data"] = [names["predicted"], *([names["measured"]] if measured else [])]
    options["legend"]["selectedMode"] = False
    return options


def load_heat(rows: Mapping[str, Sequence[float]], width: float, axis: str) -> Options:
    """Load (0..1) of levels or links in bins of `width` seconds, in steps of load. `rows`: name -> a value for each bin."""
    names = list(rows)[:MOST_ROWS]
    count = max((len(rows[name]) for name in names), default=0)
    fold = max(1, -(-count // MOST_BINS))
    times = [say.seconds(bin * width) if bin else "0" for bin in range(0, count, fold)]
    data = []
    for y, name in enumerate(names):
        for x in range(len(times)):
            load = max(rows[name][x * fold : (x + 1) * fold], default=0.0)
            data.append({"name": f"{name}, {times[x]}: {say.percent(load)}", "value": [x, y, load_step(load)]})
    vertical = names_axis(names, vertical=True, downwards=True)
    vertical["axisLabel"] |= {"width": 170, "overflow": "truncate"}
    options = plot(names_axis(times, axis), vertical, [{"type": "heatmap", "data": data}], legend=False, left=186)
    options["visualMap"] = {
        "type": "piecewise", "orient": "horizontal", "left": "center", "bottom": 0, "itemWidth": 12, "itemHeight": 12,
        "textStyle": {"color": SOFT}, "selectedMode": False, "itemGap": 8,
        "pieces": [{"value": step, "label": LOADS[step][2], "color": LOADS[step][1]} for step in range(len(LOADS))],
    }  # fmt: skip
    options["grid"] |= {"top": 10, "bottom": 88}
    return options


def queue_lines(series: Mapping[str, Sequence[tuple[float, float]]], names: tuple[str, str]) -> Options:
    """Queues of links over time. `series`: link -> moments in s and bytes; `names`: of the axes, in µs and KB."""
    lines = [
        {"type": "line", "name": link, "symbol": "none", "lineStyle": {"width": 1.6},
         "data": [[at * 1e6, value / 1e3] for at, value in points]}
        for link, points in series.items()
    ]  # fmt: skip
    options = plot(numbers_axis(names[0], least=0), numbers_axis(names[1], vertical=True, least=0), lines, legend=True)
    options["tooltip"] = tooltip("axis") | {"formatter": None, "order": "valueDesc"}
    return options


def link_bars(links: Sequence[Mapping[str, Any]], axis: str) -> Options:
    """Load of the busiest links, in % of the time."""
    names = [f"{one['from']} → {one['to']}" for one in links]
    data = [
        {"name": f"{name}: {say.percent(one['utilisation'])}, {say.size(one['bytes'])}", "value": 100 * one["utilisation"],
         "itemStyle": {"color": LOADS[load_step(one["utilisation"])][1]}}
        for name, one in zip(names, links, strict=True)
    ]  # fmt: skip
    y = names_axis(names, vertical=True, downwards=True)
    y["axisLabel"] |= {"width": 150, "overflow": "truncate"}
    x = numbers_axis(axis, least=0)
    x["max"] = 100
    return plot(x, y, [{"type": "bar", "data": data, "barWidth": 10}], left=166)


def completion_steps(flows: Sequence[Mapping[str, Any]], names: tuple[str, str]) -> Options:
    """Share of the flows (%) that have ended within a time (s)."""
    ends = sorted(float(one["fct_s"]) for one in flows if one.get("fct_s") is not None)
    data = [{"name": f"{100 * (n + 1) / len(ends):.4g} %: {say.seconds(at)}", "value": [at * 1e3, 100 * (n + 1) / len(ends)]}
            for n, at in enumerate(ends)]  # fmt: skip
    line = {
        "type": "line",
        "step": "end",
        "data": data,
        "symbol": "circle",
        "symbolSize": 5,
        "lineStyle": {"color": BLUE},
        "itemStyle": {"color": BLUE},
    }
    return plot(numbers_axis(names[0], least=0), numbers_axis(names[1], vertical=True, least=0), [line])
