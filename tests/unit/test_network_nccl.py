"""NCCL's tuner: tables, channel counts and selection against hand calculation."""

from __future__ import annotations

from itertools import permutations

import pytest
from network_machines import machine

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.network import collective, flat_group
from windtunnel.network.groups.bandwidth import _CUBE_RINGS, group_links
from windtunnel.network.nccl.channels import graph, log2_floor
from windtunnel.network.nccl.constants import PROTOCOLS
from windtunnel.network.nccl.search import mesh_rings
from windtunnel.network.nccl.settings import DEFAULT, parse_settings
from windtunnel.network.nccl.tuner import _lines, _lowest, options, pieces
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm


def _graph(cluster, gpus, settings=DEFAULT, per_node=None):
    shape = flat_group(cluster, gpus, per_node)
    links = group_links(cluster, shape)
    return shape, links, graph(shape, links, settings)


@pytest.mark.parametrize(
    ("generation", "gpus", "gbit", "channels", "running"),
    [
        ("ampere", 8, 200, 12, 24),
        ("hopper", 8, 400, 12, 24),
        ("blackwell", 8, 400, 8, 32),
        ("ampere", 16, 200, 8, 16),
        ("hopper", 16, 400, 8, 16),
    ],
)
def test_channel_counts(generation, gpus, gbit, channels, running):
    g = _graph(machine(generation, 16, gbit=gbit), gpus)[2]
    assert (g.channels, g.running) == (channels, running)


def test_channel_settings():
    cluster = machine("hopper", 16, gbit=400)
    assert _graph(cluster, 16, parse_settings({"NCCL_MIN_NCHANNELS": "24"}))[2].running == 24
    assert _graph(cluster, 16, parse_settings({"NCCL_MAX_CTAS": 4}))[2].running == 4


def test_ring_simple_of_one_ampere_node_by_hand():
    shape, links, g = _graph(machine("ampere", 8), 8)
    table = {(a, p): (latency, rate) for a, p, latency, rate in options(Comm.ALL_REDUCE, shape, links, g, DEFAULT)}
    latency, rate = table["ring", "Simple"]
    assert latency == pytest.approx(8.4 + 14 * 3.4)
    assert rate == pytest.approx(12 * 20 * 8 / 14)
    latency, rate = table["tree", "LL128"]
    assert latency == pytest.approx(14.0 + 2 * 7 * 1.25)
    assert rate == pytest.approx(min(0.92 * 240 * 7 / 9, 12 * 20) / 2)
    assert ("nvls", "Simple") not in table


def test_tree_between_two_nodes_by_hand():
    shape, links, g = _graph(machine("ampere", 16), 16)
    table = {(a, p): (latency, rate) for a, p, latency, rate in options(Comm.ALL_REDUCE, shape, links, g, DEFAULT)}
    assert table["tree", "Simple"][0] == pytest.approx(8.4 + 2 * (7 * 4 + 14))
    # Eight channels of 24 GB/s out of the node; the tree may have 30 inside it, and 23.6 is NCCL's most on two nodes.
    assert table["tree", "Simple"][1] == pytest.approx(8 * 23.6 / 2)
    assert table["ring", "Simple"][1] == pytest.approx(8 * 24 * 16 / 30)


def test_pieces_are_the_lower_envelope():
    for cluster, gpus in ((machine("hopper", 32, gbit=400), 32), (machine("ampere", 8), 8), (machine("ampere", 16), 16)):
        shape, links, g = _graph(cluster, gpus)
        found = pieces(Comm.ALL_REDUCE, shape, links, g, DEFAULT)
        candidates = options(Comm.ALL_REDUCE, shape, links, g, DEFAULT)
        for step in range(30, 200):
            size = 2.0 ** (step / 5)
            best = candidates[_lowest(_lines(candidates, size, Comm.ALL_REDUCE, shape, links, g), size)]
            here = [piece for piece in found if piece.start <= size][-1]
            assert (here.algorithm, here.protocol) == best[:2], size


def test_small_is_ll_and_large_is_the_switch_or_the_ring():
    shape, links, g = _graph(machine("hopper", 8), 8)
    found = pieces(Comm.ALL_REDUCE, shape, links, g, DEFAULT)
    assert found[0].protocol == "LL" and found[-1].algorithm == "nvls"
    gathered = pieces(Comm.ALL_GATHER, shape, links, g, DEFAULT)
    assert {piece.algorithm for piece in gathered} == {"ring"}


def test_settings_choose_and_unknown_ones_are_refused():
    cluster = machine("hopper", 8)
    cases = (({"NCCL_NVLS_ENABLE": "0"}, "ring"), ({"NCCL_ALGO": "Tree"}, "tree"), ({"NCCL_ALGO": "^NVLS,Ring"}, "tree"))
    for variables, expected in cases:
        settings = parse_settings(variables)
        shape, links, g = _graph(cluster, 8, settings)
        assert pieces(Comm.ALL_REDUCE, shape, links, g, settings)[-1].algorithm == expected
    assert parse_settings({"NCCL_PROTO": "simple"}).protocols == {"Simple"}
    with pytest.raises(UnknownName, match="NCCL_ALGO"):
        parse_settings({"NCCL_ALGOS": "Ring"})
    with pytest.raises(UnknownName):
        parse_settings({"NCCL_PROTO": "LL64"})
    with pytest.raises(SpecError):
        parse_settings({"NCCL_MIN_CTAS": "many"})


def test_sharp_needs_the_fabric_and_the_switch():
    on = parse_settings({"NCCL_COLLNET_ENABLE": "1"})
    for reduction, settings, expected in ((True, on, True), (True, DEFAULT, False), (False, on, False)):
        shape, links, g = _graph(machine("hopper", 32, gbit=400, in_network_reduction=reduction), 32, settings)
        names = {option[0] for option in options(Comm.ALL_REDUCE, shape, links, g, settings)}
        assert ("collnet_chain" in names) is expected


