"""Fitted constants of collectives, a few per GPU generation and per kind of fabric: `catalog/calibration/collectives.toml`.

`calibrate.collectives` repeats the fit. An entry without `fitted_on` makes estimates "transferred". Triples are (LL, LL128,
Simple).

The fitted constants of collectives with the factors that a cluster's own measurements put on them.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.files import CATALOG
from windtunnel.spec.machine import Achieved

FILE = CATALOG / "calibration" / "collectives.toml"
Triple = tuple[float, float, float]
Constants = TypeVar("Constants")


@dataclass(frozen=True)
class NodeConstants:
    """Inside a scale-up domain. Seconds; fractions of the link's data-sheet rate."""

    launch: float
    """Seconds of a launch."""
    hop: Triple
    """Seconds of a ring's hop."""
    tree_hop: Triple
    """Seconds of a tree's hop."""
    ring: Triple
    """Fraction of the ring's bus rate."""
    tree: Triple
    """Fraction of the tree's algorithm rate."""
    fill: float
    """Slices that fill a ring."""
    nvls: float
    """Fraction of the link that a switch reduction reaches, before the chunk's overhead."""
    nvls_hop: float
    """Seconds of a switch reduction's hop."""
    nvls_overhead: float
    """Bytes of overhead of a chunk of a switch reduction."""
    nvls_fill: float
    """Loops that fill a switch reduction."""
    nvls_tree: float
    """Factor on `nvls` where the sums go on to other nodes."""
    p2p: float
    """Fraction of the link that messages reach in one direction alone."""
    p2p_launch: float
    """Seconds of a message's launch."""
    relative_error: float
    """Error of the estimates."""
    fitted_on: tuple[str, ...]
    """Families of measurements that the constants were fitted on."""
    channel: float = math.inf
    """B/s that one channel copies each way at the same time; infinite: never the limit."""
    exchange: float = 0.0
    """Fraction of the link that messages reach in both directions at the same time; 0: that of one."""
    nvls_head: float = 0.0
    """Seconds of each rank of a domain beyond eight where a switch reduction goes on to other domains."""


@dataclass(frozen=True)
class SendConstants:
    """What a library's messages inside a domain cost on every GPU."""

    simple: float
    """Seconds of a message by Simple beyond one by LL."""
    peer: float
    """Seconds of each peer."""
    fill: float
    """Share of a channel's first step that an all-to-all waits for once more: the receiver copies it out of the buffer."""


@dataclass(frozen=True)
class NetConstants:
    """Between domains, on one kind of fabric. Seconds; fractions of the payload rate (line rate times the fabric's efficiency)."""

    launch: float
    """Seconds of a launch beyond the node's."""
    hop: Triple
    """Seconds of a ring's hop."""
    tree_hop: Triple
    """Seconds of a tree's hop."""
    nvls_hop: float
    """Seconds of a switch reduction's hop."""
    ring: float
    """Fraction of the payload rate that a ring reaches."""
    tree: float
    """Fraction of the payload rate that a tree reaches."""
    fill: float
    """Slices that fill a ring."""
    tree_fill: float
    """Slices that fill a tree."""
    nvls_fill: float
    """Loops that fill a switch reduction."""
    p2p: float
    """Fraction of the payload rate that messages reach."""
    p2p_launch: float
    """Seconds of a message's launch."""
    message: float
    """Seconds for eight more peers of an all-to-all."""
    relative_error: float
    """Error of the estimates."""
    fitted_on: tuple[str, ...]
    """Families of measurements that the constants were fitted on."""
    pair: float = 1.0
    """Fraction of the payload rate that a switch reduction's tree reaches on two nodes."""


def _constants(kind: Callable[..., Constants], tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Constants]:
    """Every entry as constants; one with a `base` takes from it what it does not state."""
    return {name: kind(**_fields_of(tables, name)) for name in tables}


def _fields_of(tables: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    table = dict(tables[name])
    table.pop("source", None)
    base = table.pop("base", None)
    stated = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return stated if base is None else _fields_of(tables, base) | stated


_TABLES = tomllib.loads(FILE.read_text(encoding="utf-8"))
NODES: dict[str, NodeConstants] = _constants(NodeConstants, _TABLES["nodes"])
"""By GPU generation."""
SENDS = SendConstants(**_TABLES["sends"])
"""Of NCCL."""
NETS: dict[str, NetConstants] = _constants(NetConstants, _TABLES["nets"])
"""By kind of fabric."""


def scale_constants(node: NodeConstants, net: NetConstants, achieved: Achieved) -> tuple[NodeConstants, NetConstants]:
    """Seconds of launches and hops times their factors, fractions of links times the factor of the rate."""
    hop, rate = achieved.inside_hop, achieved.inside_rate
    rates = achieved.inside_ll_rate, achieved.inside_ll128_rate, rate
    inside = replace(
        node,
        launch=node.launch * achieved.launch,
        p2p_launch=node.p2p_launch * achieved.launch,
        hop=_times(node.hop, hop),
        tree_hop=_times(node.tree_hop, hop),
        nvls_hop=node.nvls_hop * hop,
        nvls_head=node.nvls_head * hop,
        ring=_multiply_each(node.ring, rates),
        tree=_multiply_each(node.tree, rates),
        nvls=node.nvls * rate,
        p2p=node.p2p * rate,
        exchange=node.exchange * rate,
        channel=node.channel * rate,
    )
    hop, rate = achieved.across_hop, achieved.across_rate
    across = replace(
        net,
        launch=net.launch * hop,
        p2p_launch=net.p2p_launch * hop,
        hop=_times(net.hop, hop),
        tree_hop=_times(net.tree_hop, hop),
        nvls_hop=net.nvls_hop * hop,
        message=net.message * hop,
        ring=net.ring * rate,
        tree=net.tree * rate,
        p2p=net.p2p * rate,
        pair=net.pair * rate,
    )
    return inside, across


def _times(triple: Triple, factor: float) -> Triple:
    return triple[0] * factor, triple[1] * factor, triple[2] * factor


def _multiply_each(triple: Triple, factors: Triple) -> Triple:
    return triple[0] * factors[0], triple[1] * factors[1], triple[2] * factors[2]
