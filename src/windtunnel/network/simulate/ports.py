"""NIC and port by which each connection leaves and arrives.

A library does not choose them by hash. NCCL opens queue pairs on each NIC that a GPU drives. A NIC with two ports (dual ToR, dual
plane) is two devices that NCCL merges into one: a queue pair on each port, from port p to port p, with data split evenly over them
(`src/transport/net_ib`: virtual devices, NCCL_IB_MERGE_NICS). So a GPU's 400 Gb/s over two ports of 200 is 400 Gb/s for one
connection. Where planes are apart, and below one set of leaves, it arrives at the port that it left by. Where all leaves share the
spines, both leaves of a NIC announce it, and a spine hashes among them: several connections may meet on one port while the other is
idle (Qian et al., "Alibaba HPN", SIGCOMM 2024, section 6: why its planes are apart).

The router hashes a flow to one of equally near NICs and of equal links, so a connection's key is changed until the hash
gives the intended NIC and ports.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.engine.graph import Graph, NodeKind, Paths
from windtunnel.engine.routes import RouteOptions, route

_TRIES = 96
"""Maximum number of keys tried. With two NICs of two ports one in eight is right, so 96 fail for three of a million connections."""


class Exits(NamedTuple):
    """For each path: the index of the GPU's NIC that it leaves by, the port of that NIC, and the port of arrival; -1: none."""

    nic: Int32s
    leaves: Int32s
    arrives: Int32s


def exits(graph: Graph, paths: Paths) -> Exits:
    """NIC and ports of each path; ports of a NIC are numbered by its links that are up."""
    kind, site = graph.node_kind, graph.node_site
    a, b = graph.link_from, graph.link_to
    outside = (site[a] != site[b]) & (graph.link_up > 0)
    out = _ordinals(np.where(outside & (kind[a] == NodeKind.NIC), a, -1))
    back = _ordinals(np.where(outside & (kind[b] == NodeKind.NIC), b, -1))
    index = np.full(graph.nodes, -1, dtype=np.int32)
    owner = np.repeat(np.arange(len(graph.nic_start) - 1), np.diff(graph.nic_start))
    index[graph.nics] = np.arange(len(graph.nics)) - graph.nic_start[owner]
    path = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    result = Exits(*(np.full(len(paths), -1, dtype=np.int32) for _ in range(3)))
    first = np.nonzero(out[paths.links] >= 0)[0][::-1]  # backwards, so that the first of a path is written last
    result.nic[path[first]] = index[a[paths.links[first]]]
    result.leaves[path[first]] = out[paths.links[first]]
    last = np.nonzero(back[paths.links] >= 0)[0]
    result.arrives[path[last]] = back[paths.links[last]]
    return result


def _ordinals(node: npt.NDArray[np.integer]) -> Int32s:
    """Number of each link among those of its node; -1 if `node` is -1."""
    chosen = np.nonzero(node >= 0)[0]
    order = chosen[np.argsort(node[chosen], kind="stable")]
    _, first, count = np.unique(node[order], return_index=True, return_counts=True)
    ordinal = np.full(len(node), -1, dtype=np.int32)
    ordinal[order] = np.arange(len(order)) - np.repeat(first, count)
    return ordinal


def route_by_port(
    graph: Graph,
    src: Int32s,
    dst: Int32s,
    key: npt.NDArray[np.uint64],
    options: RouteOptions,
    part: npt.NDArray[np.integer],
    nics: int = 1,
    ports: int = 1,
    arrives: bool = True,
) -> Paths:
    """Paths of connections. Connection number `part` [F] of a message uses NIC (part modulo `nics`) of the GPU, and port
    (part / nics) modulo `ports`, on both sides if `arrives`: without, the last switch before the ports' leaves chooses among them
    by hash. Raises as `route`."""
    if nics * ports == 1:
        return route(graph, src, dst, key, options)
    keys = key.copy()
    step = np.uint64(int(keys.max(initial=0)) + 1)
    nic, port = part % nics, part // nics % ports
    open_: Int64s = np.arange(len(src))
    for _ in range(_TRIES):
        at = exits(graph, route(graph, src[open_], dst[open_], keys[open_], options))
        right = (at.nic < 0) | (at.nic % nics == nic[open_])
        for which in (at.leaves, at.arrives) if arrives else (at.leaves,):
            right &= (which < 0) | (which % ports == port[open_])
        open_ = open_[~right]
        if not len(open_):
            break
        keys[open_] += step
    return route(graph, src, dst, keys, options)
