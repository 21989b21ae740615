"""NCCL's variables move the closed form, flows and packets the same way, with the sign that NCCL's users report."""

from __future__ import annotations

import pytest

from windtunnel.base.fidelity import CLOSED, FLOW, PACKET
from windtunnel.network import collective, flat_group
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.network.simulate.collective import run_collective
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm

EVERY = (CLOSED, FLOW, PACKET)


def seconds(name: str, comm: Comm, gpus: int, size: float, network: str, leaf: int | None = None, **variables: object) -> float:
    cluster = load_cluster(name)
    if leaf is not None:
        cluster = cluster.model_copy(update={"fabric": cluster.fabric.model_copy(update={"leaf_nodes": leaf})})
    settings, group = parse_settings({key: str(value) for key, value in variables.items()}), flat_group(cluster, gpus)
    if network == CLOSED:
        return collective(cluster, comm, size, group, settings=settings).seconds
    return run_collective(cluster, comm, size, group, network=network, settings=settings).seconds


@pytest.mark.parametrize("network", EVERY)
@pytest.mark.parametrize(("comm", "gpus"), [(Comm.ALL_GATHER, 8), (Comm.ALL_GATHER, 16), (Comm.ALL_TO_ALL, 8)])
def test_fewer_channels_take_longer(network: str, comm: Comm, gpus: int) -> None:
    """NVIDIA/nccl issues: a channel is one SM's copies; uccl-project/uccl issue 205: eight channels slow H100 nodes down."""
    counts = (32, 8, 2) if gpus == 8 else (32, 4, 1)  # eight channels still reach the eight NICs of a node
    took = [seconds("h100-ib", comm, gpus, 2.0**25, network, NCCL_MAX_NCHANNELS=count, NCCL_ALGO="Ring") for count in counts]
    assert took[0] < took[1] < took[2]


@pytest.mark.parametrize("network", EVERY)
@pytest.mark.parametrize("gpus", [8, 16])
def test_a_smaller_buffer_takes_longer(network: str, gpus: int) -> None:
    """NVIDIA/nccl issue 387: the larger the buffer, the better, up to some point; beyond NCCL's own nothing changes here."""

    def time(size: int) -> float:
        return seconds("h100-ib", Comm.ALL_GATHER, gpus, 2.0**25, network, NCCL_PROTO="Simple", NCCL_BUFFSIZE=size)

    assert time(2**22) < time(2**15) < time(2**14)
    assert time(2**24) == pytest.approx(time(2**22), rel=0.01)


@pytest.mark.parametrize("network", EVERY)
def test_more_queue_pairs_take_no_longer_where_paths_are_hashed(network: str) -> None:
    """NVIDIA/nccl issue 1015, Mellanox/nccl-rdma-sharp-plugins pull request 76: RoCE that hashes flows gains from more of them."""

    def time(pairs: int) -> float:
        variables = {"NCCL_PXN_DISABLE": 1, "NCCL_IB_QPS_PER_CONNECTION": pairs}
        return seconds("h100-roce", Comm.ALL_TO_ALL, 64, 2.0**25, network, 2, **variables)

    assert time(4) < time(1)


def test_queue_pairs_change_nothing_where_packets_take_all_paths() -> None:
    took = [seconds("h100-ib", Comm.ALL_GATHER, 64, 2.0**25, CLOSED, 2, NCCL_IB_QPS_PER_CONNECTION=pairs) for pairs in (1, 4)]
    assert took[0] == took[1]


@pytest.mark.parametrize("network", EVERY)
def test_a_protocol_or_an_algorithm_has_its_own_time_in_every_engine(network: str) -> None:
    took = {
        proto: seconds("h100-ib", Comm.ALL_REDUCE, 8, 2.0**26, network, NCCL_ALGO="Ring", NCCL_PROTO=proto)
        for proto in ("LL", "Simple")
    }
    assert took["Simple"] < took["LL"]
    assert seconds("h100-ib", Comm.ALL_REDUCE, 8, 2.0**26, network) < took["Simple"]  # NVLS
