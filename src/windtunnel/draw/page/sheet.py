"""A sheet as one self-contained page, or as a part of another one. Each block of a sheet as markup. A drawing of its own kind has a
painter in `PAINTERS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeGuard

from markupsafe import Markup, escape

from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import (
    LEFT,
    RIGHT,
    WIDE,
    ChartAxis,
    draw_curves,
    draw_plot_block,
    draw_tornado,
    frame_svg,
    ink_on,
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
    Bars,
    Block,
    Cell,
    Column,
    Curves,
    Figure,
    Folded,
    Items,
    Lines,
    Part,
    Picture,
    Plot,
    Scatter,
    Shares,
    Sheet,
    Spans,
    Stack,
    Stacks,
    Stripes,
    Table,
    Tornado,
    say_in,
)
from windtunnel.sheet.sentence import translate

Words = Callable[[str], str]
"""A text in the page's language."""

PAINTERS = {
    "pipeline": "painters:pipeline",
    "replicas": "painters:replicas",
    "fabric": "fabric:fabric",
    "heat": "fabric:heat",
    "lanes": "painters:lanes",
    "memory": "painters:memory",
    "parallel": "painters:parallel",
    "rank_heat": "painters:heat",
    "rank_mesh": "painters:mesh",
}
"""Name of a painter -> module of this folder, and its function that takes a picture and says the words of a language."""
SCRIPTED = {"rank_heat": "fleet.js", "rank_mesh": "fleet.js"}
"""Painters that need a script of their own, which whole pages alone have."""


def draw_block(block: Block, language: str) -> Markup:
    """The markup of one block."""
    return draw(block, partial(translate, language=language))


def draw(block: Block, words: Words) -> Markup:
    """The same in words of a language."""
    if isinstance(block, Picture):
        module, name = PAINTERS[block.painter].split(":")
        painter: Callable[[Picture, Words], Markup] = getattr(import_module(f"windtunnel.draw.page.{module}"), name)
        return painter(block, words)
    for kind, drawer in _DRAWERS.items():
        if isinstance(block, kind):
            return drawer(block, words)
    raise TypeError(f"no drawing of {type(block).__name__}")


def _lines(block: Lines, words: Words) -> Markup:
    if block.mood == "code":
        return Markup("<pre>{}</pre>").format("\n".join(words(line) for line in block.lines))
    if block.listed:
        title = Markup('<p class="strong" style="margin-top:16px">{}</p>').format(words(block.title)) if block.title else ""
        return Markup('{}<ul class="notes">{}</ul>').format(title, _entries([(words(line), "") for line in block.lines]))
    look = Markup(' class="{}"').format({"bad": "warn"}.get(block.mood, block.mood)) if block.mood else ""
    label = Markup('<span class="soft">{}:</span> ').format(words(block.label)) if block.label else ""
    return Markup().join(Markup("<p{}>{}{}</p>").format(look, label, words(line)) for line in block.lines)


def _entries(entries: Sequence[tuple[str, str]]) -> Markup:
    """Entries of a list, each with its class."""
    return Markup().join(
        Markup("<li{}>{}</li>").format(Markup(' class="{}"').format(look) if look else "", text) for text, look in entries
    )


def _items(block: Items, words: Words) -> Markup:
    """The numbered ones, then marked ones, then what stands beside them."""
    numbered = [(words(item.text), "") for item in block.items if not item.mood]
    marked = [(words(item.text), "warn" if item.mood == "bad" else "") for item in block.items if item.mood in ("warn", "bad")]
    soft = [words(item.text) for item in block.items if item.mood == "soft"]
    made = Markup('<ol class="reasons">{}</ol>').format(_entries(numbered)) if numbered else Markup()
    made += Markup('<ul class="notes">{}</ul>').format(_entries(marked)) if marked else Markup()
    return made + Markup().join(Markup('<p class="soft">{}</p>').format(text) for text in soft)


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
    whole = block.groups or block.parts
    total = sum(part.value for part in whole) or 1.0
    shown = [part for part in block.parts if not part.rest]
    shown = shown if block.groups else sorted(shown, key=lambda part: -part.value)
    most = max((part.value for part in shown), default=1.0) or 1.0
    bars = [
        {"label": words(part.name), "value": say.percent(part.value) if block.unit == "%" else say_in(block.unit, part.value),
         "share": "" if block.unit == "%" else say.percent(part.value / total), "width": 100.0 * part.value / most,
         "colour": part.colour, "title": _say_part(part, block.unit, words)}
        for part in shown
    ]  # fmt: skip
    look = Markup(' class="warn"') if block.mood == "bad" else ""
    title = Markup('<p{} style="margin-top:12px">{}</p>').format(look, words(block.title)) if block.title else Markup()
    return title + _stripe(whole, block.unit, words, bool(block.groups)) + frame.part("bars", bars)


