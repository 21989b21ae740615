"""Shapes of communication groups, by hand."""

from __future__ import annotations

import pytest
from network_machines import job, machine

from windtunnel.base.errors import SpecError
from windtunnel.network import flat_group, group
from windtunnel.network.groups.bandwidth import group_links
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Axis


def _shape(j, axis, **more):
    g = group(j, axis, **more)
    return g.ranks, g.per_node, g.nodes, g.sharing, g.span


def test_tensor_parallel_inside_and_across_nodes():
    assert _shape(job(machine(gpus=64), tp=8, pp=4), Axis.TP) == (8, 8, 1, 1, "node")
    assert _shape(job(machine(gpus=64), tp=16, pp=2), Axis.TP) == (16, 8, 2, 1, "leaf")


def test_data_parallel_stride_decides_how_many_ranks_share_a_node():
    assert _shape(job(machine(gpus=64), tp=8), Axis.DP) == (8, 1, 8, 8, "leaf")
    assert _shape(job(machine(gpus=64), tp=2, pp=4), Axis.DP) == (8, 4, 2, 2, "leaf")
    assert _shape(job(machine(gpus=64)), Axis.DP) == (64, 8, 8, 1, "leaf")


def test_an_odd_group_is_as_slow_as_the_one_that_straddles_two_nodes():
    # tp = 3 on nodes of 8: ranks 6, 7, 8 sit on two nodes.
    assert _shape(job(machine(gpus=24), tp=3), Axis.TP)[:3] == (3, 2, 2)


def test_pipeline_pairs():
    assert _shape(job(machine(gpus=64), tp=8, pp=8), Axis.PP) == (2, 1, 2, 8, "leaf")
    # Four stages of two GPUs to a node: only the last stage of a node sends out of it.
    j = job(machine(gpus=64), tp=2, pp=32)
    assert _shape(j, Axis.PP) == (2, 1, 2, 2, "leaf")
    assert _shape(j, Axis.PP, stage=0) == (2, 2, 1, 1, "node")
    assert _shape(j, Axis.PP, stage=3) == (2, 1, 2, 2, "leaf")
    assert _shape(j, Axis.EMBEDDING)[:3] == (2, 1, 2)
    assert _shape(job(machine(gpus=64), tp=8), Axis.PP) == (1, 1, 1, 1, "device")


def test_shard_and_replica_groups_of_hybrid_sharding():
    j = job(machine(gpus=64), sharding="hsdp", shard_group=8)
    assert _shape(j, Axis.SHARD) == (8, 8, 1, 1, "node")
    assert _shape(j, Axis.REPLICA) == (8, 1, 8, 8, "leaf")
    j = job(machine(gpus=64), tp=4, cp=2, pp=2)
    assert _shape(j, Axis.SHARD) == (8, 2, 4, 4, "leaf")
    assert _shape(j, Axis.CP) == (2, 2, 1, 1, "node")


def test_placement_order_moves_the_pipeline_inside_the_node():
    j = job(machine(gpus=64), tp=4, pp=2, placement=("tp", "pp", "cp", "ep", "dp"))
    assert _shape(j, Axis.PP) == (2, 2, 1, 1, "node")
    assert _shape(j, Axis.DP) == (8, 1, 8, 8, "leaf")


def test_span_and_what_leaves_leaf_and_pod():
    j = job(machine(gpus=16384), tp=8, pp=16)
    dp, pp = group(j, Axis.DP), group(j, Axis.PP)
    assert (dp.span, dp.per_leaf, dp.per_pod) == ("pod", 32.0, 128.0)
    # A stage is a pod: every GPU sends out of its leaf and out of its pod.
    assert (pp.span, pp.per_leaf, pp.per_pod) == ("core", 1.0, 1.0)


def test_a_rack_scale_domain_counts_as_a_node():
    rack = machine("blackwell", gpus=144, nics=4, domain=72, node_gpus=4)
    assert _shape(job(rack, tp=8), Axis.TP) == (8, 8, 1, 1, "node")
    assert _shape(job(rack), Axis.WORLD)[:4] == (144, 72, 2, 1)


def test_flat_group_and_bad_input():
    cluster = machine(gpus=64)
    g = flat_group(cluster, 16, per_node=4)
    assert (g.ranks, g.per_node, g.nodes) == (16, 4, 4)
    with pytest.raises(SpecError):
        flat_group(cluster, 0)
    with pytest.raises(SpecError):
        group(job(cluster), Axis.NONE)


def test_gpus_of_the_domain_that_are_there() -> None:
    """A job of four GPUs on a node of eight has four of them; one of several nodes has all."""
    assert group(job(machine(gpus=4), tp=4), Axis.TP).gpus_per_node == 4
    assert group(job(machine(gpus=16), tp=8), Axis.TP).gpus_per_node == 8
    assert group(job(machine(gpus=2), tp=2), Axis.TP).gpus_per_node == 2


def test_a_chain_through_nodes_of_a_full_mesh_has_all_of_its_links() -> None:
    """A ring over a mesh of 8 takes 7 of a GPU's parts; where it leaves the node, all 8 fit. From two nodes on."""
    for nodes in (2, 4):
        cluster = machine("cdna3", 8 * nodes)
        links = group_links(cluster, group(job(cluster, tp=8), Axis.TP))
        assert links.chain == links.intra
        links = group_links(cluster, flat_group(cluster, 8 * nodes))
        assert links.chain == pytest.approx(links.intra * 8 / 7)


@pytest.mark.parametrize(("ranks", "times"), [(2, 1.0), (4, 1.0), (8, 1.0), (16, 2.0), (32, 2.0)])
def test_a_ring_passes_each_chip_of_a_torus_once(ranks: int, times: float) -> None:
    """trn1: 16 chips of two cores, 4 x 4, four links each. Eight cores lie on one axis, which has half of the links of the chip."""
    cluster = load_cluster("aws-trn1").model_copy(update={"gpus": 32})
    links = group_links(cluster, flat_group(cluster, ranks))
    assert links.intra == pytest.approx(96e9 * times)
    alone = cluster.node.scale_up.model_copy(update={"chip": 1})
    own = cluster.model_copy(update={"node": cluster.node.model_copy(update={"scale_up": alone})})
    assert group_links(own, flat_group(own, ranks)).intra == pytest.approx(96e9)


def test_a_chain_of_two_in_each_node_of_a_full_mesh() -> None:
    """Each of two neighbours has one link to the other: a ring takes one part of two, a chain through nodes both."""
    cluster = machine("cdna3", 16)
    shape = group(job(cluster, tp=4), Axis.DP)
    links = group_links(cluster, shape)
    assert (shape.per_node, shape.nodes) == (2, 2) and links.chain == pytest.approx(links.intra * 2)
