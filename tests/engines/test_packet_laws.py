"""What must hold in every packet run: bytes arrive once, no link beats its rate, nothing is lost where nothing may be, and the
number of threads changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.engine.packet import Faults, Loss, LossRecovery, Marking, PacketOptions, Spread, plain_lanes, run_packets
from windtunnel.engine.routes import route
from windtunnel.network.fabrics.registry import parse_fabric

FABRICS = ["fat_tree:k=4,link=100Gb/s", "torus:sizes=3x3", "rail:servers=3", "dragonfly"]
GRAPHS = {name: parse_fabric(name) for name in FABRICS}


@st.composite
def options(draw: st.DrawFn) -> PacketOptions:
    loss = draw(st.sampled_from(Loss))
    return PacketOptions(
        mtu=draw(st.sampled_from([512, 1500, 4096])), header=draw(st.sampled_from([0, 58])), loss=loss,
        buffer=draw(st.sampled_from([8e6, 32e6])), alpha=draw(st.sampled_from([0.125, 1.0])),
        ecn=draw(st.sampled_from([(), (Marking(12.5e9, 20e3, 80e3, 0.5),)])),
        algorithm=draw(st.sampled_from(["none", "dcqcn", "hpcc", "swift"])),
        recovery=draw(st.sampled_from(LossRecovery)), ack_every=draw(st.sampled_from([1, 4])),
        spread=draw(st.sampled_from([Spread.PATH, Spread.PATH, Spread.ROUND, Spread.ADAPTIVE])), timeouts=[300e-6, 1e-3],
        retries=200,
    )  # fmt: skip


@examples(15)
@given(st.data(), st.sampled_from(FABRICS), options(), st.integers(0, 2**31))
def test_laws(data: st.DataObject, fabric: str, chosen: PacketOptions, seed: int) -> None:
    graph = GRAPHS[fabric]
    rng = np.random.default_rng(seed)
    n = data.draw(st.integers(1, 24))
    src, dst = rng.integers(0, graph.endpoints, n), rng.integers(0, graph.endpoints, n)
    size = rng.choice([0, 1, 4096, 50_000, 300_000], n)
    paths, lanes = route(graph, src, dst), plain_lanes(src, dst, size, begin=rng.choice([0.0, 5e-6, 20e-6], n))
    lossy = data.draw(st.booleans()) and chosen.spread is Spread.PATH
    faults = Faults(loss=np.full(graph.links, 2e-3)) if lossy else None
    got = run_packets(graph, paths, lanes, chosen, faults)

    assert (got.delivered >= lanes.begin).all() and (got.acked >= got.delivered).all()
    hops = np.diff(paths.start)
    packets = np.maximum(1, -(-size // chosen.mtu)) * (hops > 0)
    # without losses and repeats every packet crosses every link of its way exactly once
    if not lossy and chosen.loss is not Loss.DROP and chosen.recovery is LossRecovery.SELECTIVE and chosen.spread is Spread.PATH:
        assert got.stats["data_packet_hops"] == (packets * hops).sum()
    assert got.stats["data_packet_hops"] >= (packets * np.minimum(hops, 1)).sum()
    if not lossy and chosen.loss is not Loss.DROP:
        assert got.stats["drops"] == got.stats["losses"] == 0
    assert (got.link_data + got.link_control <= graph.link_rate * got.end * (1 + 1e-9) + 1).all()
    for lane in np.flatnonzero(hops):
        slowest = graph.link_rate[paths.links[paths.start[lane] : paths.start[lane + 1]]].min()
        assert got.delivered[lane] - lanes.begin[lane] >= size[lane] / slowest - 1e-12

    more = replace(chosen, threads=data.draw(st.sampled_from([2, 3, 8])))
    again = run_packets(graph, paths, lanes, more, faults)
    for name in ("delivered", "acked", "link_data", "link_control", "link_peak", "link_paused"):
        assert (getattr(got, name) == getattr(again, name)).all(), name
    assert {k: v for k, v in got.stats.items() if k != "cpu_s"} == {k: v for k, v in again.stats.items() if k != "cpu_s"}
