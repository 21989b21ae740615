"""Do the three fidelities agree about a call that is alone on its links, and does no link carry more than it can?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from windtunnel.base.errors import SpecError
from windtunnel.engine.graph import NodeKind
from windtunnel.engine.packet import run_packets
from windtunnel.network import flat_group
from windtunnel.network.api import collective
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.network.simulate.collective import route_call, run_collective
from windtunnel.network.simulate.packets import packet_options, settle_delays
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm

MACHINES = [("h100-ib", 8), ("h100-ib", 16), ("aws-p4d", 16), ("aws-p5", 16), ("dgx-1v", 8)]


@pytest.mark.parametrize(("name", "gpus"), MACHINES)
@pytest.mark.parametrize("comm", [Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.ALL_TO_ALL])
def test_engines_agree_with_the_closed_form(name: str, gpus: int, comm: Comm) -> None:
    if name == "dgx-1v" and comm == Comm.ALL_TO_ALL:
        pytest.skip("GPUs of a cube mesh that are not neighbours send over others, which the closed form leaves out")
    cluster = load_cluster(name)
    group = flat_group(cluster, gpus)
    for size in (1024.0, 2.0**20, 2.0**25):
        alone = run_collective(cluster, comm, size, group, network="closed").seconds
        assert run_collective(cluster, comm, size, group, network="flow").seconds == pytest.approx(alone, rel=0.01)
        # Sends of an all-to-all meet on the NIC, where a packet waits for those of the others.
        close = 0.08 if comm == Comm.ALL_TO_ALL else 0.001
        assert run_collective(cluster, comm, size, group, network="packet").seconds == pytest.approx(alone, rel=close)


@pytest.mark.parametrize(("name", "gpus"), [("dgx-1v", n) for n in range(2, 8)])
def test_engines_agree_on_every_mesh(name: str, gpus: int) -> None:
    """Five GPUs of the cube mesh have no cycle of links; theirs goes through GPU 0 twice, as NCCL's does."""
    cluster = load_cluster(name)
    group = flat_group(cluster, gpus)
    took = [run_collective(cluster, Comm.ALL_REDUCE, 2.0**24, group, network=n).seconds for n in ("closed", "flow", "packet")]
    assert took[1:] == pytest.approx([took[0]] * 2, rel=0.001)


def test_a_packet_of_any_length_tells_the_same_of_a_call_alone() -> None:
    cluster = load_cluster("aws-p5")
    group = flat_group(cluster, 16)
    alone = run_collective(cluster, Comm.ALL_REDUCE, 2.0**25, group, network="closed").seconds
    for mtu in (1024, 4096, 32768):
        found = run_collective(cluster, Comm.ALL_REDUCE, 2.0**25, group, network="packet", mtu=mtu).seconds
        assert found == pytest.approx(alone, rel=0.001)


def test_what_meets_on_a_link_is_not_hidden_by_holds() -> None:
    """A ring over NICs of an eighth of their rate is bound by them, whatever its hops were fitted with."""
    cluster = load_cluster("h100-ib")
    routed = route_call(cluster, Comm.ALL_REDUCE, 2.0**25, flat_group(cluster, 16), algorithm="ring")
    graph = routed.links.graph
    nics = np.isin(graph.link_from, graph.nics) & (graph.node_kind[graph.link_to] == NodeKind.SWITCH)
    slow = replace(graph, link_rate=np.where(nics, graph.link_rate / 8, graph.link_rate))
    took = []
    for links in (graph, slow):
        lanes = settle_delays(links, routed.paths, routed.lanes, 4096)
        took.append(float(run_packets(links, routed.paths, lanes, packet_options(cluster, 4096)).delivered.max()))
    moved = np.repeat(routed.lanes.bytes, np.diff(routed.paths.start))
    crossing = np.bincount(routed.paths.links, weights=moved, minlength=graph.links)
    assert took[1] >= float((crossing / slow.link_rate).max())
    assert took[1] > 2 * took[0]


@pytest.mark.parametrize("network", ["flow", "packet"])
@pytest.mark.parametrize("algorithm", [None, "ring", "tree", "halving_doubling", "hierarchical", "direct"])
def test_no_link_carries_more_than_its_capacity(network: str, algorithm: str | None) -> None:
    cluster = load_cluster("h100-ib")
    ran = run_collective(cluster, Comm.ALL_REDUCE, 2.0**23, flat_group(cluster, 32), network=network, algorithm=algorithm)
    assert (ran.link_bytes <= ran.graph.link_rate * ran.seconds * (1 + 1e-9)).all()
    lanes = ran.lowered.lanes.bytes.sum()
    first = np.isin(ran.graph.link_from, ran.graph.endpoint) & (ran.link_bytes > 0)
    assert ran.link_bytes[first].sum() >= lanes * (1 - 1e-9)  # every byte leaves its sender


def test_seeds_draw_other_paths_and_the_same_one_the_same() -> None:
    cluster = load_cluster("h100-ib")
    group = flat_group(cluster, 64 * 8)
    settings = parse_settings({"NCCL_ALGO": "Ring"})
    paths = [route_call(cluster, Comm.ALL_TO_ALL, 2.0**30, group, settings=settings, seed=seed).paths.links for seed in (1, 1, 2)]
    assert (paths[0] == paths[1]).all()
    assert len(paths[0]) != len(paths[2]) or (paths[0] != paths[2]).any()


def test_messages_are_striped_over_the_nics_of_a_gpu() -> None:
    cluster = load_cluster("aws-p5")
    routed = route_call(cluster, Comm.ALL_REDUCE, 2.0**28, flat_group(cluster, 16))
    graph = routed.links.graph
    load = np.bincount(
        routed.paths.links, weights=np.repeat(routed.lanes.bytes, np.diff(routed.paths.start)), minlength=graph.links
    )
    nics = np.isin(graph.link_from, graph.nics) & ~np.isin(graph.node_kind[graph.link_to], [2, 4])
    assert load[nics].min() == pytest.approx(load[nics].max(), rel=0.01)


@pytest.mark.parametrize("op", ["all_reduce", "all_to_all"])
def test_threads_change_no_collective(op: str) -> None:
    one, two, three = (collective("h100-ib", op, 32, "64K,1M", network="packet", threads=n) for n in (1, 2, 3))
    assert one == two == three
    with pytest.raises(SpecError, match="--threads"):
        collective("h100-ib", op, 32, "64K", network="packet", threads=0)
