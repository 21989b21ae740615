"""A sheet in the terminal: a headline, sentences behind their labels or under titles, tables, bars.

Stacked bars in the terminal: their values in a table, and letters in colour against the limit.

The one look of tables in the terminal: no lines, dim heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from windtunnel.base.dataclasses import dataclass
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import (
    Advices,
    Block,
    Cell,
    Figure,
    Items,
    Lines,
    Part,
    Plot,
    Section,
    Shares,
    Sheet,
    Stack,
    Stacks,
    Table,
    say_in,
)
from windtunnel.sheet.sentence import Sentence, translate


def listing(*columns: tuple[str, JustifyMethod], wraps: Collection[str] = (), gap: int = 2, indent: int = 0) -> rich_table.Table:
    """An empty table with `columns` (head, justification), `gap` blanks between them and `indent` before them. Only columns
    named in `wraps` break lines, and words that are longer than one."""
    table = rich_table.Table(
        box=None, header_style="dim", padding=(0, gap, 0, indent), pad_edge=bool(indent), collapse_padding=True
    )
    for head, justify in columns:
        broken = head in wraps
        table.add_column(head, justify=justify, no_wrap=not broken, overflow="fold" if broken else "ellipsis")
    return table


LABEL = 10
"""Columns of a label."""
BAR = 24
"""Columns of a bar in a table."""
LEAST = 20
"""Columns that a text at the end of a row has at least, or it stands below the row."""
WIDE = 110
"""Columns from which on a window is not narrow."""
EIGHTHS = "▏▎▍▌▋▊▉█"
_STYLES = {"warn": "yellow", "bad": "red", "soft": "dim"}
_CARD_STYLES = {"good": "bold green", "warn": "bold yellow", "bad": "bold red", "soft": "dim"}

Words = Callable[[str], str]
"""A text in the reader's language."""


def print_sheet(sheet: Sheet, console: Console | None = None, language: str = "en") -> None:
    """Print what a sheet shows in the terminal."""
    out, words = console or Console(), partial(translate, language=language)
    if sheet.cards:
        out.print(Text())
    if sheet.headline:
        out.print(Text(words(sheet.headline), style="bold"))
    for number, section in enumerate(sheet.sections):
        _print_section(section, out, sheet.titled, words)
        if sheet.cards and not number:
            out.print(Text(), _cards(sheet.figures, out.width, words))


def _print_section(section: Section, out: Console, titled: bool, words: Words) -> None:
    shown = [block for block in section.blocks if not block.detail]
    if not shown:
        return
    room = out.width
    if titled and section.title:
        out.print(Text())
        out.print(Text(words(section.title), style="bold underline"))
        room -= 2
    for number, block in enumerate(shown):
        if isinstance(block, Lines) and block.mood == "code":
            out.print(Text("\n".join(words(line) for line in block.lines)), soft_wrap=True)
            continue
        if titled and section.title and number and isinstance(block, Table):
            out.print(Text())
        for part in _block_parts(block, room, "" if titled else "  ", words):
            out.print(Padding(part, (0, 0, 0, 2)) if titled and section.title else part)


def _block_parts(block: Block, room: int, indent: str, words: Words) -> list[RenderableType]:
    """What a block is in `room` columns. `indent`: before each line."""
    if isinstance(block, Lines):
        label = f"{words(block.label):<{LABEL - 1}} " if block.label else ""
        mark, style = "- " if block.listed else "", _STYLES.get(block.mood, "")
        return [Text(f"{indent}{label}{mark}{words(line)}", style=style) for line in block.lines]
    if isinstance(block, Items):
        return [_items(block, words)]
    if isinstance(block, Table):
        return _table_parts(block, room, len(indent), words)
    if isinstance(block, Stacks):
        return stacks_text(block, room, len(indent), words)
    if isinstance(block, Shares):
        return _grouped_shares(block, room, words) if block.groups else _shares(block, indent, words)
    if isinstance(block, Plot) and block.sketch:
        return list(_sketch(block))
    if isinstance(block, Advices):
        texts = [f"{words(one.what)}: {words(one.gain)}" + (f" ({words(one.price)})" if one.price else "") for one in block.advice]
        return [Text(f"{indent}{number}. {text}") for number, text in enumerate(texts, start=1)]
    return []


