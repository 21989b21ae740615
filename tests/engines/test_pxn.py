"""PXN keeps messages of an all-to-all on their rail: it never costs, and gains where rails cross above thin leaves."""

from __future__ import annotations

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.fidelity import CLOSED, FLOW, PACKET
from windtunnel.network import collective, flat_group
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.network.simulate.collective import run_collective
from windtunnel.spec import Cluster, load_cluster
from windtunnel.workload.ops import Comm


def cluster(name: str = "h100-roce", **fabric: object) -> Cluster:
    base = load_cluster(name)
    return base.model_copy(update={"fabric": base.fabric.model_copy(update=fabric)})


def seconds(machine: Cluster, gpus: int, size: float, network: str, **variables: int) -> float:
    settings = parse_settings(variables)
    if network == CLOSED:  # as it is priced, with what the fabric leaves it
        return collective(machine, Comm.ALL_TO_ALL, size, flat_group(machine, gpus), settings=settings).seconds
    return run_collective(machine, Comm.ALL_TO_ALL, size, flat_group(machine, gpus), network=network, settings=settings).seconds


@pytest.mark.parametrize("network", [CLOSED, FLOW, PACKET])
@pytest.mark.parametrize("over", [1.0, 4.0])
@pytest.mark.parametrize("leaf_nodes", [2, 32])
def test_pxn_gains_in_every_engine(network: str, over: float, leaf_nodes: int) -> None:
    """Without congestion control that reacts late: DCQCN with a NIC's constants leaves links idle for reasons of its own."""
    machine = cluster(oversubscription=over, leaf_nodes=leaf_nodes, congestion="swift")
    for size in (2.0**20, 2.0**24):
        on, off = (seconds(machine, 64, size, network, NCCL_PXN_DISABLE=disable) for disable in (0, 1))
        assert on < off, size


def test_what_it_gains_at_four_to_one_is_what_it_keeps_below_the_leaves() -> None:
    """Eight nodes in pairs: 6/7 of the traffic goes up with PXN, all but 1/56 without. Large messages, so that bytes decide."""
    machine, size = cluster(oversubscription=4.0, leaf_nodes=2), 2.0**30
    for network in (CLOSED, FLOW):
        on, off = (seconds(machine, 64, size, network, NCCL_PXN_DISABLE=disable) for disable in (0, 1))
        assert off / on == pytest.approx((55 / 56) / (6 / 7), rel=0.03), network


def test_without_pxn_one_rail_is_kept_by_cross_nic() -> None:
    machine = cluster(oversubscription=4.0, leaf_nodes=2)
    for network in (CLOSED, FLOW):
        crossing = seconds(machine, 64, 2.0**28, network, NCCL_PXN_DISABLE=1)
        assert seconds(machine, 64, 2.0**28, network, NCCL_PXN_DISABLE=1, NCCL_CROSS_NIC=0) < crossing


def test_each_variable_of_pxn_is_the_same_for_an_all_to_all() -> None:
    machine = cluster(oversubscription=4.0, leaf_nodes=2)
    for network in (CLOSED, FLOW):
        level = seconds(machine, 64, 2.0**24, network, NCCL_P2P_PXN_LEVEL=0)
        assert level == seconds(machine, 64, 2.0**24, network, NCCL_PXN_DISABLE=1)


def test_machines_that_never_have_pxn_do_not_change() -> None:
    for name in ("mi300x-roce", "a100-pcie"):
        machine = cluster(name)
        took = [seconds(machine, 16, 2.0**24, CLOSED, NCCL_PXN_DISABLE=disable) for disable in (0, 1)]
        assert took[0] == took[1]


@examples(25)
@given(
    st.sampled_from(["h100-roce", "h100-ib", "b200-ib", "a100-ib"]),
    st.integers(2, 8),
    st.sampled_from([1.0, 2.0, 4.0, 8.0]),
    st.sampled_from([1, 2, 4, 32]),
    st.integers(10, 30),
)
def test_pxn_is_never_slower(name: str, nodes: int, over: float, leaf_nodes: int, power: int) -> None:
    machine = cluster(name, oversubscription=over, leaf_nodes=leaf_nodes)
    for network in (CLOSED, FLOW):
        on, off = (seconds(machine, 8 * nodes, 2.0**power, network, NCCL_PXN_DISABLE=disable) for disable in (0, 1))
        assert on <= off * 1.001, network
