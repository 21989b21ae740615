"""The two clocks that the driver uses; tests replace them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class DriverClock:
    """Clocks of a driver."""

    monotonic: Callable[[], float] = time.monotonic
    """Seconds from an arbitrary origin, for waiting."""
    unix: Callable[[], float] = time.time
    """Seconds since 1970, for records."""
