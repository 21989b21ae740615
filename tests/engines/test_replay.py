"""Patterns of transfers that are simulated once: beside a run that simulates all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from windtunnel.base.errors import EngineError
from windtunnel.engine import Program, ProgramBuilder, _core, run
from windtunnel.engine.graph import Graph
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.packet import (
    Faults,
    Flap,
    LossRecovery,
    Marking,
    PacketOptions,
    Spread,
    packet_network,
    plain_lanes,
    reroute,
)
from windtunnel.engine.routes import NicChoice, RouteOptions, route
from windtunnel.network.fabrics.registry import parse_fabric

STAGES, GPUS, ROUNDS, SIZE = 4, 8, 40, 1_000_000
OPTIONS = PacketOptions(algorithm="dcqcn", ecn=(Marking(12.5e9, 100e3, 400e3, 0.2),))


def pipeline(compute: list[float]) -> Program:
    """Each round every stage computes and then sends to the next one, while it goes on: 3 transfers a round, at once or nearly so.
    Key: round * STAGES + stage."""
    builder = ProgramBuilder(categories=1)
    ranks = [builder.rank() for _ in range(STAGES)]
    for n in range(ROUNDS):
        for s, rank in enumerate(ranks):
            task = builder.add_template(seconds=[compute[n * STAGES + s]], category=[0], stream=[0])
            key = n * STAGES + s
            got = [rank.add_rendezvous(stream=1, parts=[(key - 1, 1.0, 2)], waits=[], cat_wait=0, cat_transfer=0)] if s else []
            done = rank.add(task, waits=got)
            if s + 1 < STAGES:
                rank.add_rendezvous(stream=2, parts=[(key, 1.0, 2)], waits=[done], cat_wait=0, cat_transfer=0)
    return builder.build()


def cluster() -> tuple[Graph, Lanes, list[int], list[int], list[int]]:
    """Plan s: all GPUs of server s send to their like in the next one, over leaf switches of two servers, four to one."""
    graph = parse_fabric(f"rail:servers={STAGES},leaf_servers=2,oversubscription=4,link=100Gb/s")
    src = [s * GPUS + g for s in range(STAGES - 1) for g in range(GPUS)]
    lanes = plain_lanes(src, [e + GPUS for e in src], np.full(len(src), SIZE))
    keys = [n * STAGES + s for n in range(ROUNDS) for s in range(STAGES - 1)]
    return graph, lanes, [GPUS * s for s in range(STAGES)], keys, [key % STAGES for key in keys]


def network(skip: float | None, options: PacketOptions = OPTIONS) -> _core.PacketNetwork | _core.ReplayNetwork:
    graph, lanes, starts, keys, plans = cluster()
    paths = route(graph, lanes.src, lanes.dst, options=RouteOptions(nic=NicChoice.RAIL))
    return packet_network(graph, paths, lanes, starts, keys, plans, options, skip=skip)


@pytest.mark.parametrize("jitter", [0.0, 1e-3])
def test_repeated_pattern_is_simulated_once(jitter: float) -> None:
    draw = np.random.default_rng(1).uniform(-jitter, jitter, ROUNDS * STAGES)
    program = pipeline((1e-3 * (1 + draw)).tolist())
    whole, part = network(None), network(0.01)
    want, got = run(program, network=whole), run(program, network=part)
    full, report = whole.report(), part.report()
    replay = report["replay"]
    assert replay["launches"] == ROUNDS * (STAGES - 1)
    assert replay["skipped_share"] >= 0.9 and replay["skipped_launches"] >= 0.9 * replay["launches"]
    hops = full["stats"]["data_packet_hops"]
    assert replay["simulated"]["data_packet_hops"] == pytest.approx((1 - replay["skipped_share"]) * hops)
    moved = np.isfinite(want.transfer_begin)
    took, near = (want.end - want.transfer_begin)[moved], (got.end - got.transfer_begin)[moved]
    assert np.abs(near / took - 1).mean() <= 0.01
    assert got.makespan == pytest.approx(want.makespan, rel=1e-3)
    assert np.array_equal(report["link_data"], full["link_data"])
    assert report["starts"].tolist() == full["starts"].tolist() == [ROUNDS] * (STAGES - 1)
    assert report["stats"]["data_packet_hops"] == hops
    assert report["link_control"].sum() == pytest.approx(full["link_control"].sum(), rel=1e-2)


def test_exact_replay_changes_nothing_but_last_acks() -> None:
    program = pipeline([1e-3] * (ROUNDS * STAGES))
    want, got = run(program, network=network(None)), run(program, network=(part := network(0.0)))
    assert got.makespan == pytest.approx(want.makespan, rel=1e-5)
    assert part.report()["replay"]["error_total_s"] == 0


def overlapping(begins: list[float]) -> Program:
    """Three rounds; in each, transfer i of plan 0 begins `begins[i]` later than in the one before."""
    builder = ProgramBuilder(categories=1)
    ranks = [builder.rank() for _ in begins]
    for n in range(3):
        for i, rank in enumerate(ranks):
            key = STAGES * (n * len(begins) + i)
            done = rank.add(builder.add_template(seconds=[0.01 + begins[i]], category=[0], stream=[0]))
            rank.add_rendezvous(stream=1, parts=[(key, 1.0, 1)], waits=[done], cat_wait=0, cat_transfer=0)
    return builder.build()


def test_transfers_on_the_same_links_are_simulated_together() -> None:
    program = overlapping([0.0, 5e-6])
    want, got = run(program, network=network(None)), run(program, network=(part := network(0.01)))
    moved = np.isfinite(want.transfer_begin)
    assert (got.end - got.transfer_begin)[moved] == pytest.approx((want.end - want.transfer_begin)[moved], rel=1e-3)
    assert part.report()["replay"]["patterns"] == 3  # 5, 10 and 15 us apart


@pytest.mark.parametrize("skip", [-0.5, 1.0, float("nan")])
def test_wrong_tolerance_is_named(skip: float) -> None:
    with pytest.raises(EngineError, match=f"tolerance is {skip:g}"):
        network(skip)


def faulty(skip: float | None, faults: Faults) -> _core.PacketNetwork | _core.ReplayNetwork:
    graph, lanes, starts, keys, plans = cluster()
    routes = RouteOptions(nic=NicChoice.RAIL)
    paths = route(graph, lanes.src, lanes.dst, options=routes)
    paths, detours = reroute(graph, paths, lanes, faults.flaps, 20e-6, routes)
    options = PacketOptions(timeouts=(300e-6,))  # without marks, whose draws go by the packets before
    return packet_network(graph, paths, lanes, starts, keys, plans, options, replace(faults, detours=detours), skip=skip)


@pytest.mark.parametrize("tier", ["server", "leaf"])
@pytest.mark.parametrize("lasts", [5e-6, 2e-3])
def test_faults_are_simulated_where_they_hit_and_patterns_recalled_elsewhere(tier: str, lasts: float) -> None:
    program = pipeline([1e-3] * (ROUNDS * STAGES))
    graph, lanes, *_ = cluster()
    path = route(graph, lanes.src, lanes.dst, options=RouteOptions(nic=NicChoice.RAIL))
    used = path.links[path.start[GPUS] : path.start[GPUS + 1]]
    outside = [int(link) for link in used if (graph.node_site[[graph.link_from[link], graph.link_to[link]]] < 0).any()]
    link = outside[0] if tier == "server" else outside[1]
    begin = 10e-3 + 30e-6
    faults = Faults(flaps=(Flap(begin, link, False), Flap(begin + lasts, link, True)))
    want, got = run(program, network=(whole := faulty(None, faults))), run(program, network=(part := faulty(0.0, faults)))
    clean = run(program, network=faulty(None, Faults())).makespan
    assert got.makespan == pytest.approx(want.makespan, rel=1e-5) and want.makespan >= clean
    assert part.report()["stats"]["losses"] == whole.report()["stats"]["losses"]
    assert part.report()["replay"]["skipped_share"] > 0.5


def test_lost_packets_are_simulated_wherever_they_may_be_lost() -> None:
    program = pipeline([1e-3] * (ROUNDS * STAGES))
    graph = cluster()[0]
    loss = np.where(graph.node_site[graph.link_from] == 0, 1e-4, 0.0)
    part = faulty(0.0, Faults(loss=loss))
    run(program, network=part)
    lost = part.report()["stats"]["losses"]
    sent = ROUNDS * GPUS * SIZE / 4096 * int((loss[route(graph, [0], [GPUS]).links] > 0).sum())
    assert 0.2 * 1e-4 * sent < lost < 5 * 1e-4 * sent
    assert 0.2 < part.report()["replay"]["skipped_share"] < 1.0


def test_what_cannot_meet_is_apart_where_packets_choose_their_way() -> None:
    """Servers of one leaf have one way to each other, so their transfers are repeated by themselves."""
    program = pipeline([1e-3] * (ROUNDS * STAGES))
    options = replace(OPTIONS, spread=Spread.ADAPTIVE, recovery=LossRecovery.SELECTIVE)
    whole, part = network(None, options), network(0.01, options)
    want, got = run(program, network=whole), run(program, network=part)
    replay = part.report()["replay"]
    assert replay["skipped_share"] > 0.9 and replay["episodes"] > ROUNDS
    assert got.makespan == pytest.approx(want.makespan, rel=0.005)
    assert part.report()["link_data"].sum() == pytest.approx(whole.report()["link_data"].sum(), rel=0.01)
