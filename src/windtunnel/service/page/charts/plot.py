"""What all charts share: axes, colours that colour-blind people tell apart, tooltips in words.

Charts are drawn as SVG, so that text and lines take the colours of the theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windtunnel.draw.page.charts import COLOURS

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