def _items(block: Items, words: Words) -> RichTable:
    """Numbers or marks before the sentences."""
    table, number = RichTable.grid(padding=(0, 1)), 0
    for item in block.items:
        if item.detail:
            continue
        number += not item.mood
        mark = {"": f"{number}.", "soft": ""}.get(item.mood, "!")
        look = "bold red" if item.mood == "bad" else "bold yellow"
        table.add_row(
            Text(mark, style=look), Text(words(item.text), style="" if item.mood == "warn" else _STYLES.get(item.mood, ""))
        )
    return table


_BLOCKS = " ▁▂▃▄▅▆▇█"


def _sketch(block: Plot, rows: int = 5) -> list[Text]:
    """The first curve as blocks, with a sign below the first mark; its points are evenly spread."""
    points = block.curves[0].points
    low, high = min(y for _, y in points), max(y for _, y in points)
    span = (high - low) or 1.0
    heights = [round((y - low) / span * (rows * 8 - 1)) + 1 for _, y in points]
    lines = []
    for row in range(rows - 1, -1, -1):
        label = say.percent(high) if row == rows - 1 else say.percent(low) if row == 0 else ""
        lines.append(Text(f"{label:>8} " + "".join(_BLOCKS[min(8, max(0, height - 8 * row))] for height in heights)))
    here = min(range(len(points)), key=lambda place: abs(math.log(points[place][0] / block.marks[0].x)))
    left, right = say_in(block.across.unit, points[0][0]), say_in(block.across.unit, points[-1][0])
    lines.append(Text(" " * (9 + here) + "^", style="bold cyan"))
    return [*lines, Text(" " * 9 + left + right.rjust(len(points) - len(left)), style="dim")]