def test_log2_floor():
    assert [log2_floor(x) for x in (0.5, 1, 2, 3, 4, 1023, 1024)] == [0, 0, 1, 1, 2, 9, 10]


# NVLink 2 between the GPUs of a DGX-1V: links per pair (NVIDIA DGX-1 white paper).
_CUBE = {
    (0, 1): 1,
    (0, 2): 1,
    (0, 3): 2,
    (0, 4): 2,
    (1, 2): 2,
    (1, 3): 1,
    (1, 5): 2,
    (2, 3): 2,
    (2, 6): 1,
    (3, 7): 1,
    (4, 5): 1,
    (4, 6): 1,
    (4, 7): 2,
    (5, 6): 2,
    (5, 7): 1,
    (6, 7): 2,
}


@pytest.mark.parametrize("n", [3, 4, 6, 7, 8])
def test_rings_of_the_cube_mesh(n):
    """Most Hamiltonian cycles of the first n GPUs that use each NVLink once; a cycle carries a ring in each direction."""
    cycles = []
    for rest in permutations(range(1, n)):
        if rest[0] < rest[-1]:
            path = (0, *rest, 0)
            edges = [tuple(sorted(pair)) for pair in zip(path, path[1:], strict=False)]
            if all(_CUBE.get(edge, 0) for edge in edges):
                cycles.append(edges)

    def most(used: dict, start: int) -> int:
        best = 0
        for index in range(start, len(cycles)):
            if all(used.get(edge, 0) < _CUBE[edge] for edge in cycles[index]):
                after = dict(used)
                for edge in cycles[index]:
                    after[edge] = after.get(edge, 0) + 1
                best = max(best, 1 + most(after, index))
        return best

    assert 2 * most({}, 0) == _CUBE_RINGS[n]


def test_a_mesh_without_a_cycle_goes_through_a_neighbour():
    """GPUs 0 to 4 of the cube: 4 hangs on 0 by two links, so two rings pass there on their way to 4's other neighbour and back."""
    room = {pair: n for (a, b), n in _CUBE.items() if max(a, b) < 5 for pair in ((a, b), (b, a))}
    found = mesh_rings(5, room)
    assert len(found.rings) == _CUBE_RINGS[5] == 2
    through = dict(found.through)
    assert set(through.values()) == {0} and all(4 in pair for pair in through)
    used: dict[tuple[int, int], int] = {}
    for ring in found.rings:
        assert sorted(ring) == list(range(5))
        for pair in zip(ring, (*ring[1:], ring[0]), strict=True):
            way = [(pair[0], through[pair]), (through[pair], pair[1])] if pair in through else [pair]
            for link in way:
                used[link] = used.get(link, 0) + 1
    assert all(count <= room[link] for link, count in used.items())
    assert mesh_rings(8, {p: n for (a, b), n in _CUBE.items() for p in ((a, b), (b, a))}).through == ()
    assert mesh_rings(3, {(0, 1): 1, (1, 0): 1}) == ((), ())  # GPU 2 hangs on nothing


def test_a_ring_of_one_gpu_a_node_has_the_trees_latency_of_the_network():
    """Four nodes: 2 x 3 steps, all of which cross the network, at 5.0 µs of LL instead of 2.7; the start takes 6.6."""
    shape, links, g = _graph(machine("ampere", 4, node_gpus=1, domain=1, nics=1), 4)
    table = {(a, p): latency for a, p, latency, _ in options(Comm.ALL_REDUCE, shape, links, g, DEFAULT)}
    far = (links.hop + links.stated) * 1e6
    assert shape.per_node == 1 and table["ring", "LL"] == pytest.approx(6.6 + 6 * (5.0 + far))


def test_the_switch_leaves_one_channel_of_its_rate():
    """NVLS of 8 GPUs: each channel reaches 0.85 of its rate, less one channel's part; twice for an all-reduce; 8 / 14 as bus."""
    shape, links, g = _graph(machine("hopper", 8), 8)
    table = {(a, p): rate for a, p, _, rate in options(Comm.ALL_REDUCE, shape, links, g, DEFAULT)}
    per_channel = g.nvls_intra * 0.85 * (g.nvls - 1) / g.nvls * 2
    assert table["nvls", "Simple"] == pytest.approx(g.nvls * per_channel * 8 / 14)


@pytest.mark.parametrize(
    ("cluster", "protocols", "channels"),
    [
        ("tpu-v5p", {"ICI"}, False),
        ("gaudi3", {"HCCL"}, False),
        ("mi300x-roce", {*PROTOCOLS}, True),
        ("h100-ib", {*PROTOCOLS}, True),
    ],
)
def test_protocols_and_channels_are_those_of_the_accelerator_s_library(cluster: str, protocols: set[str], channels: bool) -> None:
    """A TPU's links and Gaudi's ports have neither; RCCL has NCCL's."""
    machine = load_cluster(cluster)
    for gpus in (8, 32):
        for size in (1e3, 1e6, 1e9):
            estimate = collective(machine, Comm.ALL_REDUCE, size, flat_group(machine, gpus))
            assert estimate.protocol in protocols and bool(estimate.channels) is channels


def test_three_gpus_in_a_row_make_a_ring_through_the_middle_one():
    row = {pair: 2 for pair in ((0, 1), (1, 0), (1, 2), (2, 1))}
    found = mesh_rings(3, row)
    assert found.rings and set(dict(found.through)) <= {(0, 2), (2, 0)} and set(dict(found.through).values()) == {1}
