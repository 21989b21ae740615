"""Flows by formula on their links: the typed interface of cpp/net/closed/share.h."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats
from windtunnel.base.errors import EngineError
from windtunnel.engine import _core
from windtunnel.engine.graph import Graph, Paths


def closed_flows(graph: Graph, paths: Paths, bytes: npt.ArrayLike, start: npt.ArrayLike) -> Floats:
    """[P] seconds from each flow's `start` until its last byte has passed its links, without packetisation and propagation.

    The longest time over its links, if all flows through a link share it equally from their starts on (processor sharing, one link
    at a time). So no link exceeds its rate, the last flow of a link ends no sooner than possible, and equal flows that start
    together end no sooner than under max-min fairness. Ignored: a flow limited by one link leaves bandwidth to others on its other
    links. Raises EngineError for bad columns.
    """
    sizes, begins = np.ascontiguousarray(bytes, np.float64), np.ascontiguousarray(start, np.float64)
    try:
        return _core.closed_flows(graph=graph.columns(), start=paths.start, links=paths.links, bytes=sizes, begin=begins)
    except _core.CoreError as error:
        raise EngineError(str(error)) from None
