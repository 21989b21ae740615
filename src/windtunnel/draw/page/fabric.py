"""The fabric as rows of boxes for servers and each tier of switches, with a slider over time; and heat maps of rows over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from markupsafe import Markup, escape

from windtunnel.draw.page.charts import key_line, round_ticks
from windtunnel.draw.page.frame import told_script
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Picture, say_in
from windtunnel.sheet.colours import LOADS, load_step
from windtunnel.sheet.sentence import Sentence

_WIDE, _ROW, _BOX, _LEFT = 1160.0, 92.0, 30.0, 78.0
MOST_EDGES = 1200

Words = Callable[[str], str]


def fabric(picture: Picture, words: Words) -> Markup:
    """The drawing with a key. `data`: `boxes` as [row, label, nodes, load], `edges` as [low box, high box, cables, load], and where
    it has bins of time `times` (their edges in words) and for each box and edge the steps of its load, a digit a bin."""
    boxes, edges = picture.data["boxes"], picture.data["edges"]
    rows = 1 + max(box[0] for box in boxes)
    tall = rows * _ROW
    places: list[tuple[float, float, float]] = []
    for row in range(rows):
        count = sum(box[0] == row for box in boxes)
        wide = (_WIDE - _LEFT) / count
        y = tall - (row + 1) * _ROW + (_ROW - _BOX) / 2
        places += [(_LEFT + number * wide, y, wide) for number in range(count)]
    timed = "times" in picture.data
    about = f'role="img" aria-label="{escape(words(picture.label))}" style="min-width:760px"'
    name = ' id="fabric"' if timed else ""
    out = [f'<div class="scroll"><svg{name} viewBox="0 0 {_WIDE:.0f} {tall:.0f}" {about}>']
    for number, edge in sorted(enumerate(edges), key=lambda pair: pair[1][3])[-MOST_EDGES:]:
        out.append(_edge(number, edge, boxes, places, words))
    for number, ((_, label, _, load), (x, y, wide)) in enumerate(zip(boxes, places, strict=True)):
        gap = min(3.0, wide * 0.15)
        title = Sentence("{what}: fullest link at {share}", what=label, share=say.percent(load))
        out.append(
            f'<rect data-row="{number}" data-name="{escape(label)}" x="{x + gap / 2:.1f}" y="{y:.1f}" width="{wide - gap:.1f}" '
            f'height="{_BOX:.0f}" rx="3" fill="{LOADS[load_step(load)][1]}"><title>{escape(words(title))}</title></rect>'
        )
    for row in range(rows):
        name = next(label.split(" ")[0] for number, label, *_ in boxes if number == row)
        total = sum(nodes for number, _, nodes, _ in boxes if number == row)
        y = tall - (row + 1) * _ROW + _ROW / 2
        out.append(f'<text x="0" y="{y - 3:.0f}">{total:,}</text>')
        out.append(f'<text x="0" y="{y + 13:.0f}">{escape(_plural(name, total))}</text>')
    drawn = Markup("".join(out) + "</svg></div>")  # noqa: S704 -- every text inside went through escape()
    key = key_line([(words(said), colour) for _, colour, said in LOADS], words("load of the fullest link"))
    return drawn + key + (_slider(picture, words) if timed else Markup())


def _edge(
    number: int, edge: Sequence[float], boxes: Sequence[Sequence[str]], places: Sequence[tuple[float, float, float]], words: Words
) -> str:
    low, high, cables, load = edge
    (x0, y0, w0), (x1, y1, w1) = places[int(low)], places[int(high)]
    name = f"{boxes[int(low)][1]} – {boxes[int(high)][1]}"
    down = 0.0 if y0 > y1 else _BOX  # from the top of the lower box to the bottom of the upper one
    title = Sentence(
        "{what}: {cables}, fullest at {share}", what=name, cables=say.count_words(int(cables), "cable"), share=say.percent(load)
    )
    return (
        f'<line data-row="{number}" data-name="{escape(name)}" x1="{x0 + w0 / 2:.1f}" y1="{y0 + down:.1f}" '
        f'x2="{x1 + w1 / 2:.1f}" y2="{y1 + _BOX - down:.1f}" stroke="{LOADS[load_step(load)][1]}" '
        f'stroke-width="{0.6 + 2.4 * min(1.0, load):.2f}" stroke-opacity="{0.25 + 0.75 * min(1.0, load):.2f}">'
        f"<title>{escape(words(title))}</title></line>"
    )


def _slider(picture: Picture, words: Words) -> Markup:
    """A moment of the run; the script colours the drawing by its load then."""
    told = {
        **{name: picture.data[name] for name in ("times", "box_bins", "edge_bins")},
        "colours": [colour for _, colour, _ in LOADS],
        "words": [words(said) for *_, said in LOADS],
        "whole": words("over the whole run"),
        "fullest": words("fullest link"),
        "to": words("{begin} to {end}"),
    }
    return Markup(
        '<div class="row" style="margin-top:12px"><label for="moment">{}</label>'
        '<input id="moment" type="range" min="0" max="{}" value="0" style="flex:1;padding:0" aria-describedby="moment-told">'
        '<span id="moment-told" class="n" style="min-width:190px">{}</span></div>{}'
    ).format(words("Moment"), len(picture.data["times"]) - 1, told["whole"], told_script("moment-data", told))


def _plural(name: str, number: int) -> str:
    if number == 1:
        return name
    return {"leaf": "leaves"}.get(name, name + "s")


_HEAT_WIDE, _HEAT_LEFT, _HEAT_RIGHT, _HEAT_TOP, _LINE = 1160.0, 270.0, 64.0, 20.0, 17.0


def heat(picture: Picture, words: Words) -> Markup:
    """A line for each row, time from left to right; neighbours of one colour are one block. `data`: `rows` as [label, values (none:
    a heading), what stands behind], `width` of a bin (s), `unit`, `steps` as [below, colour, words], `last`, `about`."""
    rows, width, steps = picture.data["rows"], picture.data["width"], picture.data["steps"]
    bins = max(len(values) for _, values, _ in rows)
    each, tall = (_HEAT_WIDE - _HEAT_LEFT - _HEAT_RIGHT) / bins, _HEAT_TOP + _LINE * len(rows)

    def step(value: float) -> int:
        return next((number for number, (most, *_) in enumerate(steps) if value < most), len(steps) - 1)

    said = say.percent if picture.data["unit"] == "%" else partial(say_in, picture.data["unit"])
    out = [
        f'<svg class="heat" viewBox="0 0 {_HEAT_WIDE:.0f} {tall + 24:.0f}" role="img" aria-label="{escape(words(picture.label))}" '
        f'data-left="{_HEAT_LEFT:.1f}" data-each="{each:.4f}">',
        f'<text x="{_HEAT_WIDE:.0f}" y="{_HEAT_TOP - 7:.0f}" text-anchor="end">{escape(words(picture.data["last"]))}</text>',
    ]
    for number, (label, values, behind) in enumerate(rows):
        y = _HEAT_TOP + number * _LINE
        if not values:
            out.append(
                f'<text class="strong" x="{_HEAT_LEFT - 8:.0f}" y="{y + 12:.1f}" text-anchor="end">{escape(words(label))}</text>'
            )
            continue
        short = label if len(label) <= 40 else label[:39] + "…"
        out.append(
            f'<text x="{_HEAT_LEFT - 8:.0f}" y="{y + 12:.1f}" text-anchor="end">{escape(short)}'
            f"<title>{escape(label)}</title></text>"
            f'<text class="strong" x="{_HEAT_WIDE:.0f}" y="{y + 12:.1f}" text-anchor="end">{escape(behind)}</text>'
            f'<rect x="{_HEAT_LEFT:.0f}" y="{y + 1:.1f}" width="{bins * each:.1f}" height="{_LINE - 2:.0f}" fill="var(--idle)"/>'
        )
        for first, end in _runs(values, step):
            low, high = said(min(values[first:end])), said(max(values[first:end]))
            told = f"{label}, {say.seconds(first * width) if first else 0} to {say.seconds(end * width)}: "
            told += low if low == high else f"{low} to {high}"
            out.append(
                f'<rect x="{_HEAT_LEFT + first * each:.2f}" y="{y + 1:.1f}" width="{(end - first) * each:.2f}" '
                f'height="{_LINE - 2:.0f}" fill="{steps[step(values[first])][1]}"><title>{escape(told)}</title></rect>'
            )
    out += _time_axis(tall, bins * width, words)
    out.append(
        f'<rect class="now" x="0" y="{_HEAT_TOP - 2:.0f}" width="{each:.2f}" height="{tall - _HEAT_TOP + 4:.0f}" fill="none" '
        'stroke="var(--ink)" stroke-width="1.5" visibility="hidden"/></svg>'
    )
    title = Markup('<p class="strong" style="margin-top:20px">{}</p>').format(words(picture.data["title"]))
    key = key_line(
        [(words("none"), "var(--idle)"), *((words(text), colour) for _, colour, text in steps)], words(picture.data["about"])
    )
    return title + Markup("".join(out)) + key  # noqa: S704 -- every text inside went through escape()


def _time_axis(y: float, end: float, words: Words) -> list[str]:
    """Round times below the rows, from 0 to `end` seconds."""
    out = [f'<text x="{_HEAT_LEFT - 12:.0f}" y="{y + 18:.0f}" text-anchor="end">{escape(words("time in the run"))}</text>']
    for moment in round_ticks(0.0, end, 8):
        x = _HEAT_LEFT + moment / end * (_HEAT_WIDE - _HEAT_LEFT - _HEAT_RIGHT)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.0f}" y2="{y + 4:.0f}" stroke="var(--soft)"/>')
        text = say.seconds(float(f"{moment:.6g}")) if moment else "0"
        out.append(f'<text x="{x:.1f}" y="{y + 18:.0f}" text-anchor="middle">{text}</text>')
    return out


def _runs(values: Sequence[float], step: Callable[[float], int]) -> list[tuple[int, int]]:
    """Neighbouring bins of one colour, first and end; those without anything are left out."""
    runs: list[tuple[int, int]] = []
    before = -1
    for number, value in enumerate(values):
        now = step(value) if value > 0 else -1
        if now >= 0 and now == before:
            runs[-1] = (runs[-1][0], number + 1)
        elif now >= 0:
            runs.append((number, number + 1))
        before = now
    return runs
