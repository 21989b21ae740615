"""What must hold on any graph: paths connect, are shortest and up; loads are conserved; no link is overrun."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
from drawn import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from windtunnel.base.errors import EngineError
from windtunnel.engine.flow import closed_flows
from windtunnel.engine.graph import Graph, NodeKind, Paths
from windtunnel.engine.routes import NicChoice, Policy, RouteOptions, route, spread
from windtunnel.network.fabrics import cluster_graph, graph_of, parse_fabric
from windtunnel.network.simulate.traffic import loads, seconds_alone
from windtunnel.spec import load_cluster

BUILT = [
    parse_fabric(text)
    for text in (
        "fat_tree:k=4",
        "fat_tree:k=6,tiers=2,oversubscription=1.7",
        "rail:servers=6,leaf_servers=2",
        "hpn:servers=4,segment_servers=2,uplinks=3",
        "dcn:servers=4,dual_tor=yes,tor_nics=8,pod_servers=2,aggs=2",
        "megascale:servers=6,tor_servers=2,pod_sets=2,uplinks=2",
        "dragonfly:p=1,a=3,h=1",
        "torus:sizes=3x4",
        "mesh:sizes=3x2x2",
        "ndim:sizes=3x3x2",
        "pcie:gpus=4",
    )
]
SERVERS = cluster_graph(load_cluster("h100-ib"), 3).graph


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Switches at random, hosts on one or two of them; some links down."""
    switches, hosts = draw(st.integers(1, 6)), draw(st.integers(2, 6))
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    links = [
        {"from": f"h{h}", "to": f"s{s}", "rate": f"{rng.integers(1, 9)}GB/s", "latency": float(rng.integers(0, 5)) * 1e-6}
        for h in range(hosts)
        for s in rng.choice(switches, min(switches, int(rng.integers(1, 3))), replace=False).tolist()
    ]
    for _ in range(draw(st.integers(0, 14))):
        a, b = rng.integers(0, switches, 2).tolist()
        if a != b:
            links.append({"from": f"s{a}", "to": f"s{b}", "rate": f"{rng.integers(1, 9)}GB/s", "latency": 1e-6})
    nodes = [{"name": "h", "kind": "host", "count": hosts}, {"name": "s", "count": switches}]
    graph = graph_of({"nodes": nodes, "links": links})
    up = (rng.random(graph.links) > draw(st.sampled_from([0.0, 0.1, 0.4]))).astype(np.uint8)
    return replace(graph, link_up=up)


@st.composite
def runs(draw: st.DrawFn) -> tuple[Graph, np.ndarray, np.ndarray, RouteOptions]:
    """A graph, sources, destinations, options."""
    graph = draw(st.one_of(graphs(), st.sampled_from([*BUILT, SERVERS])))
    ends = st.lists(st.integers(0, graph.endpoints - 1), min_size=1, max_size=12)
    src = draw(ends)
    dst = draw(st.lists(st.integers(0, graph.endpoints - 1), min_size=len(src), max_size=len(src)))
    options = RouteOptions(draw(st.sampled_from(list(Policy))), draw(st.sampled_from(list(NicChoice))), draw(st.integers(0, 9)))
    return graph, np.array(src, np.int32), np.array(dst, np.int32), options


def hops_between(graph: Graph, source: int, target: int) -> int | None:
    """Hops of a shortest way on which hosts carry no transit, by plain search; None if there is none."""
    known, queue = {source: 0}, deque([source])
    while queue:
        at = queue.popleft()
        if at == target:
            return known[at]
        if at != source and graph.node_kind[at] == NodeKind.HOST:
            continue
        for link in np.flatnonzero((graph.link_from == at) & (graph.link_up > 0)):
            to = int(graph.link_to[link])
            if to not in known:
                known[to] = known[at] + 1
                queue.append(to)
    return None


def tried(graph: Graph, src: np.ndarray, dst: np.ndarray, options: RouteOptions) -> Paths | None:
    try:
        return route(graph, src, dst, options=options)
    except EngineError as error:
        assert "no way from endpoint" in str(error)
        return None