def _cards(figures: Sequence[Figure], room: int, words: Words) -> RichTable:
    """Names and values in as many pairs of columns as there is room for."""
    told = [(words(one.label), one.with_error(words), _CARD_STYLES.get(one.mood, "")) for one in figures]
    pairs = next((count for count in (3, 2) if _cards_width(told, count) <= room), 1)
    table = RichTable.grid(padding=(0, 3, 0, 0))
    for _ in range(pairs):
        table.add_column(style="dim", no_wrap=True)
        table.add_column(no_wrap=pairs > 1)
    down = -(-len(told) // pairs)
    for row in range(down):
        table.add_row(*(part for name, value, look in told[row::down] for part in (Text(name), Text(value, style=look))))
    return table


def _cards_width(told: Sequence[tuple[str, str, str]], pairs: int) -> int:
    down = -(-len(told) // pairs)
    columns = [told[begin : begin + down] for begin in range(0, len(told), down)]
    return sum(max(len(card[0]) for card in column) + max(len(card[1]) for card in column) + 6 for column in columns)


def _shares(block: Shares, indent: str, words: Words) -> list[RenderableType]:
    total = sum(part.value for part in block.parts) or 1.0
    rows: list[RenderableType] = []
    for part in block.parts:
        share = part.value / total
        row = Text(f"{indent}{words(part.name):<24} {say_in(block.unit, part.value):>12} {say.percent(share):>8}  ")
        rows.append(row.append("█" * max(1, round(BAR * share)), style=part.colour if part.colour.startswith("#") else ""))
    return rows


def _grouped_shares(block: Shares, room: int, words: Words) -> list[RenderableType]:
    """A stripe of the groups, then a bar for each part, the longest over all of the room that is left."""
    total = sum(part.value for part in block.groups) or 1.0
    table = RichTable.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    table.add_column()
    longest = max((part.value for part in block.parts), default=1.0) or 1.0
    for part in block.parts:
        drawn = bar(part.value / longest, max(10, room - 56), part.colour)
        table.add_row(Text(words(part.name)), say_in(block.unit, part.value), say.percent(part.value / total), drawn)
    return [stripe([part._replace(name=words(part.name)) for part in block.groups], total, max(20, room - 2)), Text(), table]


def bar(fraction: float, room: int, colour: str) -> Text:
    """A horizontal bar in eighths of a column."""
    eighths = round(max(0.0, min(1.0, fraction)) * room * 8)
    full, rest = divmod(eighths, 8)
    return Text("█" * full + (EIGHTHS[rest - 1] if rest else "") or EIGHTHS[0], style=colour)


def stripe(parts: Iterable[Part], total: float, width: int) -> Text:
    """One line `width` columns long, cut in proportion, names written inside where they fit."""
    line = Text()
    done, begin = 0.0, 0
    for part in parts:
        done += part.value
        end = round(width * done / total) if total > 0 else 0
        room = max(0, min(end, width) - begin)
        share = f"{100 * part.value / total:.0f}%" if total > 0 else ""
        label = next((text for text in (f" {part.name} {share}", f" {share}") if len(text) < room), "")
        line.append(label.ljust(max(0, room - 1)), style=f"white on {part.colour}")
        line.append("|" if room else "", style=f"black on {part.colour}")  # shows where a part ends also without colour
        begin += room
    return line


def _table_parts(table: Table, room: int, indent: int, words: Words) -> list[RenderableType]:
    parts: list[RenderableType] = [_rows_text(table, room, indent, words)]
    if table.most and table.rest and (left := len(table.rows) - table.most) > 0:
        parts.append(Text(" " * indent + words(Sentence(table.rest, count=left)), style="dim"))
    return parts


@dataclass(frozen=True)
class _Hanging:
    """A table whose rows are one line each, and below each row its text, `indent` to the right."""

    table: RichTable
    below: Sequence[Text]
    indent: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, line in enumerate(console.render_lines(self.table, options, pad=False)):
            yield from line
            yield Segment.line()
            if number:
                yield Padding(self.below[number - 1], (0, 0, 0, self.indent))


def _rows_text(table: Table, room: int, indent: int, words: Words) -> RenderableType:
    """Rows and heads. A last column of long texts for which less than LEAST is left stands below each row."""
    narrow = room < WIDE - 2 + indent
    left_out = ("terminal", "narrow") if narrow else ("terminal",)
    kept = [number for number, column in enumerate(table.columns) if column.left_out not in left_out]
    columns = [table.columns[number] for number in kept]
    names = [words(column.short if narrow and column.short else column.head) for column in columns]
    heads: list[tuple[str, JustifyMethod]] = [
        (name, "right" if column.number else "left") for name, column in zip(names, columns, strict=True)
    ]
    wraps = [name for name, column in zip(names, columns, strict=True) if column.wraps]
    gap = 1 if narrow and table.tight else 2
    shown = [[_cell_text(row[number], words) for number in kept] for row in table.rows[: table.most or None]]
    below = list[Text]()
    if wraps == names[-1:] and shown:
        widths = [max(cell.cell_len for cell in cells) for cells in zip(*shown, strict=True)]
        left = room - indent - sum(gap + max(width, cell_len(name)) for width, name in zip(widths[:-1], names[:-1], strict=True))
        if left < min(LEAST, widths[-1]):
            below, heads = [row.pop() for row in shown], heads[:-1]
    made = listing(*heads, wraps=wraps, gap=gap, indent=indent)
    for count, cells in enumerate(shown, start=1):
        made.add_row(*cells, style="bold" if table.bold_last and count == len(table.rows) else "")
    return _Hanging(made, below, indent + 4) if below else made


def _cell_text(cell: Cell, words: Words) -> Text:
    if cell.bar is None:
        return Text(words(cell.text))
    begin, end = (round(BAR * min(max(share, 0.0), 1.0)) for share in cell.bar)
    return Text(" " * min(begin, BAR - 1) + "█" * max(1, end - begin))


GAP = 2
"""Columns between two cells of a table."""
LACKS = 18
"""Columns behind a bar for what is over its limit."""


def stacks_text(block: Stacks, room: int, indent: int, words: Callable[[str], str]) -> list[RenderableType]:
    """One row a bar; layers that are zero everywhere are left out, and all of them where the window is narrow."""
    size, unit = block.scale
    layers = [number for number in range(len(block.layers)) if any(stack.values[number] >= 0.005 * size for stack in block.stacks)]
    heads = {number: words(block.layers[number].short or block.layers[number].name) for number in layers}
    note = LACKS if any(stack.lacks for stack in block.stacks) else 0
    columns = sum(
        GAP + max(len(f"{max(stack.values[number] for stack in block.stacks) / size:.2f}"), len(head))
        for number, head in heads.items()
    )
    narrow = room - indent - (GAP if indent else 0) - note - sum(GAP + len(text) for text in (block.head, "1000.0", "100"))
    wide = narrow - columns >= 30
    long = max(10, narrow - columns if wide else narrow)
    table = listing((words(block.head), "right"), indent=indent)
    for number in layers if wide else ():
        table.add_column(heads[number], justify="right", style=block.layers[number].colour, no_wrap=True)
    table.add_column(words("total"), justify="right", style="bold", no_wrap=True)
    table.add_column(words("of"), justify="right", no_wrap=True)
    table.add_column(unit, no_wrap=True)
    full = max(1.0, max(sum(stack.values) / (stack.limit or 1.0) for stack in block.stacks))
    shown = _some(block.stacks, 12 if wide else 8)
    for stack in shown:
        cells = [Text(stack.name), *(Text(f"{stack.values[number] / size:.2f}") for number in layers if wide)]
        cells.append(Text(f"{sum(stack.values) / size:.1f}", style="bold red" if stack.lacks else ""))
        cells += [Text(f"{stack.limit / size:.0f}"), _letters(stack, block, layers, long, full, words)]
        table.add_row(*cells)
    lines: list[RenderableType] = [table]
    if more := len(block.stacks) - len(shown):
        left = Sentence("{count} more stages between these", count=more)
        lines.append(Text(" " * indent + words(left), style="dim"))
    if not wide:
        names = " ".join(f"{block.layers[number].letter}={words(block.layers[number].name)}" for number in layers)
        lines.append(Padding(Text(names, style="dim"), (0, 0, 0, indent), expand=False))
    return lines


def _letters(stack: Stack, block: Stacks, layers: Sequence[int], room: int, full: float, words: Callable[[str], str]) -> Text:
    """Layers as letters in colour, `|` where the limit is; the whole bar is `full` limits long."""
    line = Text()
    begin, done = 0, 0.0
    limit = round(room / full)
    for number in layers:
        done += stack.values[number]
        end = min(room, round(room * done / (stack.limit * full)))
        line.append(block.layers[number].letter * (end - begin), style=block.layers[number].colour)
        begin = max(begin, end)
    line.append("·" * max(0, limit - begin), style="dim")
    cells = line[:limit]
    cells.append("|", style="bold")
    cells.append_text(line[limit:])
    if stack.lacks:
        cells.append(f" {words(stack.lacks)}", style="bold red")
    return cells


def _some(stacks: Sequence[Stack], most: int) -> list[Stack]:
    """The first, the last and the fullest where there are too many to list."""
    if len(stacks) <= most:
        return list(stacks)
    fullest = max(stacks, key=lambda stack: sum(stack.values) - stack.limit)
    kept = {stack.name for stack in (*stacks[: most - 2], fullest, stacks[-1])}
    return [stack for stack in stacks if stack.name in kept]
