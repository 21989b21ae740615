"""The packet engine against theory: idle fabrics, incast, permutations beside other simulators, the exec core on top."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import EngineError
from windtunnel.engine import ProgramBuilder, _core, run
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.packet import (
    Detour,
    Faults,
    Flap,
    Loss,
    LossRecovery,
    Marking,
    PacketOptions,
    Spread,
    packet_network,
    plain_lanes,
    reroute,
    run_packets,
)  # fmt: skip
from windtunnel.engine.routes import NicChoice, RouteOptions, route
from windtunnel.network.fabrics.registry import parse_fabric

MTU = 4096
HPCC_FORK = PacketOptions(
    algorithm="dcqcn", ecn=(Marking(12.5e9, 400e3, 1600e3, 0.2),),
    parameters={
        "g": 1 / 256, "alpha_first": 1.0, "alpha_period": 1e-6, "cut_window": 4e-6, "min_factor": 0.0, "timer": 900e-6,
        "bytes": 0.0, "rai": 50e6 / 8, "rhai": 100e6 / 8, "rmin": 100e6 / 8, "echo": 1.0,
    },
)  # fmt: skip


def flows(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return tuple(np.array([int(r[c]) for r in rows]) for c in ("src", "dst", "bytes"))  # type: ignore[return-value]


@pytest.mark.parametrize(
    "fabric",
    ["fat_tree:k=4,link=400Gb/s", "rail:servers=4", "torus:sizes=4x4", "dragonfly"],
)
@pytest.mark.parametrize("size", [1, 4096, 100_000, 10_485_760])
def test_alone_on_its_links(fabric: str, size: int) -> None:
    """Store and forward along the path, packet by packet at its slowest link, and the ACK's way back."""
    graph = parse_fabric(fabric)
    paths = route(graph, [0], [graph.endpoints - 1], options=RouteOptions(nic=NicChoice.RAIL))
    got = run_packets(graph, paths, plain_lanes([0], [graph.endpoints - 1], [size]))
    rate, latency = graph.link_rate[paths.links], graph.link_latency[paths.links]
    first = min(size, MTU)
    want = (first / rate + latency).sum() + (size - first) / rate.min()
    assert got.delivered[0] == pytest.approx(want, rel=0.01)
    assert got.fct[0] == pytest.approx(want + (64 / rate + latency).sum(), rel=0.01)
    assert got.stats["data_packet_hops"] == got.stats["ack_packet_hops"] == len(paths.links) * -(-size // MTU)
    assert got.stats["events"] <= got.stats["data_packet_hops"] + got.stats["ack_packet_hops"] + 2


@pytest.mark.parametrize("options", [PacketOptions(), HPCC_FORK, PacketOptions(algorithm="hpcc"), PacketOptions(loss=Loss.CREDITS)])
def test_incast_fills_the_port(options: PacketOptions) -> None:
    graph = parse_fabric("fat_tree:k=4,link=100Gb/s")
    src = np.arange(1, 16)
    dst = np.zeros(15, int)
    got = run_packets(graph, route(graph, src, dst), plain_lanes(src, dst, np.full(15, 1 << 20)), options)
    bound = 15 * (1 << 20) / 12.5e9
    assert got.stats["drops"] == 0
    assert bound < got.delivered.max()
    if options.algorithm == "none":
        assert got.delivered.max() < 1.05 * bound


@pytest.mark.parametrize(
    ("options", "mean", "p99"),
    [(PacketOptions(xoff=15 * MTU, xon=12 * MTU), (540, 660), (850, 1150)), (HPCC_FORK, (1250, 1550), (2400, 3300))],
)
def test_permutation_beside_other_simulators(
    shared: Path, options: PacketOptions, mean: tuple[int, int], p99: tuple[int, int]
) -> None:
    """10 MB, 400 Gb/s: htsim with PFC alone has a mean of 601 us and p99 of 947 us, the HPCC fork of ns-3 with DCQCN 1398 and 2995,
    each for one draw of ECMP; bounds are wide because collisions differ by draw, and our paths are another draw."""
    graph = parse_fabric("fat_tree:k=8,link=400Gb/s")
    src, dst, size = flows(shared / "reality/network/perm_128_10MB.csv")
    got = run_packets(graph, route(graph, src, dst), plain_lanes(src, dst, size), options)
    assert mean[0] < got.fct.mean() * 1e6 < mean[1]
    assert p99[0] < np.quantile(got.fct, 0.99) * 1e6 < p99[1]
    assert got.stats["drops"] == got.stats["retransmits"] == 0


def test_empty_flows_and_flows_to_themselves() -> None:
    graph = parse_fabric("fat_tree:k=4")
    src, dst = [0, 3, 5], [1, 3, 5]
    got = run_packets(graph, route(graph, src, dst), plain_lanes(src, dst, [0, 1000, 0], begin=[1e-6, 2e-6, 3e-6]))
    assert 0 < got.fct[0] < 10e-6
    assert got.fct[1:].tolist() == [0, 0]
    none = run_packets(graph, route(graph, [], []), plain_lanes([], [], []))
    assert len(none.fct) == 0 and none.stats["events"] == 0


def test_series_follow_queue_and_rate() -> None:
    graph = parse_fabric("fat_tree:k=4,link=100Gb/s")
    src = [1, 2, 3]
    paths = route(graph, src, [0, 0, 0])
    last = int(paths.links[-1])
    options = replace(HPCC_FORK, sample=10e-6, sample_links=[last], sample_lanes=[0])
    got = run_packets(graph, paths, plain_lanes(src, [0, 0, 0], [4 << 20] * 3), options)
    series = got.series
    assert series.time[1] == pytest.approx(10e-6)
    assert series.queue.shape == (1, len(series.time)) and series.queue.max() <= got.link_peak[last]
    assert (np.diff(series.sent[0]) >= 0).all() and (np.diff(series.sent[0]) <= 12.5e9 * 10e-6 + MTU).all()
    assert series.rate[0, 1] == 12.5e9 and 0 < series.rate[0, series.rate[0] > 0].min() < 12.5e9
    assert (np.diff(series.acknowledged[0]) >= 0).all() and 0.9 < series.acknowledged[0, -1] / (4 << 20) <= 1


def test_cable_goes_down_and_lanes_take_another_way() -> None:
    graph = parse_fabric("fat_tree:k=4,link=100Gb/s")
    lanes = plain_lanes([0, 1], [15, 14], [4 << 20] * 2)
    paths = route(graph, lanes.src, lanes.dst)
    flaps = [Flap(50e-6, int(paths.links[2]), False), Flap(400e-6, int(paths.links[2]), True)]
    longer, detours = reroute(graph, paths, lanes, flaps, after=20e-6)
    assert detours[0].time == pytest.approx(70e-6) and detours[-1].path < 2 and len(longer) > 2
    faults = Faults(flaps=flaps, detours=detours)
    got = run_packets(graph, longer, lanes, PacketOptions(timeouts=[100e-6]), faults, rows=[0, 1])
    stuck = run_packets(graph, paths, lanes, PacketOptions(timeouts=[100e-6]), Faults(flaps=flaps))
    assert got.stats["losses"] > 0 and got.fct[0] < stuck.fct[0]
    with pytest.raises(EngineError, match="a detour names path 99"):
        run_packets(graph, paths, lanes, faults=Faults(detours=[Detour(0, 0, 99)]))


@pytest.mark.parametrize("spread", [Spread.ROUND, Spread.RANDOM, Spread.ADAPTIVE])
def test_spraying_beats_colliding_paths(spread: Spread) -> None:
    graph = parse_fabric("fat_tree:k=4,link=100Gb/s")
    src, dst = np.arange(16), (np.arange(16) + 8) % 16
    paths, lanes = route(graph, src, dst), plain_lanes(src, dst, np.full(16, 1 << 20))
    hashed = run_packets(graph, paths, lanes)
    sprayed = run_packets(graph, paths, lanes, PacketOptions(spread=spread, recovery=LossRecovery.SELECTIVE))
    assert sprayed.fct.max() < 0.8 * hashed.fct.max()
    assert sprayed.stats["retransmits"] == 0 and sprayed.stats["out_of_order"] > 0


def ring(n: int, size: int, pieces: int) -> Lanes:
    """Each rank sends `pieces` slices on, the first at once and each other when one has come."""
    begin, one = np.zeros(n), np.ones(n, np.int32)
    return Lanes(
        src=np.arange(n, dtype=np.int32), dst=((np.arange(n) + 1) % n).astype(np.int32), bytes=np.full(n, size * pieces),
        slice=np.full(n, size), window=0 * one, delay=begin, rate=np.full(n, np.inf), begin=begin, group=0 * one,
        dep_start=np.arange(n + 1, dtype=np.int64), dep_lane=((np.arange(n) - 1) % n).astype(np.int32),
        dep_lead=np.ones(n, np.int64),
    )  # fmt: skip


def test_ring_of_lanes_advances_in_step() -> None:
    graph = parse_fabric("fat_tree:k=4,link=100Gb/s")
    lanes = ring(16, 65536, 8)
    got = run_packets(graph, route(graph, lanes.src, lanes.dst), lanes)
    step = 65536 / 12.5e9
    assert 8 * step < got.delivered.max() < 8 * (step + 12e-6)


@pytest.mark.parametrize("control", ["none", "dcqcn"])
def test_skipping_a_steady_ring(control: str) -> None:
    graph = parse_fabric("fat_tree:k=4,link=100Gb/s")
    lanes = ring(16, 65536, 3000)  # paths collide, so the pattern takes some slices to repeat
    paths = route(graph, lanes.src, lanes.dst)
    options = PacketOptions(algorithm=control, ecn=(Marking(12.5e9, 400e3, 1600e3, 0.2),))
    whole = run_packets(graph, paths, lanes, options)
    quick = run_packets(graph, paths, lanes, replace(options, skip=True))
    assert quick.stats["data_packet_hops"] < 0.1 * whole.stats["data_packet_hops"]
    assert quick.skipped_share > 0.9 and whole.skipped_share == 0
    assert quick.delivered == pytest.approx(whole.delivered, rel=0.01)
    assert (quick.link_data == whole.link_data).all()
    assert abs(quick.end - whole.end) <= quick.skip_error + 0.01 * whole.end


def test_what_is_not_steady_is_not_skipped() -> None:
    graph = parse_fabric("fat_tree:k=4,link=100Gb/s")
    lanes = plain_lanes([0, 1, 2], [9, 9, 10], [1 << 20, 1 << 20, 1 << 20])
    paths = route(graph, lanes.src, lanes.dst)
    whole, quick = (run_packets(graph, paths, lanes, PacketOptions(skip=skip)) for skip in (False, True))
    assert quick.skipped_share == 0 and (quick.acked == whole.acked).all()


def test_a_step_runs_over_packets() -> None:
    graph = parse_fabric("fat_tree:k=4,link=100Gb/s")
    lanes = plain_lanes([0, 1], [15, 14], [1 << 20, 1 << 20])
    network = packet_network(graph, route(graph, lanes.src, lanes.dst), lanes, [0, 1, 2], [7, 8], [0, 1])
    assert isinstance(network, _core.Network)
    builder = ProgramBuilder(categories=1)
    ranks = [builder.rank() for _ in range(2)]
    for rank in ranks:
        sent = rank.add_rendezvous(stream=0, parts=[(7, 1.0, 2)], waits=[], cat_wait=0, cat_transfer=0)
        rank.add_rendezvous(stream=0, parts=[(8, 1.0, 2)], waits=[sent], cat_wait=0, cat_transfer=0)
    alone = (1 << 20) / 12.5e9
    assert run(builder.build(), network=network).makespan == pytest.approx(2 * alone, rel=0.15)
    assert network.report()["starts"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mtu": 0}, "mtu is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"algorithm": "nonsense"}, "nonsense"),
        ({"buffer": 10e3}, "smaller than the reserves"),
        ({"ecn": [Marking(0, 10, 5, 1)]}, "kmax is 5"),
        ({"timeouts": []}, "no retransmission timeout"),
        ({"sample_links": [9999]}, "name link 9999"),
    ],
)
def test_wrong_options_are_named(change: dict[str, object], message: str) -> None:
    graph = parse_fabric("fat_tree:k=4")
    with pytest.raises(EngineError, match=message):
        run_packets(graph, route(graph, [0], [1]), plain_lanes([0], [1], [10]), PacketOptions(**change))  # type: ignore[arg-type]


def test_progress_may_stop_a_run() -> None:
    graph = parse_fabric("fat_tree:k=4")
    shares: list[float] = []

    def stop(share: float) -> None:
        shares.append(share)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_packets(graph, route(graph, [0], [15]), plain_lanes([0], [15], [10**9]), progress=stop)
    assert 0 < shares[0] < 1
