"""The network part of a page that is no sheet yet."""

from __future__ import annotations

from markupsafe import Markup

from windtunnel.draw.page.blocks import draw_block
from windtunnel.network.simulate.traffic import Traffic
from windtunnel.network.traffic_sheet import traffic_blocks


def network_part(traffic: Traffic) -> Markup:
    """The drawing with its slider, load and queues over time, load by level, hot links, calls slowed by others."""
    return Markup().join(draw_block(block, "en") for block in traffic_blocks(traffic) if not block.brief)
