"""Each block of a sheet as markup. A drawing of its own kind has a painter in `PAINTERS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup, escape

from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import (
    LEFT,
    RIGHT,
    WIDE,
    ChartAxis,
    draw_curves,
    frame_svg,
    key_line,
    log_scale,
    log_ticks,
    round_ticks,
    say_number,
    say_zero,
)
from windtunnel.draw.page.charts import Curve as DrawnCurve
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import (
    Advices,
    Axis,
    Block,
    Cell,
    Column,
    Curves,
    Lines,
    Picture,
    Scatter,
    Shares,
    Spans,
    Table,
    say_in,
)
from windtunnel.sheet.sentence import translate

Words = Callable[[str], str]
"""A text in the page's language."""

PAINTERS: dict[str, Callable[[Picture, Words], Markup]] = {}
"""Name of a painter -> the markup of a picture."""


def draw_block(block: Block, language: str) -> Markup:
    """The markup of one block."""
    words = partial(translate, language=language)
    if isinstance(block, Picture):
        return PAINTERS[block.painter](block, words)
    for kind, draw in _DRAWERS.items():
        if isinstance(block, kind):
            return draw(block, words)
    raise TypeError(f"no drawing of {type(block).__name__}")


def _lines(block: Lines, words: Words) -> Markup:
    look = Markup(' class="{}"').format(block.mood) if block.mood else ""
    return Markup().join(Markup("<p{}>{}</p>").format(look, words(line)) for line in block.lines)


def _table(block: Table, words: Words) -> Markup:
    kept = [number for number, column in enumerate(block.columns) if column.left_out != "pages" and not _is_bar(block, number)]
    heads = [(words(block.columns[number].head), block.columns[number].number) for number in kept]
    rows = [[_cell(row[number], block.columns[number], words) for number in kept] for row in block.rows]
    title = _small_title(words(block.title)) if block.title else Markup()
    table = frame.part("table", block.key, heads, rows)
    return title + (frame.part("filter", block.key, words("filter")) if block.filtered else Markup()) + table


def _is_bar(block: Table, number: int) -> bool:
    return any(row[number].bar is not None for row in block.rows)


def _cell(cell: Cell, column: Column, words: Words) -> tuple[str, float | None]:
    if not column.number:
        return words(cell.text), None
    return words(cell.text), -1.0 if cell.value is None or cell.value != cell.value else cell.value


def _small_title(text: str) -> Markup:
    return Markup('<p class="soft" style="margin-top:14px">{}</p>').format(text)


def _shares(block: Shares, words: Words) -> Markup:
    """A stripe of shares, and a bar with its value for each but the rest."""
    total = sum(part.value for part in block.parts) or 1.0
    told = {part.name: f"{words(part.name)}: {say_in(block.unit, part.value)}" for part in block.parts}
    stripe = [{"share": part.value / total, "colour": part.colour, "title": told[part.name], "inside": ""} for part in block.parts]
    shown = sorted((part for part in block.parts if not part.rest), key=lambda part: -part.value)
    most = max((part.value for part in shown), default=1.0) or 1.0
    bars = [
        {"label": words(part.name), "value": say_in(block.unit, part.value), "share": say.percent(part.value / total),
         "width": 100.0 * part.value / most, "colour": part.colour, "title": told[part.name]}
        for part in shown
    ]  # fmt: skip
    look = Markup(' class="warn"') if block.mood == "bad" else ""
    title = Markup('<p{} style="margin-top:12px">{}</p>').format(look, words(block.title)) if block.title else Markup()
    return title + frame.part("stripe", stripe) + frame.part("bars", bars)


def _curves(block: Curves, words: Words) -> Markup:
    shown = [DrawnCurve(words(one.name), one.colour, one.points, one.dash, one.filled) for one in block.curves]
    legend = key_line([(one.name, one.colour) for one in shown], words(block.about)) if block.legend else Markup()
    title = _small_title(words(block.title)) if block.title else Markup()
    drawn = draw_curves(
        shown, _axis(block.across, words), _axis(block.up, words), words(block.label), block.tall, block.group,
        frame.embed(_group_data(block, words)) if block.group else "",
    )  # fmt: skip
    return title + legend + drawn


def _axis(axis: Axis, words: Words) -> ChartAxis:
    said = say_number if not axis.unit else say_zero(partial(say_in, axis.unit))
    mark = None if axis.mark is None else (axis.mark[0], words(axis.mark[1]))
    return ChartAxis(axis.most, said, axis.least, mark)


def _group_data(block: Curves, words: Words) -> dict[str, Any]:
    """What the mouse over a drawing of a group tells: values of each curve, at even steps."""
    curves = [
        {"name": words(one.name), "unit": block.up.unit, "values": [round(float(f"{y:.4g}"), 6) for _, y in one.points]}
        for one in block.curves
    ]
    return {"end": block.across.most, "curves": curves}