@given(runs())
def test_paths_connect_and_use_what_is_up(run: tuple[Graph, np.ndarray, np.ndarray, RouteOptions]) -> None:
    graph, src, dst, options = run
    paths = tried(graph, src, dst, options)
    assume(paths is not None)
    assert paths is not None
    assert graph.link_up[paths.links].all()
    for f in range(len(src)):
        links = paths.links[paths.start[f] : paths.start[f + 1]]
        at = int(graph.endpoint[src[f]])
        seen = {at}
        for link in links.tolist():
            assert graph.link_from[link] == at
            at = int(graph.link_to[link])
            assert at not in seen
            seen.add(at)
        assert at == graph.endpoint[dst[f]]


@given(graphs(), st.integers(0, 5), st.integers(0, 5))
def test_paths_are_shortest(graph: Graph, a: int, b: int) -> None:
    a, b = a % graph.endpoints, b % graph.endpoints
    paths = tried(graph, np.array([a]), np.array([b]), RouteOptions())
    best = hops_between(graph, int(graph.endpoint[a]), int(graph.endpoint[b]))
    assert (None if paths is None else len(paths.links)) == best


@given(runs())
def test_a_path_does_not_depend_on_the_other_flows(run: tuple[Graph, np.ndarray, np.ndarray, RouteOptions]) -> None:
    graph, src, dst, options = run
    paths = tried(graph, src, dst, options)
    assume(paths is not None)
    assert paths is not None
    last = len(src) - 1
    one = route(graph, src[last:], dst[last:], [last], options)
    assert one.links.tolist() == paths.links[paths.start[last] :].tolist()


@given(runs())
def test_an_even_spread_loses_nothing(run: tuple[Graph, np.ndarray, np.ndarray, RouteOptions]) -> None:
    graph, src, dst, options = run
    paths = tried(graph, src, dst, options)
    assume(paths is not None)
    weight = np.arange(1.0, len(src) + 1.0)
    load = spread(graph, src, dst, weight, options=options)
    assert (load[graph.link_up == 0] == 0).all() and (load >= 0).all()
    net = np.bincount(graph.link_to, load, graph.nodes) - np.bincount(graph.link_from, load, graph.nodes)
    wanted = np.bincount(graph.endpoint[dst], weight, graph.nodes) - np.bincount(graph.endpoint[src], weight, graph.nodes)
    np.testing.assert_allclose(net, wanted, atol=1e-9)
    # the same number of hops as the paths have, since all of both are shortest
    assert paths is not None
    np.testing.assert_allclose(load.sum(), (weight * np.diff(paths.start)).sum())


@given(runs(), st.integers(0, 99))
def test_formula_never_overruns_a_link(run: tuple[Graph, np.ndarray, np.ndarray, RouteOptions], seed: int) -> None:
    graph, src, dst, options = run
    paths = tried(graph, src, dst, options)
    assume(paths is not None)
    assert paths is not None
    rng = np.random.default_rng(seed)
    size, start = rng.integers(0, 10**6, len(src)), rng.choice([0.0, 1e-5, 1e-4], len(src))
    took = closed_flows(graph, paths, size, start)
    assert (took >= seconds_alone(graph, paths, size) - 1e-15).all()
    # what a link carries until any moment fits between the first start and that moment
    flow = np.repeat(np.arange(len(src)), np.diff(paths.start))
    for link in np.unique(paths.links).tolist():
        through = flow[paths.links == link]
        ends = start[through] + took[through]
        for moment in ends:
            carried = size[through][ends <= moment].sum()
            assert carried <= graph.link_rate[link] * (moment - start[through].min()) * (1 + 1e-9)
    assert loads(graph, paths, size).sum() == (size * np.diff(paths.start)).sum()


@examples(15)
@given(runs(), st.integers(0, 99))
def test_another_flow_makes_none_faster(run: tuple[Graph, np.ndarray, np.ndarray, RouteOptions], seed: int) -> None:
    graph, src, dst, options = run
    paths = tried(graph, src, dst, options)
    assume(paths is not None and len(src) > 1)
    rng = np.random.default_rng(seed)
    size, start = rng.integers(0, 10**6, len(src)), rng.choice([0.0, 1e-5], len(src))
    assert paths is not None
    fewer = route(graph, src[:-1], dst[:-1], options=options)
    many = closed_flows(graph, paths, size, start)
    few = closed_flows(graph, fewer, size[:-1], start[:-1])
    assert (many[:-1] >= few * (1 - 1e-9) - 1e-15).all()
