"""One step of a schedule."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Pass(IntEnum):
    """Direction of an action."""

    FORWARD = 0
    BACKWARD = 1


class Action(NamedTuple):
    """A pass of one micro batch through one virtual stage of the stage that runs it."""

    direction: Pass
    chunk: int
    micro_batch: int
