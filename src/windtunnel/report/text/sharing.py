"""A step beside other traffic, in the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.draw.listing import listing
from windtunnel.predict.prediction import Sharing
from windtunnel.report.words.sharing import HEADS, LINK_HEADS, link_cells, sharing_note, sharing_sentence, traffic_cells


def sharing(shared: Sharing, rows: int) -> RenderableType:
    """The section of the terminal report."""
    table = listing(*((head, "left" if head in HEADS[:2] else "right") for head in HEADS), wraps=HEADS[:2])
    for one in shared.traffics:
        table.add_row(*map(Text, traffic_cells(one)))
    lines: list[RenderableType] = [Text(sharing_sentence(shared)), Text(), table]
    if shared.links:
        links = listing(
            *((head, "right" if head in LINK_HEADS[1:3] else "left") for head in LINK_HEADS), wraps=(LINK_HEADS[0], LINK_HEADS[3])
        )
        for link in shared.links[: max(3, rows // 2)]:
            links.add_row(*map(Text, link_cells(link)))
        lines += [Text(), links]
    return Group(*lines, Text(), Text(sharing_note(shared), style="dim"))
