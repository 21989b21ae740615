"""More NVLink, more or faster NICs, more channels allowed: no call is slower in closed form, over flows or over packets."""

from __future__ import annotations

from drawn import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from windtunnel.base.fidelity import CLOSED, FLOW, PACKET
from windtunnel.network import collective, flat_group
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.network.simulate.collective import run_collective
from windtunnel.spec import Cluster, load_cluster
from windtunnel.workload.ops import Comm

CALLS = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.SEND_RECV, Comm.BROADCAST)
NAMES = ("h100-ib", "h100-roce", "h800-ib", "a100-ib", "aws-p4d", "aws-p5", "b200-ib", "b200-roce", "dgx-2", "gb200-nvl72")
SLOWER = {CLOSED: 1e-3, FLOW: 2e-3, PACKET: 2e-3}
"""Share by which more may be slower: rounding to whole bytes and slices of the engines."""


def scaled(cluster: Cluster, what: str) -> Cluster:
    node = cluster.node
    if what == "NVLink":
        up = node.scale_up.model_copy(update={"bandwidth": 2 * node.scale_up.bandwidth})
        return cluster.model_copy(update={"node": node.model_copy(update={"scale_up": up})})
    assert node.nic is not None
    field = {"NICs": {"count": 2 * node.nic.count}, "faster NICs": {"bandwidth": 2 * node.nic.bandwidth}}[what]
    return cluster.model_copy(update={"node": node.model_copy(update={"nic": node.nic.model_copy(update=field)})})


def seconds(cluster: Cluster, comm: Comm, size: float, group: Group, network: str, **variables: int) -> float:
    settings = parse_settings(variables)
    if network == CLOSED:
        return collective(cluster, comm, size, group, settings=settings).seconds
    return run_collective(cluster, comm, size, group, network=network, settings=settings).seconds


def compare(name: str, comm: Comm, size: float, gpus: int, per_node: int | None, networks: tuple[str, ...]) -> list[str]:
    cluster = load_cluster(name)
    group = flat_group(cluster, gpus, per_node)
    slower = []
    for network in networks:
        before = seconds(cluster, comm, size, group, network)
        for what in ("NVLink", *(("NICs", "faster NICs") if group.nodes > 1 and cluster.node.nic else ())):
            after = seconds(scaled(cluster, what), comm, size, group, network)
            if after > before * (1 + SLOWER[network]):
                slower.append(f"{network}: {what}: {before:.6g} -> {after:.6g}")
        times = [seconds(cluster, comm, size, group, network, NCCL_MAX_NCHANNELS=count) for count in (2, 8, 32)]
        times.append(before)
        if any(b > a * (1 + SLOWER[network]) for a, b in zip(times, times[1:], strict=False)):
            slower.append(f"{network}: channels: {times}")
    return slower


@examples(120)
@given(
    st.sampled_from(NAMES), st.sampled_from(CALLS), st.floats(8.0, 30.0), st.sampled_from([2, 4, 8, 16, 24, 32]),
    st.sampled_from([None, 1, 2, 4]),
)  # fmt: skip
def test_more_is_never_slower(name: str, comm: Comm, power: float, gpus: int, per_node: int | None) -> None:
    cluster = load_cluster(name)
    nodes, nic = cluster.gpus // 8, cluster.node.nic if cluster.fabric.topology != "none" else None
    assume(nic is not None or per_node is None and gpus <= 16)
    # GPUs that share a NIC send through it, and the closed form gives each group as many NICs as it has GPUs.
    assume(per_node is None or (gpus % per_node == 0 and gpus // per_node <= nodes and nic is not None and nic.count >= 8))
    assert compare(name, comm, float(int(2.0**power)), gpus, per_node, (CLOSED, FLOW)) == []


@examples(12)
@given(st.sampled_from(NAMES[:8]), st.sampled_from(CALLS), st.floats(10.0, 23.0), st.sampled_from([2, 8, 16]))
def test_nor_is_it_packet_by_packet(name: str, comm: Comm, power: float, gpus: int) -> None:
    assume(load_cluster(name).node.nic is not None or gpus <= 16)
    assert compare(name, comm, float(int(2.0**power)), gpus, None, (PACKET,)) == []
