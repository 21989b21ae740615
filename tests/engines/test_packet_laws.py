"""What must hold in every packet run: bytes arrive once, no link beats its rate, nothing is lost where nothing may be, and the
number of threads changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.engine.packet import (
    Faults,
    Flap,
    Loss,
    LossRecovery,
    Marking,
    PacketOptions,
    PacketResult,
    Spread,
    plain_lanes,
    reroute,
    run_packets,
)
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
    check_equal(got, run_packets(graph, paths, lanes, more, faults))


def check_equal(got: PacketResult, again: PacketResult) -> None:
    for name in ("delivered", "acked", "link_data", "link_control", "link_peak", "link_paused"):
        assert (getattr(got, name) == getattr(again, name)).all(), name
    assert {k: v for k, v in got.stats.items() if k != "cpu_s"} == {k: v for k, v in again.stats.items() if k != "cpu_s"}


@st.composite
def fabrics(draw: st.DrawFn) -> str:
    """Fabrics of equal links, where many things happen at one moment."""
    some = [
        "fat_tree:k=4",
        "dragonfly:p=2,a=4,h=2",
        "dragonfly_plus:p=2,leaves=2,spines=2,h=4",
        "hpn:servers=4",
        "rail:servers=4",
        "ndim",
    ]
    return draw(st.one_of(st.builds("torus:sizes={}x{}".format, st.integers(2, 4), st.integers(1, 4)), st.sampled_from(some)))


@examples(25)
@given(st.data(), fabrics(), options(), st.integers(0, 2**31))
def test_threads_change_nothing(data: st.DataObject, fabric: str, drawn: PacketOptions, seed: int) -> None:
    """Lanes of one byte, which are smaller than a control frame, paces, gates, timeouts, losses and changes of path included."""
    graph = parse_fabric(fabric)
    rng = np.random.default_rng(seed)
    n = data.draw(st.integers(1, 24))
    src, dst = rng.integers(0, graph.endpoints, n), rng.integers(0, graph.endpoints, n)
    size = rng.choice([0, 1, 1, 4096, 50_000, 300_000], n)
    lanes = plain_lanes(src, dst, size, begin=rng.choice([0.0, 5e-6, 20e-6], n), rate=rng.choice([np.inf, 1e9, 6.25e9], n))
    if data.draw(st.booleans()):  # in slices, which a window and a delay hold back, with the least time to delivery
        lanes = replace(
            lanes, slice=rng.choice([5000, 65536], n), window=rng.choice([0, 1, 3], n).astype(np.int32),
            delay=rng.choice([0.0, 1e-6], n), hold=rng.choice([0.0, 1e-6, 1e-5], n),
        )  # fmt: skip
    chosen = replace(
        drawn, control=data.draw(st.sampled_from([1, 64, 1024])), spread=data.draw(st.sampled_from(Spread)), flowlet_gap=2e-6,
        sample=data.draw(st.sampled_from([0.0, 7e-6])), sample_links=[0], sample_lanes=[0], retries=250,
    )  # fmt: skip
    paths = route(graph, src, dst)
    flap = [Flap(10e-6, int(rng.integers(graph.links)), False), Flap(60e-6, 0, True)]
    flaps = [flap[0], flap[1]._replace(link=flap[0].link)] if data.draw(st.booleans()) else []
    paths, detours = reroute(graph, paths, lanes, flaps, 15e-6)
    lossy = data.draw(st.booleans())
    faults = Faults(flaps=flaps, detours=detours, loss=np.full(graph.links, 2e-3) if lossy else None)
    rows = np.arange(n)
    got = run_packets(graph, paths, lanes, chosen, faults, rows)
    threads = data.draw(st.sampled_from([2, 3, 8]))  # one of them: where the cores are busy, threads wait long for each other
    again = run_packets(graph, paths, lanes, replace(chosen, threads=threads), faults, rows)
    check_equal(got, again)
    for name in ("queue", "sent", "pauses", "rate", "acknowledged", "cnps"):
        assert (getattr(got.series, name) == getattr(again.series, name)).all(), name
