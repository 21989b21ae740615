"""Drawings of pages as SVG, in colours that eyes without red or green tell apart; scripts show values under the mouse. Drawings of
points and curves over two axes, of stacked bars beside each other, and of what changes give.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Change, Mark, Plot, Scale, Tornado, say_in
from windtunnel.sheet.colours import BLUE as BLUE
from windtunnel.sheet.colours import COLOURS as COLOURS
from windtunnel.sheet.colours import GOLD as GOLD
from windtunnel.sheet.colours import GREEN as GREEN
from windtunnel.sheet.colours import GREY as GREY
from windtunnel.sheet.colours import ORANGE as ORANGE
from windtunnel.sheet.colours import PINK as PINK
from windtunnel.sheet.colours import SKY as SKY

WIDE, LEFT, RIGHT = 1000.0, 76.0, 16.0

Words = Callable[[float], str]


class Curve(NamedTuple):
    """A line of a drawing: its name, its colour, and its points."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]
    dash: str = ""
    filled: bool = False


class ChartAxis(NamedTuple):
    """Values from 0 or `least` to `most`, in words; `mark`: a value with a line of its own, and what it is; `scale`: numbers stand
    at round multiples of it."""

    most: float
    words: Words
    least: float = 0.0
    mark: tuple[float, str] | None = None
    scale: float = 1.0


def frame_svg(inside: str, tall: float, label: str, kind: str = "", wide: float = WIDE, told: str = "") -> Markup:
    """A drawing that scrolls where the window is narrow. `inside` is markup whose texts went through `escape`; `told`: JSON of what
    the mouse over it tells."""
    data = f' data-told="{escape(told)}"' if told else ""
    return Markup(  # noqa: S704 -- every text inside went through escape()
        f'<div class="scroll"><svg class="{kind}"{data} viewBox="0 0 {wide:.0f} {tall:.0f}" role="img" '
        f'aria-label="{escape(label)}" style="min-width:760px">{inside}</svg></div>'
    )


def draw_curves(
    curves: Sequence[Curve], across: ChartAxis, up: ChartAxis, label: str, tall: float = 190.0, kind: str = "", told: str = ""
) -> Markup:
    """Curves over one axis; areas where they are filled. Both axes have round ticks."""
    top, bottom = 12.0, tall - 26.0

    def x(value: float) -> float:
        return LEFT + (value - across.least) / max(across.most - across.least, 1e-12) * (WIDE - LEFT - RIGHT)

    def y(value: float) -> float:
        return bottom - (value - up.least) / max(up.most - up.least, 1e-12) * (bottom - top)

    out = [_ticks_up(up, y), _ticks_across(across, x, bottom)]
    for one in curves:
        points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in one.points)
        if not points:
            continue
        if one.filled:
            first, last = x(one.points[0][0]), x(one.points[-1][0])
            out.append(
                f'<polygon points="{first:.1f},{bottom:.1f} {points} {last:.1f},{bottom:.1f}" fill="{one.colour}" '
                f'fill-opacity="0.28"/>'
            )
        out.append(
            f'<polyline points="{points}" fill="none" stroke="{one.colour}" stroke-width="1.8" '
            f'stroke-dasharray="{one.dash}"><title>{escape(one.name)}</title></polyline>'
        )
    if across.mark is not None and across.least <= across.mark[0] <= across.most:
        at = x(across.mark[0])
        out.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{bottom}" stroke="var(--ink)" stroke-dasharray="5 3"/>'
            f'<text class="strong" x="{at + 5:.1f}" y="{top + 10}">{escape(across.mark[1])}</text>'
        )
    out.append(f'<line class="cross" y1="{top}" y2="{bottom}" stroke="var(--ink)" stroke-width="1" visibility="hidden"/>')
    return frame_svg("".join(out), tall, label, kind, told=told)


def _ticks_up(up: ChartAxis, y: Callable[[float], float]) -> str:
    out = []
    for tick in round_ticks(up.least / up.scale, up.most / up.scale, 4):
        value = tick * up.scale
        out.append(
            f'<line x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="var(--line)"/>'
            f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{escape(up.words(value))}</text>'
        )
    return "".join(out)


def _ticks_across(across: ChartAxis, x: Callable[[float], float], bottom: float) -> str:
    out = []
    for value in round_ticks(across.least, across.most, 8):
        at = x(value)
        anchor = "end" if at > WIDE - 40 else "middle"
        out.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}" stroke="var(--soft)"/>'
            f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="{anchor}">{escape(across.words(value))}</text>'
        )
    return "".join(out)


def round_ticks(least: float, most: float, about: int) -> list[float]:
    """Round values from `least` to `most`, some `about` of them."""
    rough = (most - least) / max(about, 1)
    if not rough > 0.0:
        return [least]
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(k * unit for k in (1.0, 2.0, 5.0, 10.0) if k * unit >= rough * 0.999)
    return [float(f"{n * step:.9g}") for n in range(math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9) + 1)]


def log_scale(values: Sequence[float], first: float, last: float) -> Callable[[float], float]:
    """Places on a logarithmic axis, with some room at both ends."""
    low, high = math.log(min(values)), math.log(max(values))
    room = 0.06 * (high - low) or 0.1
    low, high = low - room, high + room
    return lambda value: first + (math.log(value) - low) / (high - low) * (last - first)


def log_ticks(least: float, most: float) -> list[float]:
    """1, 2 and 5 times powers of ten between two values; round ones where these lie close."""
    found = [
        k * 10.0**power
        for power in range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
        for k in (1, 2, 5)
        if least * 0.999 <= k * 10.0**power <= most * 1.001
    ]
    return found if len(found) > 1 else [value for value in round_ticks(least, most, 4) if value > 0.0]


def say_zero(words: Words) -> Words:
    """`words` with a plain 0."""
    return lambda value: "0" if value == 0.0 else words(value)


say_number = say.plain_number
"""A count on an axis."""
say_seconds = say_zero(say.seconds)


def ink_on(colour: str) -> str:
    """White or black, whichever has more contrast (WCAG's relative luminance) on a colour `#rrggbb`; else the theme's ink."""
    if not re.fullmatch("#[0-9a-f]{6}", colour):
        return "var(--ink)"
    parts = [int(colour[at : at + 2], 16) / 255.0 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return "#fff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179 else "#000"


def key_line(entries: Sequence[tuple[str, str]], about: str = "") -> Markup:
    """Names beside their colours."""
    each = Markup().join(Markup('<span><i style="background:{}"></i>{}</span>').format(colour, name) for name, colour in entries)
    return Markup('<div class="key">{}{}</div>').format(each, Markup("<span>{}</span>").format(about) if about else "")


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
