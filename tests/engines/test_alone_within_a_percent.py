"""A call that meets nothing takes the same time in closed form, over flows and packet by packet."""

from __future__ import annotations

import random

import pytest

from windtunnel.base.errors import WindtunnelError
from windtunnel.base.fidelity import CLOSED, FLOW, PACKET
from windtunnel.network import flat_group
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.network.simulate.collective import run_collective
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm

CALLS = (Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.SEND_RECV)
GROUPS = ((8, None), (16, None), (16, 4), (2, 1), (32, None))
MACHINES = ("h100-ib", "h100-roce", "a100-ib", "b200-ib", "aws-p5", "h200-ib", "b300-ib")
OTHERS = (Comm.GATHER, Comm.SCATTER, Comm.BROADCAST, Comm.REDUCE)
ALGORITHMS = ("", "Ring", "Tree", "NVLS", "NVLSTree")
MOST = {"LL": 2.0**21, "LL128": 2.0**25, "Simple": 2.0**25, "": 2.0**25}
"""Bytes up to which a protocol is asked for: LL in slices of a few KiB is not a choice for more."""


@pytest.mark.parametrize("name", ["h100-ib", "h100-roce", "a100-ib", "b200-ib", "aws-p5"])
@pytest.mark.parametrize("comm", CALLS)
def test_three_engines_agree_about_a_call_alone(name: str, comm: Comm) -> None:
    cluster = load_cluster(name)
    for gpus, per_node in GROUPS:
        group = flat_group(cluster, gpus, per_node)
        for size in (4096.0, 2.0**20, 2.0**22):
            took = [run_collective(cluster, comm, size, group, network=engine).seconds for engine in (CLOSED, FLOW, PACKET)]
            assert took[1:] == pytest.approx([took[0]] * 2, rel=0.01), (gpus, per_node, size)


@pytest.mark.parametrize("seed", range(4))
def test_three_engines_agree_about_random_calls_alone(seed: int) -> None:
    """All operations, algorithms and protocols of NCCL on NVLink machines of several generations: rings, trees and chains."""
    drawn, ran = random.Random(seed), 0
    while ran < 25:
        cluster = load_cluster(drawn.choice(MACHINES))
        comm = drawn.choice((Comm.ALL_REDUCE, Comm.ALL_REDUCE, *CALLS, *OTHERS))
        algorithm = drawn.choice(ALGORITHMS) if comm == Comm.ALL_REDUCE else ""
        protocol, gpus = drawn.choice(("", "LL", "LL128", "Simple")), drawn.choice((4, 8, 16, 24, 32, 64))
        size = 2.0 ** drawn.uniform(10, 25)
        settings = parse_settings({k: v for k, v in (("NCCL_ALGO", algorithm), ("NCCL_PROTO", protocol)) if v})
        if size > MOST[protocol]:
            continue
        try:
            took = [
                run_collective(cluster, comm, size, flat_group(cluster, gpus), network=engine, settings=settings).seconds
                for engine in (CLOSED, FLOW, PACKET)
            ]
        except WindtunnelError:  # a choice that the machine does not have
            continue
        ran += 1
        assert took[1:] == pytest.approx([took[0]] * 2, rel=0.02), (cluster.id, comm, algorithm, protocol, gpus, size)


@pytest.mark.parametrize("gpus", [16, 32, 64])
@pytest.mark.parametrize("comm", [Comm.ALL_GATHER, Comm.REDUCE_SCATTER])
def test_rings_of_a_full_mesh_share_no_link(gpus: int, comm: Comm) -> None:
    cluster = load_cluster("mi300x-roce")
    for size in (2.0**14, 2.0**22, 2.0**26):
        took = [run_collective(cluster, comm, size, flat_group(cluster, gpus), network=e).seconds for e in (CLOSED, FLOW, PACKET)]
        assert took[1:] == pytest.approx([took[0]] * 2, rel=0.01), size
