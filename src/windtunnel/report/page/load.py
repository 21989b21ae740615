"""The network part of a page: the fabric at any moment, load and queues of links over time, and what fills the hottest links."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.frame import Cell
from windtunnel.network.simulate.traffic import LoadOverTime, Traffic
from windtunnel.report.page.fabric import COLOURS, LOAD_WORDS, fabric, step_of
from windtunnel.report.words.network import filled_by, network_sentence, shown_hot
from windtunnel.sheet import numbers as say

_HEAD = Markup('<h2 style="margin-top:20px">{}</h2>')
_WIDE, _LEFT, _RIGHT, _TALL, _LINE = 1160.0, 270.0, 64.0, 20.0, 17.0
_QUEUES = ((16 << 10, "#7dd3fc"), (64 << 10, "#3b82f6"), (256 << 10, "#14b8a6"), (1 << 20, "#eab308"), (4 << 20, "#f97316"),
           (1 << 62, "#dc2626"))  # fmt: skip
"""Bytes below which a queue has a colour."""
MOST_LINKS, OF_A_LEVEL = 14, 2
"""Hot links that are drawn over time: of all levels, and of one."""

Row = tuple[str, Sequence[float], str]
"""Label, a value for each bin (none: a heading), and what stands behind the row."""


def network_part(traffic: Traffic) -> Markup:
    """The drawing with its slider, load and queues over time, load by level, hot links, calls slowed by others."""
    parts = [Markup(fabric(traffic)), _slider(traffic), Markup('<p class="soft">{}</p>').format(network_sentence(traffic))]
    parts.append(_over_time(traffic))
    carried = [("rate each", True), ("bytes", True)]
    levels: list[list[Cell]] = [
        [(v.name, None), (f"{v.links:,}", float(v.links)), (say.rate(v.rate), v.rate), (say.size(v.bytes), v.bytes),
         (say.percent(v.mean_utilisation), v.mean_utilisation), (say.percent(v.max_utilisation), v.max_utilisation)]
        for v in traffic.levels
    ]  # fmt: skip
    parts.append(_HEAD.format("Load by level"))
    heads = [("from → to", False), ("links", True), *carried, ("load", True), ("fullest", True)]
    parts.append(_table("levels", heads, levels))
    if traffic.hot:
        hot: list[list[Cell]] = [
            [(h.name, None), (say.rate(h.rate), h.rate), (say.size(h.bytes), h.bytes), (say.percent(h.utilisation), h.utilisation),
             (filled_by(h, 4), None)]
            for h in shown_hot(traffic, MOST_LINKS, OF_A_LEVEL)
        ]  # fmt: skip
        parts.append(_HEAD.format("Hot links and what fills them"))
        parts.append(_table("hot", [("link", False), *carried, ("load", True), ("filled by", False)], hot))
    if traffic.slowest:
        slow: list[list[Cell]] = [
            [(str(t["name"]), None), (f"{_number(t['count']):,.0f}", _number(t["count"])),
             (say.seconds(_number(t["seconds"])), _number(t["seconds"])), (f"{_number(t['slowdown']):.2f}", _number(t["slowdown"]))]
            for t in traffic.slowest
        ]  # fmt: skip
        heads = [("transfer", False), ("times", True), ("mean time", True), ("over its time alone", True)]
        parts.append(_HEAD.format("Slowed most by others") + _table("slowed", heads, slow))
    return Markup().join(parts)


def load_data(traffic: Traffic | None) -> dict[str, Any]:
    """What the script of the slider needs: colours of boxes and edges in each bin; empty where the traffic has no bins."""
    if traffic is None or traffic.over_time is None or not traffic.boxes:
        return {}
    over, edges = traffic.over_time, range(len(traffic.over_time.mean[0]) + 1)
    return {
        "load": {
            "times": [say.seconds(i * over.width) if i else "0" for i in edges],
            "boxes": ["".join(str(step_of(v)) for v in row) for row in over.boxes],
            "edges": ["".join(str(step_of(v)) for v in row) for row in over.edges],
            "colours": list(COLOURS),
            "words": list(LOAD_WORDS),
        }
    }


def _slider(traffic: Traffic) -> Markup:
    if not load_data(traffic):
        return Markup()
    bins = len(traffic.over_time.mean[0]) if traffic.over_time else 0
    return Markup(
        '<div class="row" style="margin-top:12px"><label for="moment">Moment</label>'
        '<input id="moment" type="range" min="0" max="{}" value="0" style="flex:1;padding:0" aria-describedby="moment-told">'
        '<span id="moment-told" class="n" style="min-width:190px">over the whole run</span></div>'
    ).format(bins)


def _over_time(traffic: Traffic) -> Markup:
    over = traffic.over_time
    if over is None or not over.mean:
        return Markup()
    shown = {id(h) for h in shown_hot(traffic, MOST_LINKS, OF_A_LEVEL)}
    hot = [i for i, h in enumerate(traffic.hot) if id(h) in shown]
    rows: list[Row] = [("mean of a level", (), "")]
    rows += [(v.name, over.mean[i], say.percent(v.mean_utilisation)) for i, v in enumerate(traffic.levels)]
    rows += [("hot links", (), "")] + [(traffic.hot[i].name, over.hot[i], say.percent(traffic.hot[i].utilisation)) for i in hot]
    heat = _heat("Load of links over time", rows, over, step_of, COLOURS, say.percent, "whole run")
    key = _key(zip(COLOURS, LOAD_WORDS, strict=True), f"load of a link in {say.seconds(over.width)}: bytes over rate × time")
    parts = [_HEAD.format("Load over time"), Markup(heat), key]
    if over.queue:
        parts += _queues(traffic, over, hot)
    if over.note:
        parts.append(Markup('<p class="soft">{}.</p>').format(over.note))
    return Markup().join(parts)


def _queues(traffic: Traffic, over: LoadOverTime, hot: Sequence[int]) -> list[Markup]:
    """Bytes that waited, where any did."""
    rows: list[Row] = [(v.name, over.queue[i], say.size(max(over.queue[i]))) for i, v in enumerate(traffic.levels)]
    links: list[Row] = [(traffic.hot[i].name, over.hot_queue[i], say.size(max(over.hot_queue[i]))) for i in hot]
    waited: list[Row] = []
    for head, group in (("longest of a level", rows), ("hot links", links)):
        if some := [row for row in group if max(row[1]) > 0]:
            waited += [(head, (), ""), *some]
    if not waited:
        return [Markup('<p class="soft">No packet waited for a link.</p>')]
    colours = tuple(colour for _, colour in _QUEUES)
    heat = _heat("Queues of links over time", waited, over, _queue_step, colours, say.size, "longest")
    words = [f"under {say.size(_QUEUES[0][0])}", *(f"to {say.size(most)}" for most, _ in _QUEUES[1:-1])]
    words.append(f"over {say.size(_QUEUES[-2][0])}")
    without = len(rows) + len(links) - sum(bool(values) for _, values, _ in waited)
    more = f"; {without} of the rows above have none" if without else ""
    key = _key(zip(colours, words, strict=True), f"most bytes that waited for a link in {say.seconds(over.width)}{more}")
    return [_HEAD.format("Queues over time"), Markup(heat), key]


def _queue_step(waiting: float) -> int:
    return next(i for i, (most, _) in enumerate(_QUEUES) if waiting < most)


def _heat(
    name: str,
    rows: Sequence[Row],
    over: LoadOverTime,
    step: Callable[[float], int],
    colours: Sequence[str],
    words: Callable[[float], str],
    last: str,
) -> str:
    """SVG: a line for each row, time from left to right; neighbours of one colour are one block."""
    bins = len(over.mean[0])
    each, tall = (_WIDE - _LEFT - _RIGHT) / bins, _TALL + _LINE * len(rows)
    out = [
        f'<svg class="heat" viewBox="0 0 {_WIDE:.0f} {tall + 24:.0f}" role="img" aria-label="{escape(name)}" '
        f'data-left="{_LEFT:.1f}" data-each="{each:.4f}">',
        f'<text x="{_WIDE:.0f}" y="{_TALL - 7:.0f}" text-anchor="end">{escape(last)}</text>',
    ]
    for number, (label, values, behind) in enumerate(rows):
        y = _TALL + number * _LINE
        if not values:
            out.append(f'<text class="strong" x="{_LEFT - 8:.0f}" y="{y + 12:.1f}" text-anchor="end">{escape(label)}</text>')
            continue
        short = label if len(label) <= 40 else label[:39] + "…"
        out.append(
            f'<text x="{_LEFT - 8:.0f}" y="{y + 12:.1f}" text-anchor="end">{escape(short)}<title>{escape(label)}</title></text>'
        )
        out.append(f'<text class="strong" x="{_WIDE:.0f}" y="{y + 12:.1f}" text-anchor="end">{escape(behind)}</text>')
        out.append(f'<rect x="{_LEFT:.0f}" y="{y + 1:.1f}" width="{bins * each:.1f}" height="{_LINE - 2:.0f}" fill="var(--idle)"/>')
        for first, end in _runs(values, step):
            low, high = words(min(values[first:end])), words(max(values[first:end]))
            told = f"{label}, {say.seconds(first * over.width) if first else 0} to {say.seconds(end * over.width)}: "
            told += low if low == high else f"{low} to {high}"
            out.append(
                f'<rect x="{_LEFT + first * each:.2f}" y="{y + 1:.1f}" width="{(end - first) * each:.2f}" '
                f'height="{_LINE - 2:.0f}" fill="{colours[step(values[first])]}"><title>{escape(told)}</title></rect>'
            )
    out += _time_axis(tall, bins * over.width)
    now = f'<rect class="now" x="0" y="{_TALL - 2:.0f}" width="{each:.2f}" height="{tall - _TALL + 4:.0f}" fill="none" '
    return "".join(out) + now + 'stroke="var(--ink)" stroke-width="1.5" visibility="hidden"/></svg>'


def _time_axis(y: float, end: float) -> list[str]:
    """Round times below the rows, from 0 to `end` seconds."""
    rough = end / 8
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(k * unit for k in (1, 2, 5, 10) if k * unit >= rough)
    out = [f'<text x="{_LEFT - 12:.0f}" y="{y + 18:.0f}" text-anchor="end">time in the run</text>']
    for i in range(int(end / step) + 1):
        x = _LEFT + i * step / end * (_WIDE - _LEFT - _RIGHT)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.0f}" y2="{y + 4:.0f}" stroke="var(--soft)"/>')
        text = say.seconds(float(f"{i * step:.6g}")) if i else "0"
        out.append(f'<text x="{x:.1f}" y="{y + 18:.0f}" text-anchor="middle">{text}</text>')
    return out


def _runs(values: Sequence[float], step: Callable[[float], int]) -> list[tuple[int, int]]:
    """Neighbouring bins of one colour, first and end; those without anything are left out."""
    runs: list[tuple[int, int]] = []
    before = -1
    for i, value in enumerate(values):
        now = step(value) if value > 0 else -1
        if now >= 0 and now == before:
            runs[-1] = (runs[-1][0], i + 1)
        elif now >= 0:
            runs.append((i, i + 1))
        before = now
    return runs


def _key(entries: Iterable[tuple[str, str]], about: str) -> Markup:
    shades = [("var(--idle)", "none"), *entries]
    each = Markup().join(Markup('<span><i style="background:{}"></i>{}</span>').format(shade, text) for shade, text in shades)
    return Markup('<div class="key">{}<span>{}</span></div>').format(each, about)


def _table(name: str, heads: Sequence[tuple[str, bool]], rows: Iterable[Sequence[Cell]]) -> Markup:
    return frame.part("table", name, heads, list(rows))


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
