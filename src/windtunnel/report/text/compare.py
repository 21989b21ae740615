"""Two predictions side by side: fields that differ, figures, and the breakdown of time."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from windtunnel.draw.listing import listing
from windtunnel.report.comparison import FIGURES, Comparison, say_field, told_apart, verdict
from windtunnel.report.words.parts import label_of
from windtunnel.sheet import numbers as say


def render(comparison: Comparison, width: int) -> RenderableType:
    """The comparison for a terminal of `width` columns."""
    lines: list[RenderableType] = [
        Text(),
        Text(f"A  {say.clean(comparison.a.job.name)}{told_apart(comparison, 0)}", style="bold"),
        Text(f"B  {say.clean(comparison.b.job.name)}{told_apart(comparison, 1)}", style="bold"),
        Text(),
    ]
    lines.append(Text(verdict(comparison)))
    if comparison.fields:
        lines += [Text(), Text("Fields that differ", style="bold underline"), _fields(comparison, 14)]
    lines += [
        Text(),
        Text("Figures", style="bold underline"),
        _figures(comparison),
        Text(),
        Text("Where the time goes", style="bold underline"),
        _parts(comparison),
    ]
    if not (comparison.a.fits and comparison.b.fits):
        short = [name for name, p in (("A", comparison.a), ("B", comparison.b)) if not p.fits]
        lines += [Text(), Text(f"{' and '.join(short)} {'does' if len(short) == 1 else 'do'} not fit in memory.", style="bold red")]
    return Group(*lines)


def _table(*heads: str) -> Table:
    table = listing()
    for i, head in enumerate(heads):
        table.add_column(head, justify="left" if i == 0 else "right", overflow="fold")
    return table


def _fields(comparison: Comparison, most: int) -> RenderableType:
    table = _table("", "A", "B")
    for path, (x, y) in list(comparison.fields.items())[:most]:
        table.add_row(Text(path), Text(say_field(x)), Text(say_field(y)))
    omitted = len(comparison.fields) - most
    return Group(table, Text(f"and {omitted} more", style="dim")) if omitted > 0 else table


def _figures(comparison: Comparison) -> Table:
    table = _table("", "A", "B", "B / A")
    for name, (x, y) in comparison.figures.items():
        figure = FIGURES[name]
        ratio = y / x if x else float("nan")
        better = abs(ratio - 1.0) > 5e-4 and (ratio > 1.0) == figure.more
        worse = abs(ratio - 1.0) > 5e-4 and not better
        table.add_row(
            Text(figure.label),
            Text(figure.write(x)),
            Text(figure.write(y)),
            Text(f"{ratio:.3f}", style="green" if better else "red" if worse else "dim"),
        )
    return table


def _parts(comparison: Comparison) -> Table:
    table = _table("", "A", "B", "difference")
    for key, (x, y) in sorted(comparison.parts.items(), key=lambda kv: -abs(kv[1][1] - kv[1][0])):
        if abs(y - x) < 1e-6 * max(x, y):
            x = y  # rounding, not a difference
        sign = "+" if y >= x else "-"
        style = (
            "dim" if abs(y - x) < 1e-3 * max(comparison.a.step_time_s, comparison.b.step_time_s) else "red" if y > x else "green"
        )
        table.add_row(
            Text(label_of(key)),
            Text(say.seconds(x)),
            Text(say.seconds(y)),
            Text(f"{sign}{say.seconds(abs(y - x))}" if x != y else "=", style=style),
        )
    return table
