"""The two clocks of a driver, so that a test can give it others."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class DriverClock:
    """`monotonic`: seconds since any moment, for waiting; `unix`: seconds since 1970, for what is written down."""

    monotonic: Callable[[], float] = time.monotonic
    unix: Callable[[], float] = time.time
