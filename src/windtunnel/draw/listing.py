"""The one look of tables in the terminal: no lines, dim heads."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import JustifyMethod
from rich.table import Table


def listing(*columns: tuple[str, JustifyMethod], wraps: Collection[str] = (), gap: int = 2, indent: int = 0) -> Table:
    """An empty table with `columns` (head, justification), `gap` blanks between them and `indent` before them. Only columns
    named in `wraps` break lines, and words that are longer than one."""
    table = Table(box=None, header_style="dim", padding=(0, gap, 0, indent), pad_edge=bool(indent), collapse_padding=True)
    for head, justify in columns:
        broken = head in wraps
        table.add_column(head, justify=justify, no_wrap=not broken, overflow="fold" if broken else "ellipsis")
    return table
