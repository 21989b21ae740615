"""Choices as lines through the values of their fields, in parallel coordinates."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from markupsafe import Markup, escape

from windtunnel.draw.page.charts import frame_svg, key_line
from windtunnel.sheet.blocks import Picture

WIDTH, HEIGHT, MARGIN = 900.0, 300.0, 40.0
LETTER, LINE = 7.0, 13.0
"""Width of a letter and height of a line of a head."""

Words = Callable[[str], str]


def parallel(picture: Picture, words: Words) -> Markup:
    """A line for each choice; the first is the best. `data`: `heads` of columns; `lines` as [heights (0 above to 1), colour, tip],
    of which the last height is to be small; `ticks` as [column, height, text]; `ends` of the last column; a `legend`."""
    data = picture.data
    heads = [words(head) for head in data["heads"]]
    xs = [MARGIN + place * (WIDTH - 2.5 * MARGIN) / (len(heads) - 1) for place in range(len(heads))]

    room = int((xs[1] - xs[0]) / LETTER)
    told = [textwrap.wrap(head, max(4, room), break_long_words=False) for head in heads]
    above = LINE * (max(map(len, told)) - 1)

    def y(height: float) -> float:
        return above + 30.0 + height * (HEIGHT - 60.0)

    out = []
    for number, (heights, colour, tip) in reversed(list(enumerate(data["lines"]))):
        points = " ".join(f"{x:.1f},{y(height):.1f}" for x, height in zip(xs, heights, strict=True))
        look = f'stroke="{colour}" stroke-opacity="{0.6 - 0.5 * heights[-1]:.2f}"'
        style = look if number else 'stroke="var(--good)" stroke-width="2.5"'
        out.append(f'<polyline points="{points}" fill="none" {style}><title>{escape(words(tip))}</title></polyline>')
    out += [
        f'<text x="{x:.1f}" y="{above + 14.0 - LINE * (len(lines) - 1 - number):.1f}" text-anchor="middle">{escape(line)}</text>'
        for x, lines in zip(xs, told, strict=True)
        for number, line in enumerate(lines)
    ]
    out += [
        f'<text x="{xs[column] + 4:.1f}" y="{y(height) + 4:.1f}" class="tick">{escape(text)}</text>'
        for column, height, text in data["ticks"]
    ]
    out += [
        f'<text x="{xs[-1] + 4:.1f}" y="{place}">{escape(text)}</text>'
        for place, text in zip((above + 34.0, above + HEIGHT - 26.0), data["ends"], strict=True)
    ]
    drawn = frame_svg("".join(out), above + HEIGHT, words(picture.label), wide=WIDTH)
    return drawn + (key_line([(name, colour) for name, colour in data["legend"]]) if data["legend"] else Markup())
