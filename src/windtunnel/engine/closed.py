"""Flows by formula on the links that they take: the typed door of cpp/net/closed/share.h."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats
from windtunnel.base.errors import EngineError
from windtunnel.engine import _core
from windtunnel.engine.graph import Graph, Paths


def closed_flows(graph: Graph, paths: Paths, bytes: npt.ArrayLike, start: npt.ArrayLike) -> Floats:
    """[P] seconds from each flow's `start` until its last byte has passed its links; what packets and propagation add is not in it.

    The longest that one of its links needs for it when all flows through that link share it equally from their starts on (processor
    sharing, one link at a time). So no link carries more than its rate allows, the last flow of a link ends no sooner than it
    could, and equal flows that start together end no sooner than under max-min fairness. Left out: a flow that is held up on one
    link leaves the others to their flows. Raises EngineError for bad columns.
    """
    sizes, begins = np.ascontiguousarray(bytes, np.float64), np.ascontiguousarray(start, np.float64)
    try:
        return _core.closed_flows(graph=graph.columns(), start=paths.start, links=paths.links, bytes=sizes, begin=begins)
    except _core.CoreError as error:
        raise EngineError(str(error)) from None
