"""Fabrics: node and link counts by hand, rates, names, and what wrong parameters say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.engine.routes import NicChoice, Policy, RouteOptions, check, route
from windtunnel.network.fabrics import BUILDERS, cluster_graph, graph_of, load_graph, parse_fabric
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.dragonfly import Dragonfly, DragonflyPlus
from windtunnel.network.fabrics.drawn import GroupPorts
from windtunnel.network.simulate.paths import add_switches
from windtunnel.spec import load_cluster, load_fabric
from windtunnel.spec.loading.files import names


def up_of(graph: Graph, name: str) -> float:
    """B/s from the node named `name` to switches whose name says that they are above it."""
    node = graph.names.index(name)
    out = graph.link_from == node
    above = ("agg", "spine", "core", "pod")
    up = [i for i in np.flatnonzero(out) if graph.names[graph.link_to[i]].startswith(above)]
    return float(graph.link_rate[up].sum())


def through(graph: Graph, src: int, dst: int, nic: NicChoice = NicChoice.NEAREST) -> list[str]:
    """Names of the nodes on the way."""
    return [graph.names[n] for n in graph.link_to[route(graph, [src], [dst], options=RouteOptions(nic=nic)).links]]


def test_fat_tree_is_the_one_of_the_published_runs() -> None:
    small, large = parse_fabric("fat_tree:k=8"), parse_fabric("fat_tree:k=16")
    assert (small.endpoints, small.nodes, small.links) == (128, 208, 768)
    assert large.endpoints == 1024
    hops = np.diff(route(small, [0, 0, 0], [3, 4, 127]).start)
    assert hops.tolist() == [2, 4, 6]  # the same ToR, the same pod, another pod
    tiers = parse_fabric("fat_tree:k=8,tiers=2")
    assert (tiers.endpoints, tiers.nodes) == (32, 32 + 8 + 4)


@pytest.mark.parametrize("ratio", [1.0, 1.16, 2.0, 3.0, 0.5])
def test_oversubscription_is_exact(ratio: float) -> None:
    graph = parse_fabric(f"fat_tree:k=16,oversubscription={ratio},link=100Gb/s")
    assert up_of(graph, "tor0") == pytest.approx(8 * 12.5e9 / ratio)
    assert graph.link_rate.max() <= 12.5e9 * (1 + 1e-12)


def test_rail_puts_each_nic_on_the_leaf_of_its_rail() -> None:
    graph = parse_fabric("rail:servers=4,leaf_servers=2")
    assert graph.endpoints == 32 and graph.rail[:9].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    assert through(graph, 3, 8 + 3) == ["n0.pcie3", "n0.nic3", "leaf0.3", "n1.nic3", "n1.pcie3", "n1.gpu3"]
    cross = through(graph, 3, 16 + 5, NicChoice.PXN)
    assert cross[:5] == ["d0.nvswitch0", "n0.gpu5", "n0.pcie5", "n0.nic5", "leaf0.5"] and cross[6] == "leaf1.5"
    assert up_of(graph, "leaf0.0") == pytest.approx(2 * 50e9)


def test_hpn_planes_meet_nowhere() -> None:
    graph = parse_fabric("hpn:servers=16,segment_servers=8")
    tors = [n for n in graph.names if n.startswith("tor")]
    assert len(tors) == 2 * 2 * 8  # two ports, two segments, eight rails
    assert up_of(graph, "tor0-0.0") == pytest.approx(60 * 50e9)
    for key in range(20):
        path = route(graph, [0], [64], [key])
        planes = {graph.names[n][3] for n in graph.link_to[path.links] if graph.names[n].startswith(("tor", "agg"))}
        assert len(planes) == 1
    single = parse_fabric("hpn:servers=16,segment_servers=8,planes=1")
    assert up_of(single, "tor0-0.0") == pytest.approx(120 * 25e9)


def test_dcn_and_megascale() -> None:
    graph = parse_fabric("dcn:servers=16")
    assert up_of(graph, "tor0") == pytest.approx(64 * 50e9)
    dual = parse_fabric("dcn:servers=32,dual_tor=yes")
    nic = dual.names.index("n0.nic0")
    assert sorted(dual.names[n] for n in dual.link_to[dual.link_from == nic]) == ["n0.pcie0", "tor0-0", "tor1-0"]
    mega = parse_fabric("megascale:servers=128")
    tor = mega.names.index("tor0.0")
    down, up = (mega.link_from == tor) & (mega.link_rate == 25e9), (mega.link_from == tor) & (mega.link_rate == 50e9)
    assert (int(down.sum()), int(up.sum())) == (64, 32)
    same_rail = route(mega, [0], [64 * 8])
    assert len(same_rail.links) == 8  # NIC, ToR, aggregation, ToR
    assert sum(mega.names[n].startswith("core") for n in mega.link_to[route(mega, [0], [1 + 64 * 8]).links]) == 1


def test_dragonfly_has_equal_global_cables() -> None:
    graph = parse_fabric("dragonfly:p=2,a=4,h=2")
    assert graph.endpoints == 9 * 8
    cables = graph.link_axis == 1
    groups = np.array([int(n.split(".")[0][6:]) if n.startswith("router") else -1 for n in graph.names])
    pairs = np.stack([groups[graph.link_from[cables]], groups[graph.link_to[cables]]], axis=1)
    assert len(pairs) == 9 * 8 and len(np.unique(pairs, axis=0)) == 9 * 8  # one each way between each two groups
    assert np.bincount(graph.link_from[cables])[-36:].tolist() == [2] * 36
    every = np.stack(np.meshgrid(np.arange(72), np.arange(72))).reshape(2, -1)
    assert np.diff(route(graph, every[0], every[1]).start).max() == 5  # host, local, global, local, host
    plus = parse_fabric("dragonfly_plus:p=2,leaves=2,spines=2,h=2,groups=3")
    assert plus.endpoints == 12 and int((plus.link_axis == 1).sum()) == 2 * 3 * 2
    with pytest.raises(SpecError, match="at most 9"):
        parse_fabric("dragonfly:p=2,a=4,h=2,groups=10")


def test_torus_mesh_and_ndim() -> None:
    torus, mesh = parse_fabric("torus:sizes=4x3,link=50GB/s+25GB/s"), parse_fabric("mesh:sizes=4x3")
    assert torus.links == 2 * (4 * 3 + 3 * 4) and mesh.links == 2 * (3 * 3 + 2 * 4)
    assert set(torus.link_rate[torus.link_axis == 1]) == {25e9}
    assert len(route(torus, [0], [3]).links) == 1 and len(route(mesh, [0], [3]).links) == 3
    assert parse_fabric("torus:sizes=2x2").links == 2 * 4  # a second cable between the same two would be no torus
    ndim = parse_fabric("ndim:kinds=ring+fully_connected+switch,sizes=4x3x2")
    assert ndim.endpoints == 24 and int((ndim.node_kind == NodeKind.SWITCH).sum()) == 12
    assert ndim.links == 2 * (24 + 8 * 3 + 24)
    ordered = route(ndim, [0], [1 + 4 + 12], options=RouteOptions(Policy.DIMENSION_ORDER))
    assert ndim.link_axis[ordered.links].tolist() == [0, 1, 2, 2]


def test_servers_alone() -> None:
    rack = parse_fabric("nvlink:gpus=72,link=900GB/s")
    assert rack.endpoints == 72 and through(rack, 0, 71) == ["d0.nvswitch0", "n0.gpu71"]
    box = parse_fabric("pcie:gpus=8")
    assert through(box, 0, 3) == ["n0.pcie0", "n0.gpu3"]
    assert through(box, 0, 4) == ["n0.pcie0", "n0.cpu0", "n0.cpu1", "n0.pcie1", "n0.gpu4"]


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_every_builder_makes_a_graph_that_the_core_takes(name: str) -> None:
    graph = parse_fabric(name)
    check(graph)
    assert len(graph.names) == graph.nodes and len(set(graph.names)) == graph.nodes
    assert all(text and default for _, default, text in BUILDERS[name].parameters())


@pytest.mark.parametrize("name", [n for n in names("clusters") if load_cluster(n).fabric.topology in ("rail", "fat_tree")])
def test_every_cluster_makes_a_connected_graph(name: str) -> None:
    cluster = load_cluster(name)
    if cluster.node.nic is None:
        pytest.skip("no NICs")
    made = cluster_graph(cluster, 5)
    check(made.graph)
    gpus = made.graph.endpoints
    assert gpus == 5 * cluster.node.gpus and len(made.endpoint) == gpus
    pairs = np.stack(np.meshgrid(np.arange(gpus), np.arange(gpus))).reshape(2, -1)
    route(made.graph, pairs[0], pairs[1])
    for choice in (NicChoice.PXN, NicChoice.RAIL):
        route(made.graph, pairs[0], pairs[1], options=RouteOptions(nic=choice))


def test_cluster_rates_are_payload_and_uplinks_are_those_of_full_leaves() -> None:
    made = cluster_graph(load_cluster("megascale"), 66)
    graph = made.graph
    assert made.leaf[[0, 511, 512]].tolist() == [0, 0, 1]
    assert up_of(graph, "leaf1.0") == pytest.approx(64 * 25e9 * 0.92)  # two nodes are there, the leaf has links for 64
    spine = graph.names.index("spine0")
    assert set(np.round(graph.link_rate[graph.link_from == spine] / 1e9, 6)) == {2 * 25 * 0.92}
    rack = cluster_graph(load_cluster("gb200-nvl72"), 20)
    assert rack.domain == 72 and set(rack.graph.node_site[rack.graph.endpoint[:72]]) == {0}
    assert through(rack.graph, 0, 71) == ["d0.nvswitch0", "n17.gpu3"]


def test_placements() -> None:
    cluster = load_cluster("h100-ib")
    assert cluster_graph(cluster, 3, "packed").endpoint.tolist() == list(range(24))
    assert cluster_graph(cluster, 3, "rail").endpoint[:6].tolist() == [0, 8, 16, 1, 9, 17]
    leaf = cluster_graph(cluster, 33, "leaf")
    assert leaf.node[leaf.endpoint[[0, 8, 16]]].tolist() == [0, 32, 1]
    one, two = (cluster_graph(cluster, 6, "random:3").endpoint for _ in range(2))
    assert (one == two).all() and sorted(one) == list(range(48)) and (one[:8] == one[0] + np.arange(8)).all()
    assert cluster_graph(cluster, 2, "list:3,1").endpoint.tolist() == [3, 1]
    for wrong in ("list:3,3", "list:99", "list:x", "random:x"):
        with pytest.raises(SpecError, match="placement"):
            cluster_graph(cluster, 2, wrong)
    with pytest.raises(UnknownName, match="packed"):
        cluster_graph(cluster, 2, "pack")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fat_tre:k=8", "fat_tree"),
        ("fat_tree:kk=8", "did you mean 'k'|k"),
        ("fat_tree:k=7", "even"),
        ("fat_tree:k=eight", "whole number"),
        ("fat_tree:k=8,k=4", "once"),
        ("fat_tree:k", "key=value"),
        ("fat_tree:link=400", "bandwidth"),
        ("fat_tree:link=0Gb/s", "bandwidth"),
        ("fat_tree:oversubscription=0", "number"),
        ("fat_tree:oversubscription=nan", "number"),
        ("fat_tree:k=8,pods=9", "at most"),
        ("torus:sizes=4x4x4x4x4", "four"),
        ("torus:sizes=65536x65536", "at most"),
        ("ndim:kinds=ring,sizes=4x4", "2 names"),
        ("ndim:kinds=ring+star,sizes=4x4", "ring"),
        ("torus:sizes=4x4,link=1GB/s+1GB/s+1GB/s", "2 dimensions"),
        ("rail:node=nothing", "nodes?"),
        ("ib", "cluster:name="),
        ("cluster:name=nothing", "cluster"),
        ("nowhere.toml", "no such file"),
    ],
)
def test_wrong_parameters_are_told(text: str, told: str) -> None:
    with pytest.raises(SpecError, match=rf"(?is){told}"):
        parse_fabric(text)


def test_a_catalogue_fabric_names_its_builder() -> None:
    for name in names("fabrics"):
        builder = load_fabric(name).builder
        if builder is not None and "1536" not in builder:
            check(parse_fabric(name))
    assert parse_fabric("roce-megascale").endpoints == 12288


GRAPH = {
    "nodes": [{"name": "h", "kind": "host", "count": 2}, {"name": "s", "kind": "switch"}],
    "links": [
        {"from": "h0", "to": "s", "rate": "100Gb/s", "latency": "1us"},
        {"from": "h1", "to": "s", "rate": "50Gb/s", "axis": 1},
    ],
}


def test_a_graph_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "two.json"
    file.write_text(json.dumps(GRAPH))
    graph = parse_fabric(str(file))
    assert (graph.endpoints, graph.links) == (2, 4) and graph.link_rate.tolist() == [12.5e9, 12.5e9, 6.25e9, 6.25e9]
    assert graph.link_axis.tolist() == [-1, -1, 1, 1]
    toml = tmp_path / "two.toml"
    toml.write_text(
        'nodes = [{name = "a", kind = "gpu"}, {name = "b", kind = "gpu"}]\n'
        'links = [{from = "a", to = "b", rate = "1GB/s", one_way = true}]'
    )
    one = parse_fabric(f"file:{toml}")
    assert one.link_up.tolist() == [1, 0] and len(route(one, [0], [1]).links) == 1
    with pytest.raises(FileError):
        load_graph(str(tmp_path / "none.toml"))
    toml.write_text("nodes = [")
    with pytest.raises(FileError, match="TOML"):
        load_graph(str(toml))


def test_servers_in_a_file_find_their_nics() -> None:
    table = {
        "nodes": [
            {"name": "gpu", "kind": "gpu", "count": 2, "site": 0},
            {"name": "nic", "kind": "nic", "count": 2, "site": 0},
            {"name": "pcie", "kind": "pcie", "count": 2, "site": 0},
            {"name": "leaf"}, {"name": "far", "kind": "host"},
        ],
        "links": [
            *({"from": f"{kind}{i}", "to": f"pcie{i}", "rate": "26GB/s"} for kind in ("gpu", "nic") for i in range(2)),
            {"from": "pcie0", "to": "pcie1", "rate": "26GB/s"},
            *({"from": f"nic{i}", "to": "leaf", "rate": "200Gb/s"} for i in range(2)),
            {"from": "far", "to": "leaf", "rate": "200Gb/s"},
        ],
        "endpoints": ["gpu0", "gpu1", {"node": "far", "rail": 0}],
    }  # fmt: skip
    graph = graph_of(table)
    assert [graph.names[n] for n in graph.nics[graph.nic_start[1] : graph.nic_start[2]]] == ["nic1", "nic0"]
    assert [graph.names[n] for n in graph.link_to[route(graph, [1], [2]).links]] == ["pcie1", "nic1", "leaf", "far"]


@pytest.mark.parametrize(
    ("builder", "nics", "of_group", "routers"),
    [
        # two ports a router: a server of one NIC is one of two there, one of four takes two routers, the next one the next two
        (Dragonfly(p=2, a=4, h=1, groups=2), 1, 8, [[0], [0], [1], [1], [2], [2], [3], [3], [4]]),
        (Dragonfly(p=2, a=4, h=1, groups=2), 4, 2, [[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]),
        (Dragonfly(p=2, a=3, h=1, groups=2), 3, 1, [[0, 0, 1], [3, 3, 4]]),  # the third router of a group stays empty
        (DragonflyPlus(p=4, leaves=2, spines=2, h=1, groups=2), 2, 4, [[0, 0], [0, 0], [1, 1], [1, 1], [2, 2]]),
    ],
)
def test_servers_lie_on_the_ports_of_groups(
    builder: Dragonfly | DragonflyPlus, nics: int, of_group: int, routers: list[list[int]]
) -> None:
    ports = GroupPorts(builder, nics)
    assert (ports.of_group, ports.servers) == (of_group, 2 * of_group)
    columns = Columns()
    hosts = columns.nodes(NodeKind.NIC, [f"nic{n}" for n in range(len(routers) * nics)]).reshape(len(routers), nics)
    ports.attach(columns, hosts, 50e9, 0.5)
    graph = columns.graph(hosts.ravel())
    mine = [int(graph.link_to[graph.link_from == nic].item()) for nic in hosts.ravel()]
    edge = sorted(n for n, name in enumerate(graph.names) if name.startswith(("router", "leaf")))
    assert [edge.index(switch) for switch in mine] == [switch for server in routers for switch in server]
    assert graph.link_rate[graph.link_from == 0].tolist() == [25e9]


@pytest.mark.parametrize("kind", list(NodeKind))
def test_a_file_has_every_kind_of_node(kind: NodeKind) -> None:
    table = {"nodes": [{"name": "a", "kind": kind.name.lower()}, {"name": "h", "kind": "host"}],
             "links": [{"from": "a", "to": "h", "rate": "1Gb/s"}]}  # fmt: skip
    assert graph_of(table).node_kind[0] == kind


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"nodes": []}, "nodes"),
        ({"nodes": [{"name": "h", "kind": "hots"}]}, "host"),
        ({"nodes": [{"name": "h"}, {"name": "h"}]}, "no other"),
        ({"nodes": [{"name": "h", "count": 0}]}, "count"),
        ({"links": [{"from": "h0", "to": "x", "rate": "1Gb/s"}]}, "'x'"),
        ({"links": [{"from": "h0", "to": "h0", "rate": "1Gb/s"}]}, "another node"),
        ({"links": [{"from": "h0", "to": "s", "rate": "0Gb/s"}]}, "up = false"),
        ({"links": [{"from": "h0", "to": "s"}]}, "rate"),
        ({"links": [{"from": "h0", "to": "s", "rate": "1Gb/s", "latency": "-1us"}]}, "latency"),
        ({"links": [{"from": "h0", "to": "s", "rate": "1Gb/s", "up": 1}]}, "true or false"),
        ({"links": [3]}, "table"),
        ({"links": [{"form": "h0", "to": "s", "rate": "1Gb/s"}]}, "Did you mean 'from'"),
        ({"nodes": [{"name": "h", "kind": kind} for kind in ("host", "nvswich")]}, "Did you mean 'nvswitch'"),
        ({"endpoints": []}, "endpoints"),
        ({"endpoint": []}, "endpoints"),
    ],
)
def test_a_wrong_graph_file_is_told(change: dict[str, object], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        graph_of({**GRAPH, **change})


@pytest.mark.parametrize(
    ("above", "reduces", "switches", "leaves"),
    [
        ("spine", True, ["nv0", "nv1", "leaf0", "leaf1", "spine"], (0, 1)),  # two sets of leaves under one switch
        ("spine", False, ["nv0", "nv1"], (0, 0)),  # the fabric adds nothing
        ("", True, ["nv0", "nv1"], (0, 0)),  # nothing joins the leaves
        ("one leaf", True, ["nv0", "nv1", "leaf0"], (0, 0)),
        ("no leaf", True, ["nv0", "nv1"], (0, 0)),  # a NIC without a switch above it
    ],
)
def test_switches_that_can_add(above: str, reduces: bool, switches: list[str], leaves: tuple[int, ...]) -> None:
    """Two servers of two GPUs that share a NIC."""
    columns = Columns()
    gpus = columns.nodes(NodeKind.GPU, [f"gpu{n}" for n in range(4)], np.array([0, 0, 1, 1], np.int32))
    inside = columns.nodes(NodeKind.NVSWITCH, ["nv0", "nv1"], np.array([0, 1], np.int32))
    nics = columns.nodes(NodeKind.NIC, ["nic0", "nic1"], np.array([0, 1], np.int32))
    outside = columns.nodes(NodeKind.SWITCH, ["leaf0", "leaf1", "spine"])
    columns.cables(gpus, np.repeat(inside, 2), 450e9, 1e-6)
    columns.cables(gpus, np.repeat(nics, 2), 50e9, 1e-6)
    if above != "no leaf":
        columns.cables(nics, outside[[0, 0] if above == "one leaf" else [0, 1]], 50e9, 1e-6)
    if above == "spine":
        columns.cables(outside[:2], outside[2], 50e9, 1e-6)
    placed = add_switches(columns.graph(gpus, np.repeat(nics, 2)[:, None]), np.arange(4, dtype=np.int32), 2, reduces)
    assert [placed.graph.names[node] for node in placed.graph.endpoint[placed.switches]] == switches
    assert placed.leaves == leaves
