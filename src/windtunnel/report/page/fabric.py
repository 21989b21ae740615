"""The fabric as a drawing: a row of boxes for servers and for each tier of switches, coloured by the load of their fullest link."""

from __future__ import annotations

from html import escape

from windtunnel.network.simulate.traffic import Traffic
from windtunnel.sheet import numbers as say

_WIDE, _ROW, _BOX, _LEFT = 1160.0, 92.0, 30.0, 78.0
_STEPS = (
    (0.01, "#94a3b8"), (0.05, "#7dd3fc"), (0.1, "#3b82f6"), (0.25, "#14b8a6"),
    (0.5, "#eab308"), (0.75, "#f97316"), (1.01, "#dc2626"),
)  # fmt: skip
MOST_EDGES = 1200


COLOURS = tuple(shade for _, shade in _STEPS)
"""Of each step of load, from the least."""
LOAD_WORDS = ("under 1%", "to 5%", "to 10%", "to 25%", "to 50%", "to 75%", "over 75%")
"""What each step says."""


def step_of(load: float) -> int:
    """The step of a link that is used `load` (0..1) of the time."""
    return next((i for i, (most, _) in enumerate(_STEPS) if load < most), len(_STEPS) - 1)


def colour(load: float) -> str:
    """Its colour."""
    return COLOURS[step_of(load)]


def fabric(traffic: Traffic) -> str:
    """SVG of the fabric and its load, with a key; empty where there is nothing to draw."""
    if not traffic.boxes:
        return ""
    rows = 1 + max(b.row for b in traffic.boxes)
    tall = rows * _ROW
    where: list[tuple[float, float, float]] = []
    for row in range(rows):
        count = sum(b.row == row for b in traffic.boxes)
        wide = (_WIDE - _LEFT) / count
        y = tall - (row + 1) * _ROW + (_ROW - _BOX) / 2
        where += [(_LEFT + i * wide, y, wide) for i in range(count)]
    about = 'role="img" aria-label="The fabric and the load of its links" style="min-width:760px"'
    out = [f'<div class="scroll"><svg id="fabric" viewBox="0 0 {_WIDE:.0f} {tall:.0f}" {about}>']
    for number, edge in sorted(enumerate(traffic.edges), key=lambda e: e[1].load)[-MOST_EDGES:]:
        (x0, y0, w0), (x1, y1, w1) = where[edge.low], where[edge.high]
        cables = f"{edge.cables} cable{'s' if edge.cables != 1 else ''}"
        low, high = traffic.boxes[edge.low].label, traffic.boxes[edge.high].label
        down = 0.0 if y0 > y1 else _BOX  # from the top of the lower box to the bottom of the upper one
        out.append(
            f'<line data-row="{number}" data-name="{escape(low)} – {escape(high)}" '
            f'x1="{x0 + w0 / 2:.1f}" y1="{y0 + down:.1f}" x2="{x1 + w1 / 2:.1f}" y2="{y1 + _BOX - down:.1f}" '
            f'stroke="{colour(edge.load)}" stroke-width="{0.6 + 2.4 * min(1.0, edge.load):.2f}" '
            f'stroke-opacity="{0.25 + 0.75 * min(1.0, edge.load):.2f}">'
            f"<title>{escape(low)} – {escape(high)}: {cables}, fullest at {say.percent(edge.load)}</title></line>"
        )
    for number, (box, (x, y, wide)) in enumerate(zip(traffic.boxes, where, strict=True)):
        gap = min(3.0, wide * 0.15)
        out.append(
            f'<rect data-row="{number}" data-name="{escape(box.label)}" '
            f'x="{x + gap / 2:.1f}" y="{y:.1f}" width="{wide - gap:.1f}" height="{_BOX:.0f}" rx="3" '
            f'fill="{colour(box.load)}"><title>{escape(box.label)}: fullest link at {say.percent(box.load)}</title></rect>'
        )
    for row in range(rows):
        name = next(b.label.split(" ")[0] for b in traffic.boxes if b.row == row)
        total = sum(b.nodes for b in traffic.boxes if b.row == row)
        y = tall - (row + 1) * _ROW + _ROW / 2
        out.append(f'<text x="0" y="{y - 3:.0f}">{total:,}</text>')
        out.append(f'<text x="0" y="{y + 13:.0f}">{escape(_plural(name, total))}</text>')
    key = [f'<span><i style="background:{shade}"></i>{text}</span>' for shade, text in zip(COLOURS, LOAD_WORDS, strict=True)]
    return "".join(out) + f'</svg></div><div class="key">{"".join(key)}<span>load of the fullest link</span></div>'


def _plural(name: str, number: int) -> str:
    if number == 1:
        return name
    return {"leaf": "leaves"}.get(name, name + "s")
