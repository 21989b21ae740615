"""Drawings of pages as SVG, in colours that eyes without red or green tell apart; scripts show values under the mouse."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from windtunnel.sheet import numbers as say
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
