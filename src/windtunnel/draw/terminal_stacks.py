"""Stacked bars in the terminal: their values in a table, and letters in colour against the limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from windtunnel.draw.listing import listing
from windtunnel.sheet.blocks import Stack, Stacks
from windtunnel.sheet.sentence import Sentence

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
