"""The closed form against packets that know none of its constants: NCCL's ring and its slices on the links' own rates.

Lanes usually carry the closed form's rate and delays, so that a call alone on its links takes the closed form's time by
construction. Here they carry neither: no launch, no hop, no share of a link that a protocol reaches. What is left is what the links
allow, and the closed form may not be faster than that. Of what it says beyond its latency the links explain most.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from windtunnel.engine.packet import run_packets
from windtunnel.network import collective, flat_group
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.network.simulate.collective import route_call
from windtunnel.network.simulate.packets import packet_options
from windtunnel.spec.loading.load import load_cluster
from windtunnel.workload.ops import Comm

RING = parse_settings({"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"})


@pytest.mark.parametrize("name", ["h100-ib", "a100-ib"])
@pytest.mark.parametrize("gpus", [8, 16, 32])
def test_the_closed_form_is_not_faster_than_the_links(name: str, gpus: int) -> None:
    cluster = load_cluster(name)
    group, size = flat_group(cluster, gpus), 2.0**28
    routed = route_call(cluster, Comm.ALL_REDUCE, size, group, settings=RING)
    lanes = len(routed.lanes)
    plain = replace(routed.lanes, rate=np.full(lanes, np.inf), delay=np.zeros(lanes), begin=np.zeros(lanes))
    options = packet_options(cluster, 32768, RING)
    links = float(run_packets(routed.links.graph, routed.paths, plain, options).delivered.max())
    closed = collective(cluster, Comm.ALL_REDUCE, size, group, settings=RING)
    assert links <= closed.seconds
    assert 0.7 <= links / (closed.seconds - closed.latency) <= 1.0
