"""Laws that any price of a collective must keep."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.network import Group, bus_factor, collective, flat_group
from windtunnel.network.closed.collective import prepare
from windtunnel.network.groups.bandwidth import group_links
from windtunnel.workload.ops import Comm

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from network_machines import machine  # noqa: E402

CLUSTERS = {
    (g, nics, gbit): machine(g, 1024, nics=nics, gbit=gbit, oversubscription=2.0, leaf_nodes=16)
    for g in ("volta", "ampere", "hopper", "blackwell", "cdna3", "cdna4", "gaudi")
    for nics, gbit in ((8, 400), (4, 100), (32, 100))
}
clusters = st.sampled_from(list(CLUSTERS.values()))
comms = st.sampled_from([c for c in Comm if c is not Comm.NONE])
sizes = st.floats(3, 37).map(lambda x: 2.0**x)
shapes = st.sampled_from([(2, 2), (4, 4), (8, 8), (5, 5), (16, 8), (16, 1), (24, 8), (64, 8), (64, 1), (256, 4), (1024, 8)])


def _shape(cluster, shape):
    gpus, per_node = shape
    if per_node == 8 or gpus <= 8:
        return flat_group(cluster, gpus)
    return flat_group(cluster, gpus if gpus // per_node <= 128 else 128 * per_node, per_node, sharing=8 // per_node)


@given(clusters, comms, shapes, sizes, sizes)
def test_never_faster_for_more_bytes(cluster, comm, shape, one, other):
    g = _shape(cluster, shape)
    less, more = (collective(cluster, comm, s, g).seconds for s in sorted((one, other)))
    assert less <= more * (1 + 1e-12)


@given(clusters, comms, shapes, st.floats(0, 300))
def test_never_faster_around_the_switches(cluster, comm, shape, where):
    g = _shape(cluster, shape)
    for start in prepare(cluster, comm, g).starts[1:]:
        before, after = (collective(cluster, comm, start * f, g).seconds for f in (1 - 1e-6 - where / 1e3, 1 + where / 1e3))
        assert before <= after * (1 + 1e-12)


@given(clusters, comms, shapes, sizes)
def test_never_below_the_links(cluster, comm, shape, size):
    """Bus rate within the link's, except for what adds on the way: the switch reduction of NVLS halves a GPU's traffic (bound
    S(n+1)/n on NVLink), and a tree sends a buffer once out of each of two nodes (bound S on the NICs), twice on more (2S). A ring
    that leaves a full mesh takes a link less of each of its GPUs there (`chain`)."""
    g = _shape(cluster, shape)
    found, links = collective(cluster, comm, size, g), group_links(cluster, g)
    moved = size * bus_factor(comm, g.ranks)
    outside = size * min(2, g.nodes - 1) / links.line if g.nodes > 1 else 0.0
    if found.algorithm in ("ring", "pat"):
        bounds = [moved / links.chain if g.per_node > 1 else 0.0, moved / links.line if g.nodes > 1 else 0.0]
        assert links.chain * (g.per_node - 1) <= links.intra * g.per_node * (1 + 1e-12)
    elif found.algorithm == "tree":
        bounds = [size / links.chain if g.per_node > 1 else 0.0, outside]
    elif found.algorithm in ("nvls", "nvls_tree"):
        bounds = [size * (g.per_node + 1) / g.per_node / links.intra, outside]
    else:
        assert found.algorithm == "p2p"
        if comm == Comm.SEND_RECV:
            bounds = [size / links.pair if g.per_node > 1 else 0.0, size * g.per_node / links.line if g.nodes > 1 else 0.0]
        else:
            bounds = [
                size * (g.per_node - 1) / g.ranks / links.intra,
                size * (g.ranks - g.per_node) / g.ranks * g.per_node / links.line if g.nodes > 1 else 0.0,
            ]
    assert found.seconds >= max(bounds)


@pytest.mark.parametrize("algorithm", ["Ring", "Tree", "NVLSTree"])
@pytest.mark.parametrize("gpus", [8, 16, 64])
@examples(5)
@given(sizes, st.sampled_from(["LL", "LL128", "Simple"]))
def test_twice_the_links_is_never_slower(algorithm, gpus, size, protocol):
    chosen = {"NCCL_ALGO": algorithm, "NCCL_PROTO": protocol if algorithm != "NVLSTree" else "Simple"}
    one, two = machine("hopper", 64, gbit=100), machine("hopper", 64, gbit=200, link=2.0)
    slow, fast = (collective(c, Comm.ALL_REDUCE, size, flat_group(c, gpus), settings=chosen).seconds for c in (one, two))
    assert fast <= slow * (1 + 1e-9)


@given(sizes, shapes)
def test_faster_nics_never_slow_large_messages_down(size, shape):
    slow, fast = (
        collective(c, Comm.ALL_REDUCE, size * 2.0**27, _shape(c, shape)).seconds
        for c in (machine("ampere", 1024, gbit=100), machine("ampere", 1024, gbit=200))
    )
    assert fast <= slow * (1 + 1e-9)


@given(st.sampled_from(["ampere", "hopper", "blackwell", "cdna4"]), sizes, shapes, comms)
def test_more_nics_never_slow_large_messages_down(generation, size, shape, comm):
    few, many = (
        collective(c, comm, size * 2.0**27, _shape(c, shape)).seconds
        for c in (machine(generation, 1024, nics=4), machine(generation, 1024, nics=8))
    )
    assert many <= few * (1 + 1e-9)


@given(clusters, sizes, comms)
def test_one_rank_costs_nothing(cluster, size, comm):
    assert collective(cluster, comm, size, Group(1, 1, 1)).seconds == 0.0


@given(clusters, shapes, sizes)
def test_gather_and_scatter_are_mirror_images(cluster, shape, size):
    g = _shape(cluster, shape)
    assert collective(cluster, Comm.ALL_GATHER, size, g) == collective(cluster, Comm.REDUCE_SCATTER, size, g)


@given(clusters, shapes, sizes)
def test_more_groups_on_the_same_nics_are_never_faster(cluster, shape, size):
    g = _shape(cluster, shape)
    if g.nodes > 1 and g.per_node == 1:
        alone = Group(g.ranks, 1, g.nodes, 1, 8, g.span, g.per_leaf, g.per_pod)
        one, many = (collective(cluster, Comm.ALL_GATHER, size, shape).seconds for shape in (alone, g))
        assert one <= many * 1.001
