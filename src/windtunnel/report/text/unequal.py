"""Unequal ranks: which rank waits for which, as a table and as a map of all replicas and stages."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.draw.listing import listing
from windtunnel.predict.prediction import UnequalResult
from windtunnel.report.words.unequal import HEADS, class_cells, classes_to_list, unequal_sentence


def unequal(result: UnequalResult, step: float) -> RenderableType:
    """The section of the terminal report."""
    table = listing(*((head, "left" if head in (HEADS[0], HEADS[-1]) else "right") for head in HEADS), wraps=HEADS[-1:])
    shown = classes_to_list(result)
    for one in shown:
        table.add_row(*class_cells(one, result))
    lines: list[RenderableType] = [Text(unequal_sentence(result, step)), Text(), table]
    if len(result.classes) > len(shown):
        lines.append(Text(f"{len(result.classes) - len(shown)} more groups of replicas", style="dim"))
    return Group(*lines)
