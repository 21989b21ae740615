"""A NIC with two ports of 200 Gb/s is as fast as one with a port of 400: HPN does not fall behind DCN+ or plain RoCE."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.engine.routes import NicChoice, Policy, RouteOptions
from windtunnel.network import flat_group
from windtunnel.network.fabrics import cluster_graph
from windtunnel.network.simulate.collective import route_call, run_collective
from windtunnel.network.simulate.ports import exits, route_by_port
from windtunnel.spec.loading.load import load_cluster
from windtunnel.workload.ops import Comm

DUAL = ("hpn7", "hpn7-single-plane", "dcn-plus-dual-tor")
SINGLE = ("roce", "dcn-plus")


def seconds(fabric: str, network: str, comm: Comm, size: float, gpus: int) -> float:
    cluster = load_cluster("h100-roce", [f"fabric={fabric}"])
    return run_collective(cluster, comm, size, flat_group(cluster, gpus), network=network).seconds


@pytest.mark.parametrize("network", ["flow", "packet"])
@pytest.mark.parametrize(("comm", "size"), [(Comm.ALL_REDUCE, 6.4e7), (Comm.ALL_GATHER, 6.4e7), (Comm.SEND_RECV, 1e7)])
def test_two_ports_are_as_fast_as_one_of_their_sum(network: str, comm: Comm, size: float) -> None:
    best = min(seconds(fabric, network, comm, size, 32) for fabric in SINGLE)
    for fabric in DUAL:
        assert seconds(fabric, network, comm, size, 32) <= best * 1.01, fabric


def test_each_message_is_split_over_the_ports_from_port_to_port() -> None:
    cluster = load_cluster("h100-roce", ["fabric=dcn-plus-dual-tor"])
    routed = route_call(cluster, Comm.ALL_GATHER, 1e8, flat_group(cluster, 64))
    at = exits(routed.links.graph, routed.paths)
    outside = at.leaves >= 0
    assert outside.any() and (at.leaves == at.arrives).all()
    bytes_ = [routed.lanes.bytes[outside & (at.leaves == port)].sum() for port in (0, 1)]
    assert bytes_[0] == bytes_[1] > 0
    assert float(routed.lanes.rate[outside].max()) <= cluster.node.nic.bandwidth  # type: ignore[union-attr]


def test_keys_are_changed_until_nic_and_port_are_right() -> None:
    cluster = load_cluster("h100-roce", ["fabric=hpn7-single-plane"])
    placed = cluster_graph(cluster, 4)
    src = np.arange(16, dtype=np.int32)
    dst = (src + 16).astype(np.int32)
    for part in (0, 1):
        options = RouteOptions(Policy.ECMP, NicChoice.NEAREST)
        parts = np.full(16, part)
        found = exits(placed.graph, route_by_port(placed.graph, src, dst, np.arange(16, dtype=np.uint64), options, parts, ports=2))
        assert (found.leaves == part).all() and (found.arrives == part).all()
