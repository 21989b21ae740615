"""A step beside other traffic, on the page."""

from __future__ import annotations

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.frame import Cell
from windtunnel.predict.prediction import Sharing
from windtunnel.report.page.fabric import fabric
from windtunnel.report.words.sharing import HEADS, LINK_HEADS, link_cells, sharing_note, sharing_sentence, traffic_cells


def sharing(shared: Sharing) -> Markup:
    """What the traffics do to each other, the links that they share, and the fabric under all of them."""
    numbers = [(one.alone_s, one.mean_s, one.worst_s, one.slowdown) for one in shared.traffics]
    rows: list[list[Cell]] = [
        list(zip(traffic_cells(one), (None, None, *of), strict=True)) for one, of in zip(shared.traffics, numbers, strict=True)
    ]
    links: list[list[Cell]] = [
        list(zip(link_cells(link), (None, link.rate, link.load, None), strict=True)) for link in shared.links
    ]
    parts = [
        Markup("<p>{}</p>").format(sharing_sentence(shared)),
        frame.part("table", "sharing", [(head, head not in HEADS[:2]) for head in HEADS], rows),
        Markup(fabric(shared.traffic)),
    ]
    if links:
        parts.append(frame.part("table", "shared-links", [(head, head in LINK_HEADS[1:3]) for head in LINK_HEADS], links))
    return Markup().join([*parts, Markup('<p class="soft">{}</p>').format(sharing_note(shared))])