def _spans(block: Spans, words: Words) -> Markup:
    """A row for each name on one clock."""
    left, row, top = 236.0, 26.0, 8.0
    tall = top + row * len(block.rows) + 30.0

    def x(moment: float) -> float:
        return left + min(max(moment / block.seconds, 0.0), 1.0) * (WIDE - left - RIGHT)

    out = []
    for tick in round_ticks(0.0, block.seconds, 7):
        out.append(
            f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" y2="{tall - 24:.1f}" stroke="var(--line)"/>'
            f'<text x="{x(tick):.1f}" y="{tall - 8:.1f}" text-anchor="middle">{escape(say_zero(say.seconds)(tick))}</text>'
        )
    for number, name in enumerate(block.rows):
        y = top + row * number
        out.append(f'<text class="strong" x="{left - 10}" y="{y + 16:.1f}" text-anchor="end">{escape(words(name))}</text>')
    place = {name: number for number, name in enumerate(block.rows)}
    for span in block.spans:
        y, begin, end = top + row * place[span.row], x(span.begin), x(span.end)
        length = span.end - span.begin
        said = f"{say.seconds(length)}, {say.percent(length / block.seconds)}"
        waits = not span.colour.startswith("#")
        stroke = ' stroke="var(--soft)" stroke-dasharray="4 3"' if waits else ""
        out.append(
            f'<rect x="{begin:.1f}" y="{y + 3:.1f}" width="{max(2.0, end - begin):.1f}" height="{row - 7}" rx="3" '
            f'fill="{span.colour}"{stroke}><title>{escape(words(span.name))}: {escape(said)}</title></rect>'
        )
        late = end > WIDE - 150.0
        inside = late and end - begin > 140.0
        at, anchor = (end - 6, "end") if inside else (begin - 6, "end") if late else (end + 6, "start")
        colour = ' style="fill:#fff"' if inside and not waits else ""
        out.append(f'<text x="{at:.1f}" y="{y + 16:.1f}" text-anchor="{anchor}"{colour}>{escape(said)}</text>')
    return frame_svg("".join(out), tall, words(block.label)) + key_line([(words(name), colour) for name, colour in block.legend])


TALL, TOP, BOTTOM = 460.0, 16.0, 420.0


def _scatter(block: Scatter, words: Words) -> Markup:
    """Points over two logarithmic axes, the joined ones with a line; under it the one that is chosen, and its command."""
    xs, ys = [point.x for point in block.points], [point.y for point in block.points]
    x, y = log_scale(xs, LEFT, WIDE - RIGHT), log_scale(ys, BOTTOM, TOP)
    out = []
    for value in log_ticks(min(ys), max(ys)):
        out.append(
            f'<line x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="var(--line)"/>'
            f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{say_number(value)}</text>'
        )
    for value in log_ticks(min(xs), max(xs)):
        out.append(
            f'<line x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP}" y2="{BOTTOM}" stroke="var(--line)"/>'
            f'<text x="{x(value):.1f}" y="{BOTTOM + 16}" text-anchor="middle">{say_number(value)}</text>'
        )
    out.append(f'<text x="{WIDE - RIGHT}" y="{TALL - 6}" text-anchor="end">{escape(words(block.across))} →</text>')
    out.append(f'<text x="{LEFT + 6}" y="{TOP + 6}">↑ {escape(words(block.up))}</text>')
    joined = sorted((point.x, point.y) for point in block.points if point.joined)
    path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in joined)
    out.append(f'<polyline points="{path}" fill="none" stroke="var(--ink)" stroke-width="1.4" stroke-opacity="0.6"/>')
    for number in reversed(range(len(block.points))):
        point = block.points[number]
        style = (
            f'fill="{point.colour}" fill-opacity="{0.85 if point.joined else 0.0}" stroke="{point.colour}" stroke-width="1.5" '
            f'stroke-opacity="{1.0 if point.joined or number == block.best else 0.35}" data-point="{number}" style="cursor:pointer"'
        )
        reach = ' tabindex="0"' if point.joined else ""
        title = f"<title>{escape(words(point.words))}</title>"
        place = (
            f'rect x="{x(point.x) - 5:.1f}" y="{y(point.y) - 5:.1f}" width="10" height="10"'
            if point.square
            else f'circle cx="{x(point.x):.1f}" cy="{y(point.y):.1f}" r="5.5"'
        )
        out.append(f"<{place} {style}{reach}>{title}</{place.split()[0]}>")
    told = {"points": [{"words": words(point.words), "command": point.command} for point in block.points], "best": block.best}
    legend = key_line([(words(name), colour) for name, colour in block.legend])
    return (
        frame_svg("".join(out), TALL, words(block.label))
        + legend
        + frame.part(
            "chosen",
            frame.embed(told),
            words("A point under the mouse says what it is; a click keeps it."),
            words("copy the command"),
        )
    )


def _advice(block: Advices, words: Words) -> Markup:
    texts = [f"{words(one.what)}: {words(one.gain)}" + (f" ({words(one.price)})" if one.price else "") for one in block.advice]
    return frame.part("reasons", texts, ())


_DRAWERS: dict[type[Block], Callable[[Any, Words], Markup]] = {
    Lines: _lines,
    Table: _table,
    Shares: _shares,
    Curves: _curves,
    Spans: _spans,
    Scatter: _scatter,
    Advices: _advice,
}


def section_markup(title: str, blocks: Sequence[Block], language: str) -> Markup:
    """A section with its blocks."""
    return frame.part("section", translate(title, language), Markup().join(draw_block(block, language) for block in blocks))
