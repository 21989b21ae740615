"""Drawings of points and curves over two axes, of stacked bars beside each other, and of what changes give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from windtunnel.draw.page.charts import (
    BLUE,
    LEFT,
    ORANGE,
    RIGHT,
    WIDE,
    Words,
    frame_svg,
    key_line,
    log_scale,
    log_ticks,
    round_ticks,
)
from windtunnel.sheet.blocks import Change, Mark, Plot, Scale, Tornado, say_in

Place = Callable[[float], float]
Translate = Callable[[str], str]
"""A text in the page's language."""

NAMES = 236.0
"""Width of the names left of bars."""

MOST_LETTERS = 34
"""Letters of a name beside a bar; all of it stands in its tip."""


class PlotAxis(NamedTuple):
    """An axis: what it counts, how it says numbers, whether it is logarithmic, where a linear one begins; `ticks`: where numbers
    stand, if not at round ones."""

    title: str
    words: Words
    log: bool = False
    least: float | None = None
    ticks: tuple[float, ...] = ()


class PlotLine(NamedTuple):
    """Points that are joined."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str = BLUE
    dash: str = ""
    wide: float = 1.8


def shorten(name: str, most: int = MOST_LETTERS) -> str:
    """A name that fits beside a bar."""
    return name if len(name) <= most else name[: most - 1] + "…"


def draw_plot(
    points: Sequence[Mark], lines: Sequence[PlotLine], across: PlotAxis, up: PlotAxis, label: str, tall: float = 360.0
) -> Markup:
    """Points and lines over two axes, each linear or logarithmic; empty where there is nothing to draw."""

    def has_place(point: tuple[float, float]) -> bool:
        return (point[0] > 0.0 or not across.log) and (point[1] > 0.0 or not up.log)

    every = [(one.x, one.y) for one in points] + [point for line in lines for point in line.points]
    if not (usable := list(filter(has_place, every))):
        return Markup()
    top, bottom = 26.0, tall - 42.0
    xs, ys = [x for x, _ in usable], [y for _, y in usable]
    x, y = _place(xs, across, LEFT, WIDE - RIGHT), _place(ys, up, bottom, top)
    out = [_grid(xs, ys, (x, y), (across, up), (top, bottom, tall))]
    for line in lines:
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in filter(has_place, line.points))
        out.append(
            f'<polyline points="{path}" fill="none" stroke="{line.colour}" stroke-width="{line.wide}" '
            f'stroke-dasharray="{line.dash}"><title>{escape(line.name)}</title></polyline>'
        )
    out += [_mark(one, x(one.x), y(one.y)) for one in points if has_place((one.x, one.y))]
    return frame_svg("".join(out), tall, label, "plot")


def _place(values: Sequence[float], axis: PlotAxis, first: float, last: float) -> Place:
    if axis.log:
        return log_scale(values, first, last)
    low, high = _ends(values, axis)
    return lambda value: first + (value - low) / (high - low) * (last - first)


def _ends(values: Sequence[float], axis: PlotAxis) -> tuple[float, float]:
    """Ends of a linear axis, with some room."""
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
    return (low - room if axis.least is None else axis.least), high + room


def _grid(
    xs: Sequence[float], ys: Sequence[float], places: tuple[Place, Place], axes: tuple[PlotAxis, PlotAxis],
    edges: tuple[float, float, float],
) -> str:  # fmt: skip
    """Lines and numbers of both axes, and what they count."""
    (x, y), (across, up), (top, bottom, tall) = places, axes, edges
    out = []
    for value in _ticks(ys, up):
        out.append(
            f'<line x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="var(--line)"/>'
            f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{escape(up.words(value))}</text>'
        )
    free = LEFT
    for value in _ticks(xs, across):
        at, said = x(value), str(across.words(value))
        if at - 3.4 * len(said) < free and free > LEFT:
            continue  # numbers would touch
        free = at + 3.4 * len(said) + 8.0
        out.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{bottom}" stroke="var(--line)"/>'
            f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(said)}</text>'
        )
    out.append(f'<text x="{WIDE - RIGHT}" y="{tall - 6}" text-anchor="end">{escape(across.title)} →</text>')
    out.append(f'<text x="{LEFT}" y="14">↑ {escape(up.title)}</text>')
    return "".join(out)


def _ticks(values: Sequence[float], axis: PlotAxis) -> list[float]:
    if axis.ticks:
        return list(axis.ticks)
    if axis.log:
        return log_ticks(min(values), max(values))
    low, high = _ends(values, axis)
    return round_ticks(low, high, 6)


def _mark(one: Mark, x: float, y: float) -> str:
    """A point; the keyboard reaches it unless it is a dot among thousands, and its tip says what it is."""
    if one.shape == "dot":
        dot = f'cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{one.colour}" fill-opacity=".7"'
        return f"<circle {dot}><title>{escape(one.tip)}</title></circle>"
    look = f'fill="{"none" if one.hollow else one.colour}" stroke="{one.colour}" stroke-width="1.6"'
    told = f'tabindex="0" role="img" aria-label="{escape(one.tip)}"'
    title = f"<title>{escape(one.tip)}</title>"
    if one.shape == "square":
        return f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" {look} {told}>{title}</rect>'
    if one.shape == "diamond":
        return f'<path d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z" {look} {told}>{title}</path>'
    if one.shape == "cross":
        path = f"M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10"
        return f'<path d="{path}" {look} {told}>{title}</path>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {look} {told}>{title}</circle>'


TORNADO_MIDDLE = 560.0
"""Where nothing changes."""


def tornado(rows: Sequence[Change], label: str, row: float = 28.0) -> Markup:
    """Bars from a middle line: gains to the right, losses to the left; colour and side say the same."""
    least, most = min((0.0, *_shares(rows))), max((0.0, *_shares(rows)))
    left, right = NAMES + 90.0, WIDE - RIGHT
    edge = 12.0 + 7.0 * max((len(said) for one in rows for said in one.said), default=0)
    middle = left if least == 0.0 else right if most == 0.0 else TORNADO_MIDDLE
    rooms = [room / share for room, share in ((right - edge - middle, most), (middle - left - edge, -least)) if share > 0.0]
    scale = min(rooms, default=1.0)
    tall = row * max(1, len(rows))
    out = []
    for number, one in enumerate(rows):
        y, text = row * number, f'y="{row * number + row / 2 + 4:.1f}"'
        tip = f"<title>{escape(one.tip or one.name)}</title>"
        out.append(f'<text class="strong" x="0" {text}>{escape(shorten(one.name, 46))}{tip}</text>')
        for share in filter(None, one.shares):
            begin = middle + min(0.0, share * scale)
            colour = BLUE if share > 0.0 else ORANGE
            out.append(
                f'<rect x="{begin:.1f}" y="{y + 5:.1f}" width="{max(1.0, abs(share) * scale):.1f}" height="{row - 10:.1f}" '
                f'fill="{colour}">{tip}</rect>'
            )
        for share, said in zip(one.shares, one.said, strict=True):
            at, anchor = (middle + share * scale + 6.0, "start") if share >= 0.0 else (middle + share * scale - 6.0, "end")
            out.append(f'<text x="{at:.1f}" {text} text-anchor="{anchor}">{escape(said)}</text>')
    out.append(f'<path d="M{middle:.1f} 0V{tall:.1f}" stroke="var(--soft)"/>')
    return frame_svg("".join(out), tall, label, "tornado")


def _shares(rows: Sequence[Change]) -> Iterator[float]:
    return (share for one in rows for share in one.shares)


def draw_plot_block(block: Plot, translate: Translate) -> Markup:
    """A plot of a sheet with its legend."""
    marks = [mark._replace(tip=translate(mark.tip)) for mark in block.marks]
    lines = [PlotLine(translate(one.name), one.points, one.colour, one.dash) for one in block.curves]
    axes = [_axis(scale, translate) for scale in (block.across, block.up)]
    drawn = draw_plot(marks, lines, axes[0], axes[1], translate(block.label), block.tall)
    entries = [(translate(name), colour) for name, colour in block.legend]
    return drawn + (key_line(entries, translate(block.about)) if drawn and (entries or block.about) else Markup())


def _axis(scale: Scale, translate: Translate) -> PlotAxis:
    def say_value(value: float) -> str:
        return f"{100.0 * value:.3g} %" if scale.unit == "%" else say_in(scale.unit, value)

    return PlotAxis(translate(scale.title), say_value, scale.log, scale.least, scale.ticks)


def draw_tornado(block: Tornado, translate: Translate) -> Markup:
    """A tornado of a sheet."""
    rows = [Change(translate(one.name), one.shares, tuple(map(translate, one.said)), translate(one.tip)) for one in block.changes]
    about = Markup('<p class="soft">{}</p>').format(translate(block.about)) if block.about else Markup()
    return about + tornado(rows, translate(block.label))
