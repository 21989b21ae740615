"""Link traffic in the terminal: a summary, load by level, the busiest links, calls slowed by contention."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.draw.listing import listing
from windtunnel.network.simulate.traffic import Traffic
from windtunnel.report.words.network import filled_by, network_sentence, shown_hot
from windtunnel.sheet import numbers as say


def traffic(measured: Traffic, rows: int, width: int) -> RenderableType:
    """The section of the report."""
    wide = width >= 110
    levels = listing(("from → to", "left"), ("links", "right"), ("rate each", "right"), ("bytes", "right"), ("load", "right"),
                     ("fullest", "right"), gap=2 if wide else 1)  # fmt: skip
    for v in measured.levels:
        levels.add_row(v.name, f"{v.links:,}", say.rate(v.rate), say.size(v.bytes), say.percent(v.mean_utilisation),
                       say.percent(v.max_utilisation))  # fmt: skip
    lines: list[RenderableType] = [Text(network_sentence(measured)), Text(), levels]
    if measured.hot:
        hot = listing(("hottest of its level", "left"), ("rate", "right"), ("load", "right"), ("filled by", "left"),
                      wraps=("hottest of its level", "filled by"))  # fmt: skip
        for h in shown_hot(measured, max(3, rows // 2), 1):
            calls = Text(say.clean(filled_by(h, 2)))
            hot.add_row(Text(say.clean(h.name)), say.rate(h.rate), say.percent(h.utilisation), calls)
        lines += [Text(), hot]
    if measured.slowest:
        slow = listing(("slowed by others", "left"), ("times", "right"), ("mean time", "right"), ("over alone", "right"),
                       wraps=("slowed by others",))  # fmt: skip
        for t in measured.slowest[: max(3, rows // 2)]:
            slow.add_row(Text(str(t["name"])), f"{_number(t, 'count'):,.0f}", say.seconds(_number(t, "seconds")),
                         f"{_number(t, 'slowdown'):.2f}")  # fmt: skip
        lines += [Text(), slow]
    return Group(*lines)


def _number(row: Mapping[str, object], key: str) -> float:
    value = row.get(key)
    return float(value) if isinstance(value, (int, float)) else 0.0
