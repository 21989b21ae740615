"""A call of several equal groups as traffic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from windtunnel.engine.graph import Paths
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.routes import RouteOptions


@dataclass(frozen=True)
class AxisCall:
    """A call of several equal groups: K lanes in all."""

    lanes: Lanes
    options: RouteOptions
    way: npt.NDArray[np.uint64]
    """[K] keys of the lanes' connections."""
    paths: Paths
    seconds: float
    """The closed form's for one group without other traffic."""
    latency: float
    """The part that moves no bytes."""
    wait: float
    """The part of `latency` before the first byte."""
    extra: float
    """Seconds of links between switches, which the closed form's hops do not contain."""
    spine: bool = False
    """Whether they do contain them."""
