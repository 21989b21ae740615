"""Shared by builders of GPU clusters: a catalogue node's numbers, and its GPUs as endpoints."""

from __future__ import annotations

from windtunnel.base.errors import SpecError
from windtunnel.engine.graph import Graph
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.server import Inside, Servers


def node_of(name: str, path: str) -> tuple[Inside, float]:
    """(inside, line rate of a NIC in B/s) of a catalogue node; SpecError if it has no NICs."""
    from windtunnel.spec.loading.load import load_node  # here: hosts are no servers

    node = load_node(name)
    if node.nic is None:
        raise SpecError(path, name, "a node with NICs")
    return Inside.of(node), node.nic.bandwidth


def ends(columns: Columns, servers: Servers) -> Graph:
    """The graph whose endpoints are the GPUs, server by server."""
    return columns.graph(servers.gpus.ravel(), servers.driven, servers.nic_start, servers.rail)
