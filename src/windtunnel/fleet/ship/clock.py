"""The node's clock, which tests of clock alignment can deliberately misadjust."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from windtunnel.base.errors import SpecError

VARIABLE = "WINDTUNNEL_FLEET_CLOCK"


def node_clock() -> Callable[[], int]:
    """Unix time in ns. `WINDTUNNEL_FLEET_CLOCK=offset_ns,ppm` makes it wrong by that much; the drift counts from the host's start.

    All processes of a host with the same setting agree. SpecError if the setting is not two numbers.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return time.time_ns
    try:
        offset, ppm = (float(part) for part in text.split(","))
    except ValueError as error:
        raise SpecError(VARIABLE, text, "offset_ns,ppm", "For example 500000000,100.") from error

    def wrong() -> int:
        return time.time_ns() + int(offset) + int(time.monotonic_ns() * (ppm * 1e-6))

    return wrong
