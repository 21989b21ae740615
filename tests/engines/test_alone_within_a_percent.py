"""A call that meets nothing takes the same time in closed form, over flows and packet by packet."""

from __future__ import annotations

import pytest

from windtunnel.base.fidelity import CLOSED, FLOW, PACKET
from windtunnel.network import flat_group
from windtunnel.network.simulate.collective import run_collective
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm

CALLS = (Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.SEND_RECV)
GROUPS = ((8, None), (16, None), (16, 4), (2, 1), (32, None))


@pytest.mark.parametrize("name", ["h100-ib", "h100-roce", "a100-ib", "b200-ib", "aws-p5"])
@pytest.mark.parametrize("comm", CALLS)
def test_three_engines_agree_about_a_call_alone(name: str, comm: Comm) -> None:
    """Not of trees and of chains of many ranks, whose fill the closed form has otherwise (docs/collectives.md)."""
    cluster = load_cluster(name)
    for gpus, per_node in GROUPS:
        group = flat_group(cluster, gpus, per_node)
        for size in (4096.0, 2.0**20, 2.0**24):
            took = [run_collective(cluster, comm, size, group, network=engine).seconds for engine in (CLOSED, FLOW, PACKET)]
            assert took[1:] == pytest.approx([took[0]] * 2, rel=0.01), (gpus, per_node, size)
