"""Does a call that is alone on its links take the closed form's time when its lanes are played slice by slice?"""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.network import collective, flat_group
from windtunnel.network.lanes.build import lanes_of
from windtunnel.network.lanes.timing import seconds
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm

ENDS = np.arange(300, dtype=np.int32)
SIZES = (8, 4096, 2**17, 2**20, 2**24, 2**28)


@pytest.mark.parametrize("comm", [Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.SEND_RECV])
@pytest.mark.parametrize(("name", "gpus", "per_node"), [
    ("h100-ib", 8, 8), ("h100-ib", 16, 8), ("aws-p4d", 8, 8), ("aws-p4d", 16, 8), ("dgx-1v", 8, 8), ("h100-ib", 4, 1),
    ("gb200-nvl72", 16, 16),
])  # fmt: skip
def test_lanes_take_the_closed_forms_seconds(comm: Comm, name: str, gpus: int, per_node: int) -> None:
    cluster = load_cluster(name)
    group = flat_group(cluster, gpus, per_node)
    for size in SIZES:
        made = lanes_of(cluster, comm, size, ENDS[:gpus], group, switches=ENDS[gpus : gpus + group.nodes])
        assert seconds(made.lanes) == pytest.approx(collective(cluster, comm, size, group).seconds, rel=0.01)


@pytest.mark.parametrize("algorithm", ["ring", "tree", "nvls_tree", "collnet_direct", "collnet_chain"])
def test_every_algorithm_that_the_closed_form_prices(algorithm: str) -> None:
    cluster = load_cluster("h100-ib")
    group = flat_group(cluster, 16)
    for size in SIZES:
        made = lanes_of(cluster, Comm.ALL_REDUCE, size, ENDS[:16], group, algorithm=algorithm, switches=ENDS[16:100])
        # Of CollNet the closed form leaves out part of the fill; nothing was measured that could decide.
        assert seconds(made.lanes) == pytest.approx(made.seconds, rel=0.1 if algorithm.startswith("collnet") else 0.02)


def test_a_thousand_ranks_are_columns() -> None:
    cluster = load_cluster("h100-ib")
    ranks = np.arange(1024, dtype=np.int32)
    group = flat_group(cluster, 1024)
    assert len(lanes_of(cluster, Comm.ALL_REDUCE, 2.0**30, ranks, group, algorithm="ring").lanes) == 16 * 1024
    assert len(lanes_of(cluster, Comm.ALL_TO_ALL, 2.0**30, ranks, group).lanes) == 1024 * 1023
