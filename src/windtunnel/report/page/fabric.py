"""The fabric on a page that is no sheet yet."""

from __future__ import annotations

from windtunnel.draw.page.blocks import draw_block
from windtunnel.network.simulate.traffic import Traffic
from windtunnel.network.traffic_sheet import fabric_picture
from windtunnel.sheet.colours import LOADS, load_step


def colour(load: float) -> str:
    """Of a link that is used `load` (0..1) of the time."""
    return LOADS[load_step(load)][1]


def fabric(traffic: Traffic) -> str:
    """The fabric and its load, with a key; empty where there is nothing to draw."""
    return str(draw_block(fabric_picture(traffic), "en")) if traffic.boxes else ""