def _say_part(part: Part, unit: str, words: Words) -> str:
    return f"{words(part.name)}: {say_in(unit, part.value)}"


def _stripe(parts: Sequence[Part], unit: str, words: Words, named: bool = True) -> Markup:
    """A whole as one bar. `named`: whether names stand inside, where they fit."""
    total = sum(part.value for part in parts) or 1.0
    shown = []
    for part in parts:
        share = 100.0 * part.value / total
        name = f"{words(part.name)} {share:.0f} %"
        inside = name if share > 12 else f"{share:.0f} %" if share > 4 else ""
        title = _say_part(part, unit, words)
        shown.append({"share": part.value / total, "colour": part.colour, "title": title, "inside": inside if named else ""})
    return frame.part("stripe", shown)


def _stripes(block: Stripes, words: Words) -> Markup:
    line = Markup('<div class="soft">{}</div><div style="grid-column:2/5">{}</div>')
    lines = Markup().join(line.format(words(name), _stripe(parts, block.unit, words)) for name, parts in block.rows)
    return Markup('<div class="parts" style="margin-top:10px">{}</div>').format(lines)


def _fold(block: Folded, words: Words) -> Markup:
    inside = Markup().join(draw(one, words) for one in block.blocks)
    return Markup('<details style="margin-top:10px"><summary>{}</summary>{}</details>').format(words(block.title), inside)


def _stack_words(stack: Stack, block: Stacks, words: Words) -> str:
    """What stands behind a bar."""
    size, unit = block.scale
    said = words(stack.said) if stack.said else f"{sum(stack.values) / size:.1f} {unit}"
    return said + (f", {words(stack.lacks)}" if stack.lacks else "")


STACK_TALL, STACK_LEFT = 30.0, 76.0


def _stacks(block: Stacks, words: Words) -> Markup:
    """A stacked bar for each, the limits as lines, and a legend."""
    size, unit = block.scale
    full = max(max(sum(stack.values), stack.limit) for stack in block.stacks) * 1.02 or 1.0
    left = max(STACK_LEFT, 16.0 + 7.0 * max(len(stack.name) + len(block.head) for stack in block.stacks))
    said = [_stack_words(stack, block, words) for stack in block.stacks]
    scale = (WIDE - left - 16.0 - 7.6 * max(map(len, said))) / full
    height = STACK_TALL * len(block.stacks) + 26
    out = []
    for number, stack in enumerate(block.stacks):
        y, x = number * STACK_TALL + 4, left
        out.append(
            f'<text x="{left - 8:.0f}" y="{y + 15:.0f}" text-anchor="end">{escape(words(block.head))} {escape(stack.name)}</text>'
        )
        for layer, value in zip(block.layers, stack.values, strict=True):
            if value <= 0.0:
                continue
            width = value * scale
            out.append(
                f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{STACK_TALL - 8:.0f}" fill="{layer.colour}">'
                f"<title>{escape(words(layer.name))}: {escape(say_in(block.unit, value))}</title></rect>"
            )
            if width > 58:
                style = f'style="fill:{ink_on(layer.colour)}"'
                out.append(f'<text x="{x + width / 2:.1f}" y="{y + 15:.1f}" text-anchor="middle" {style}>{value / size:.1f}</text>')
            x += width
        x = max(x, left + stack.limit * scale)  # beyond the line of the limit, which is drawn last
        colour = ' style="fill:var(--bad);font-weight:600"' if stack.lacks else ""
        out.append(f'<text class="strong" x="{x + 8:.1f}" y="{y + 15:.1f}"{colour}>{escape(said[number])}</text>')
    for limit in sorted({stack.limit for stack in block.stacks} - {0.0}):
        x = left + limit * scale
        out.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 20:.0f}" stroke="var(--bad)" stroke-width="2" '
            f'stroke-dasharray="5 3"/><text x="{x:.1f}" y="{height - 6:.0f}" text-anchor="middle">{escape(words(block.limit))} '
            f"{limit / size:.0f} {unit}</text>"
        )
    used = [layer for number, layer in enumerate(block.layers) if any(stack.values[number] > 0.0 for stack in block.stacks)]
    return frame_svg("".join(out), height, words(block.label)) + key_line([(words(layer.name), layer.colour) for layer in used])


