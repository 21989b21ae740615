"""Speed of graphs, routes, collisions and flows by formula. Asserts no time."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.engine.flow import closed_flows
from windtunnel.engine.routes import NicChoice, RouteOptions, route
from windtunnel.network.fabrics import cluster_graph, parse_fabric
from windtunnel.network.flows.flow_list import load_flows
from windtunnel.network.simulate.traffic import collisions
from windtunnel.spec import load_cluster


def test_graph_of_12288_gpus(benchmark: Any) -> None:
    cluster = load_cluster("megascale")
    assert benchmark(cluster_graph, cluster, 1536).graph.endpoints == 12288


def test_routes_of_an_all_to_all_of_1024(benchmark: Any) -> None:
    graph = parse_fabric("fat_tree:k=16")
    flows = load_flows("all_to_all", 1024)
    assert len(benchmark(route, graph, flows.src, flows.dst)) == 1024 * 1023


def test_a_million_routes_of_12288_gpus_with_pxn(benchmark: Any) -> None:
    graph = cluster_graph(load_cluster("megascale"), 1536).graph
    src, dst = np.random.default_rng(0).integers(0, graph.endpoints, (2, 10**6))
    assert len(benchmark(route, graph, src, dst, options=RouteOptions(nic=NicChoice.PXN))) == 10**6


def test_collisions_and_formula_of_an_all_to_all_of_1024(benchmark: Any) -> None:
    graph = parse_fabric("fat_tree:k=16")
    flows = load_flows("all_to_all:bytes=64KiB", 1024)
    paths = route(graph, flows.src, flows.dst)

    def both() -> float:
        met = collisions(graph, paths, flows.src, flows.dst, flows.bytes)
        return met.worst_factor * float(closed_flows(graph, paths, flows.bytes, flows.start).max())

    assert benchmark(both) > 0.0
