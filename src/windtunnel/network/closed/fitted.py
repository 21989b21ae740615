"""Fitted constants of collectives, a few per GPU generation and per kind of fabric: `catalog/calibration/collectives.toml`.

`calibrate.collectives` repeats the fit. An entry without `fitted_on` makes estimates "transferred". Triples are (LL, LL128,
Simple).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from windtunnel.base.package_data import CATALOG

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
