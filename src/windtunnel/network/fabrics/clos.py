"""Tiers of switches above servers or hosts, shared by the Clos-like builders."""

from __future__ import annotations

import math

import numpy as np

from windtunnel.base.arrays import Int32s
from windtunnel.engine.graph import NodeKind
from windtunnel.network.fabrics.columns import Columns, numbered_names


def up_links(down: float, link: float, oversubscription: float) -> tuple[int, float]:
    """(number of up-links, rate of each) above `down` B/s: links of at most `link` B/s that add up exactly."""
    total = down / oversubscription
    links = max(1, math.ceil(total / link - 1e-9))
    return links, total / links


def leaves(columns: Columns, ports: Int32s, servers: int, rail: bool, rate: float, latency: float, name: str = "leaf") -> Int32s:
    """Leaf switches for `ports` [S, n], `servers` of the S below one set; [groups, switches of a set].

    `rail`: port j of every server goes to switch j of its set; else one switch takes all ports of its servers.
    """
    groups = -(-len(ports) // servers)
    width = ports.shape[1] if rail else 1
    names = numbered_names(name, groups, width) if rail else numbered_names(name, groups)
    switches = columns.nodes(NodeKind.SWITCH, names).reshape(groups, width)
    home = switches[np.arange(len(ports)) // servers]
    columns.cables(ports, home if rail else np.broadcast_to(home, ports.shape), rate, latency)
    return switches


def spines(
    columns: Columns, below: Int32s, count: int, rate: float, latency: float, parallel: int = 1, name: str = "spine"
) -> Int32s:
    """`count` switches over each row of `below` [pods, n], each joined to all of its row by `parallel` cables; [pods, count]."""
    pods = len(below)
    switches = columns.nodes(
        NodeKind.SWITCH, numbered_names(name, pods, count) if pods > 1 else numbered_names(name, count)
    ).reshape(pods, count)
    a = np.broadcast_to(below[:, :, None, None], (pods, below.shape[1], count, parallel))
    columns.cables(a, switches[:, None, :, None], rate, latency)
    return switches


def cores(columns: Columns, pods: Int32s, count: int, rate: float, latency: float, name: str = "core") -> Int32s:
    """Over `pods` [pods, spines]: for each spine position `count` switches that join that spine of every pod; [spines, count]."""
    width = pods.shape[1]
    switches = columns.nodes(NodeKind.SWITCH, numbered_names(name, width, count)).reshape(width, count)
    columns.cables(pods[:, :, None], switches[None, :, :], rate, latency)
    return switches