def _bars(block: Bars, words: Words) -> Markup:
    shown = [
        {"label": words(bar.name), "value": say_in(block.unit, bar.value), "share": say.percent(bar.share),
         "width": 100.0 * min(1.0, bar.share), "colour": bar.colour, "title": words(bar.tip or bar.name)}
        for bar in block.bars
    ]  # fmt: skip
    return frame.part("bars", shown)


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
    scale = 1024.0 ** math.floor(math.log(axis.most, 1024)) if axis.unit == "B" and axis.most > 0.0 else 1.0
    return ChartAxis(axis.most, said, axis.least, mark, scale)


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
    Items: _items,
    Stripes: _stripes,
    Stacks: _stacks,
    Folded: _fold,
    Table: _table,
    Shares: _shares,
    Curves: _curves,
    Spans: _spans,
    Scatter: _scatter,
    Advices: _advice,
    Bars: _bars,
    Plot: draw_plot_block,
    Tornado: draw_tornado,
}


def section_markup(title: str, blocks: Sequence[Block], language: str) -> Markup:
    """A section with its blocks."""
    return frame.part(
        "section", translate(title, language), Markup().join(draw_block(block, language) for block in blocks if not block.brief)
    )


def page(sheet: Sheet, command: str = "", language: str = "en", reload: float = 0.0) -> str:
    """The page's text; `command`: what makes it again; `reload`: seconds after which it loads itself again, 0 never."""
    subtitle = [translate(line, language) for line in sheet.subtitle]
    scripts = [SCRIPTED[block.painter] for section in sheet.sections for block in section.blocks if _is_scripted(block)]
    return frame.page(
        translate(sheet.title, language), subtitle, _cards(sheet, language), body(sheet, language), command,
        scripts[0] if scripts else "", reload, language,
    )  # fmt: skip


def _is_scripted(block: Block) -> TypeGuard[Picture]:
    return isinstance(block, Picture) and block.painter in SCRIPTED


def body(sheet: Sheet, language: str = "en") -> Markup:
    """The sections of a sheet that have something to show."""
    return Markup().join(
        section_markup(section.title, section.blocks, language) for section in sheet.sections if section.title and section.blocks
    )


def part_of_page(sheet: Sheet, language: str = "en") -> Markup:
    """Figures and sections, to stand in another page: without drawings that need a script of their own."""
    sections = (
        replace(section, blocks=tuple(block for block in section.blocks if not _is_scripted(block))) for section in sheet.sections
    )
    sheet = replace(sheet, sections=tuple(sections))
    return frame.part("cards", _cards(sheet, language)) + body(sheet, language)


def _cards(sheet: Sheet, language: str) -> list[tuple[str, str, str]]:
    return [_card(figure, language) for figure in sheet.figures]


def _card(figure: Figure, language: str) -> tuple[str, str, str]:
    words = partial(translate, language=language)
    return words(figure.label), figure.within or figure.with_error(words), figure.mood


def write_page(
    sheet: Sheet, path: str | Path, command: str = "", language: str = "en", option: str = "--html", reload: float = 0.0
) -> None:
    """The page into a file; FileError if its name does not end in .html, or it cannot be written."""
    frame.write_page(page(sheet, command, language, reload), path, option)
