"""A painter of one long time as lines below each other, with what happened in it as boxes."""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup, escape

from windtunnel.draw.page.charts import key_line
from windtunnel.sheet.blocks import Picture

WIDE, TALL, LEFT = 1180.0, 30.0, 64.0


def lanes(picture: Picture, words: Callable[[str], str]) -> Markup:
    """Lines of equal time. `data`: `names` of the lines, `seconds` of each, `ground` (colour, what it says) of all the time,
    `spans` as [begin, end, colour, what it says] in seconds from the begin of the first line, and `legend` as [name, colour]."""
    names, each = picture.data["names"], picture.data["seconds"]
    scale, (ground, said) = (WIDE - LEFT) / each, picture.data["ground"]
    out = [f'<svg viewBox="0 0 {WIDE} {len(names) * (TALL + 8) + 4}" role="img" aria-label="{escape(words(picture.label))}">']
    for lane, name in enumerate(names):
        top = lane * (TALL + 8)
        out.append(f'<text x="0" y="{top + TALL / 2 + 4}">{escape(name)}</text>')
        out.append(_box(LEFT, top, WIDE - LEFT, ground, words(said)))
    for begin, end, colour, told in picture.data["spans"]:
        for lane in range(int(begin // each), min(len(names) - 1, int(end // each)) + 1):
            low, high = max(begin, lane * each), min(end, (lane + 1) * each)
            if high > low:
                wide = max(0.8, (high - low) * scale)
                out.append(_box(LEFT + (low - lane * each) * scale, lane * (TALL + 8), wide, colour, words(told)))
    key = key_line([(words(name), colour) for name, colour in picture.data["legend"]])
    return Markup("".join(out) + "</svg>") + key  # noqa: S704 -- every text inside went through escape()


def _box(x: float, y: float, wide: float, colour: str, title: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.1f}" width="{wide:.2f}" height="{TALL:g}" fill="{colour}"><title>{escape(title)}</title></rect>'
    )
