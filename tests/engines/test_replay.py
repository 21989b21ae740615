"""Patterns of transfers that are simulated once: beside a run that simulates all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from windtunnel.base.errors import EngineError
from windtunnel.engine import Program, ProgramBuilder, _core, run
from windtunnel.engine.graph import Graph
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.packet import Faults, LossRecovery, Marking, PacketOptions, Spread, packet_network, plain_lanes
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


def test_faults_are_refused() -> None:
    graph, lanes, starts, keys, plans = cluster()
    paths = route(graph, lanes.src, lanes.dst)
    with pytest.raises(EngineError, match="faults do not repeat"):
        packet_network(graph, paths, lanes, starts, keys, plans, OPTIONS, Faults(loss=np.zeros(graph.links)), skip=0.01)


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
