"""Routes of flows: the typed interface of cpp/fabric/router.h.

Between servers a flow takes a shortest path, the choice among equal ones by a hash of (key, source, destination) that is salted per
switch; inside a server the shortest path by NVLink before PCIe before CPU. Flow and packet engines run on the same paths.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats, Int32s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import EngineError
from windtunnel.engine import _core
from windtunnel.engine.graph import Graph, Paths


class Policy(IntEnum):
    """How one of several equal next links is chosen for a flow; see cpp/fabric/router.h."""

    ECMP = 0
    ECMP_POLARIZED = 1
    DIMENSION_ORDER = 2
    FIRST = 3


class NicChoice(IntEnum):
    """Which NICs a flow between servers uses; see cpp/fabric/router.h."""

    NEAREST = 0
    RAIL = 1
    PXN = 2


@dataclass(frozen=True)
class RouteOptions:
    """`seed` salts every hash: another seed gives other collisions."""

    policy: Policy = Policy.ECMP
    nic: NicChoice = NicChoice.NEAREST
    seed: int = 1


def route(
    graph: Graph,
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    key: npt.ArrayLike | None = None,
    options: RouteOptions | None = None,
) -> Paths:
    """Links from endpoint `src` [F] to endpoint `dst` [F], in order; empty where they are the same.

    `key` [F]: what distinguishes flows of the same two endpoints (ports of a queue pair); left out, the flow's number.
    Raises EngineError for an endpoint that does not exist, a graph that is wrong, and where nothing that is up connects the two.
    """
    flows = _flows(graph, src, dst, key, options)
    if len(flows["src"]) < MANY:
        return _find_paths(graph, flows)
    digest = _digest(flows)
    if (known := graph.routes.get(digest)) is not None:
        return known
    paths = _find_paths(graph, flows)
    if len(graph.routes) < MOST_KNOWN:
        for column in (paths.start, paths.links):
            column.setflags(write=False)
        graph.routes[digest] = paths
    return paths


def _find_paths(graph: Graph, flows: _Flows) -> Paths:
    try:
        return Paths(*_core.route(graph=graph.columns(), **flows))
    except _core.CoreError as error:
        raise EngineError(str(error)) from None


MANY, MOST_KNOWN = 1024, 64
"""Flows from which on a graph keeps their routes, since calls of a step differ in bytes more often than in flows; and how many."""


def _digest(flows: _Flows) -> bytes:
    hashed = blake2b(repr((flows["policy"], flows["nic"], flows["seed"])).encode(), digest_size=16)
    for column in (flows["src"], flows["dst"], flows["key"]):
        hashed.update(np.ascontiguousarray(column).data)
    return hashed.digest()


def spread(
    graph: Graph,
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    weight: npt.ArrayLike,
    key: npt.ArrayLike | None = None,
    options: RouteOptions | None = None,
) -> Floats:
    """Load of each link [L] if every switch split each flow evenly over all of its equal next links.

    `weight` [F]: 1 counts flows, bytes count bytes. This is the reference for hash collisions; NICs and paths inside
    servers are those of `route`. If a NIC is connected to several switches, its flows arrive through them like all flows to that
    set.
    Raises EngineError as `route` does.
    """
    flows = _flows(graph, src, dst, key, options)
    try:
        return _core.spread(graph=graph.columns(), weight=np.ascontiguousarray(weight, np.float64), **flows)
    except _core.CoreError as error:
        raise EngineError(str(error)) from None


class _Flows(TypedDict):
    src: Int32s
    dst: Int32s
    key: npt.NDArray[np.uint64]
    policy: int
    nic: int
    seed: int


def _flows(graph: Graph, src: npt.ArrayLike, dst: npt.ArrayLike, key: npt.ArrayLike | None, options: RouteOptions | None) -> _Flows:
    chosen = options or RouteOptions()
    sources, destinations = endpoints(graph, src), endpoints(graph, dst)
    keys = np.arange(len(sources), dtype=np.uint64) if key is None else np.ascontiguousarray(key).astype(np.uint64, copy=False)
    if not 0 <= chosen.seed < 2**64:
        raise EngineError(f"a route's seed is a number from 0 to 2**64 - 1, not {chosen.seed}")
    return {
        "src": sources, "dst": destinations, "key": keys,
        "policy": int(chosen.policy), "nic": int(chosen.nic), "seed": chosen.seed,
    }  # fmt: skip


def check(graph: Graph) -> None:
    """Raises EngineError that names the first column or row of the graph that is wrong."""
    try:
        _core.check_graph(graph=graph.columns())
    except _core.CoreError as error:
        raise EngineError(str(error)) from None


def endpoints(graph: Graph, numbers: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Numbers of endpoints as the core takes them; EngineError for one that the graph does not have."""
    given = np.asarray(numbers)
    if given.ndim != 1 or not (np.issubdtype(given.dtype, np.integer) or given.size == 0):
        raise EngineError(f"endpoints are a one-dimensional array of whole numbers, not {given.dtype}{list(given.shape)}")
    wrong = (given < 0) | (given >= graph.endpoints)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise EngineError(f"flow {row} names endpoint {int(given[row])}; there are {graph.endpoints} (0 to {graph.endpoints - 1})")
    return np.ascontiguousarray(given, np.int32)
