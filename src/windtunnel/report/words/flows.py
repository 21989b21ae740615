"""Plain flows in words: names of links."""

from __future__ import annotations

from windtunnel.network.flows.run import FlowsResult


def link_name(result: FlowsResult, link: int) -> str:
    """`leaf0->spine3`."""
    graph = result.graph
    return f"{graph.name(int(graph.link_from[link]))}->{graph.name(int(graph.link_to[link]))}"
