"""What links carry over time adds up: to a link's total over its bins, to one over the calls that fill it; no bin has more than the
link's rate allows."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import windtunnel as wt
from windtunnel.base.errors import SpecError
from windtunnel.engine import ProgramBuilder, flow
from windtunnel.engine import run as run_program
from windtunnel.engine.flow import Changes, Demands, Variables
from windtunnel.engine.loads import LinkLoads, Sent
from windtunnel.engine.packet import Loss, Marking, PacketOptions, Spread, packet_network, plain_lanes, run_packets
from windtunnel.engine.routes import route
from windtunnel.network.fabrics import parse_fabric
from windtunnel.network.simulate.traffic import Traffic

MOST_BINS = 128
FABRIC = "fat_tree:k=4,link=100Gb/s,latency=1us"
amounts = st.floats(1.0, 1e6)


@st.composite
def fluids(draw: st.DrawFn) -> tuple[np.ndarray, Demands, Variables, Changes]:
    """Variables of all sizes and begins over few links, one of which changes its rate."""
    links, count = draw(st.integers(1, 6)), draw(st.integers(1, 25))
    rows = [sorted(draw(st.sets(st.integers(0, links - 1), min_size=1))) for _ in range(count)]
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    capacity = np.array([draw(amounts) for _ in range(links)])
    demands = Demands(start, np.array(sum(rows, []), np.int32), np.array([draw(st.floats(0.1, 8.0)) for _ in range(start[-1])]))
    scale = draw(st.sampled_from([1e-6, 1.0, 1e3]))
    variables = Variables(
        begin=np.array([scale * draw(st.floats(0.0, 1.0)) for _ in rows]), size=np.array([scale * draw(amounts) for _ in rows])
    )
    change = Changes(np.array([scale]), np.zeros(1, np.int32), np.array([capacity[0] / 2])) if draw(st.booleans()) else Changes()
    return capacity, demands, variables, change


@examples(150)
@given(fluids())
def test_bins_of_fluids_add_up_and_no_link_is_faster_than_it_is(case: tuple[np.ndarray, Demands, Variables, Changes]) -> None:
    capacity, demands, variables, change = case
    plain = flow.run(capacity, demands, variables, change)
    run = flow.run(capacity, demands, variables, change, loads=True)
    np.testing.assert_array_equal(run.delivered, plain.delivered)  # counting changes nothing
    loads = run.use.loads
    assert plain.use.loads is None and loads is not None and 1 <= loads.bins <= MOST_BINS
    assert loads.width * loads.bins >= run.last * (1 - 1e-9) and loads.width * (loads.bins - 1) <= run.last * (1 + 1e-9)
    table = loads.bytes_of(np.arange(len(capacity)))
    np.testing.assert_allclose(table.sum(axis=1), run.use.bytes, rtol=1e-3)
    assert (table <= capacity[:, None] * loads.width * (1 + 1e-6)).all()
    assert (table >= -1e-6 * run.use.bytes[:, None]).all()
    if run.last > 1e-6:  # shorter runs do not fill half of the shortest bins
        assert loads.bins > MOST_BINS // 2 - 1


def test_a_fluid_is_in_its_bins() -> None:
    """One link of 1 B/s: 2 B from 1 s on, 1 B from 10 s on. Bins are 2^37 ps = 0.137 s long."""
    demands = Demands(np.array([0, 1, 2]), np.zeros(2, np.int32))
    run = flow.run(np.ones(1), demands, Variables(np.array([1.0, 10.0]), np.array([2.0, 1.0])), loads=True)
    loads = run.use.loads
    assert loads is not None and loads.width == pytest.approx(2.0**37 * 1e-12)
    edges = np.arange(loads.bins + 1) * loads.width
    carried = np.clip(edges, 1.0, 3.0) + np.clip(edges, 10.0, 11.0)
    np.testing.assert_allclose(loads.bytes[0], np.diff(carried), atol=1e-9)


@st.composite
def packets(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, PacketOptions]:
    count = draw(st.integers(1, 12))
    ends = [draw(st.tuples(st.integers(0, 15), st.integers(0, 15)).filter(lambda e: e[0] != e[1])) for _ in range(count)]
    nbytes = np.array([draw(st.integers(1, 200_000)) for _ in ends], np.int64)
    begin = np.array([draw(st.floats(0.0, 50e-6)) for _ in ends])
    control = draw(st.sampled_from(["none", "dcqcn"]))
    options = PacketOptions(
        loss=draw(st.sampled_from([Loss.PAUSE, Loss.CREDITS])), spread=draw(st.sampled_from([Spread.PATH, Spread.ADAPTIVE])),
        algorithm=control, ecn=(Marking(0.0, 20_000, 80_000, 0.5),) if control == "dcqcn" else (),
        tags=[i % 3 for i in range(count)], loads=True,
    )  # fmt: skip
    return np.array([a for a, _ in ends], np.int32), np.array([b for _, b in ends], np.int32), nbytes, begin, options


@examples(60)
@given(packets(), st.integers(1, 3))
def test_bins_and_tags_of_packets_add_up_for_any_number_of_threads(
    case: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, PacketOptions], threads: int
) -> None:
    src, dst, nbytes, begin, options = case
    graph = parse_fabric(FABRIC)
    paths, lanes = route(graph, src, dst), plain_lanes(src, dst, nbytes, begin)
    run = run_packets(graph, paths, lanes, options)
    loads, sent = run.loads, run.sent
    assert loads is not None and sent is not None and loads.queue is not None and loads.bins <= MOST_BINS
    total = run.link_data + run.link_control
    links = np.arange(graph.links)
    np.testing.assert_array_equal(loads.bytes_of(links).sum(axis=1), total)
    np.testing.assert_array_equal(np.bincount(sent.link, sent.bytes, graph.links), total)
    assert set(sent.tag.tolist()) <= {-1, 0, 1, 2}
    np.testing.assert_array_equal(loads.queue_of(links).max(axis=1), run.link_peak)  # the longest of all bins is the longest
    other = run_packets(graph, paths, lanes, PacketOptions(**{**vars(options), "threads": threads}))
    assert other.loads is not None and other.loads.width == loads.width
    np.testing.assert_array_equal(other.loads.bytes_of(links), loads.bytes_of(links))
    np.testing.assert_array_equal(other.loads.queue_of(links), loads.queue_of(links))


JOBS = {
    "flow": ("llama2-70b-64xh100", ["cluster.fabric=roce", "cluster.fabric.leaf_nodes=2"]),
    "packet": (
        "llama2-70b-64xh100",
        ["cluster.gpus=16", "plan.tp=2", "plan.pp=2", "plan.vpp=2", "plan.global_batch=16", "model.layers=8"],
    ),
}


def small_step(network: str, loads: bool = True) -> wt.Answer:
    name, sets = JOBS[network]
    return wt.predict(wt.load(name, sets), network, loads=loads)


@pytest.fixture(scope="module", params=list(JOBS))
def step(request: pytest.FixtureRequest) -> wt.Answer:
    return small_step(request.param)


def _check(traffic: Traffic) -> None:
    over = traffic.over_time
    assert over is not None and traffic.hot
    bins = len(over.mean[0])
    assert 1 <= bins <= MOST_BINS and over.width * (bins - 1) <= traffic.seconds * 1.05
    for hot, moved in zip(traffic.hot, over.hot_bytes, strict=True):
        assert sum(moved) == pytest.approx(hot.bytes, rel=1e-3)
        assert sum(call.share for call in hot.calls) == pytest.approx(1.0)
        assert [c.share for c in hot.calls] == sorted((c.share for c in hot.calls), reverse=True)
    for level, mean, fullest in zip(traffic.levels, over.mean, over.fullest, strict=True):
        assert sum(mean) * over.width * level.links * level.rate == pytest.approx(level.bytes, rel=1e-3)
        assert all(m <= f * (1 + 1e-9) for m, f in zip(mean, fullest, strict=True))
    assert {hot.level for hot in traffic.hot} == {level.name for level in traffic.levels}
    assert len(over.boxes) == len(traffic.boxes) and len(over.edges) == len(traffic.edges)


def test_a_step_adds_up(step: wt.Answer) -> None:
    assert step.traffic is not None
    _check(step.traffic)
    over = step.traffic.over_time
    assert over is not None
    if step.traffic.engine == "flow":
        assert max(max(row) for row in over.fullest) <= 1 + 1e-6 and not over.queue
    else:
        assert "recalled" in over.note and max(max(row) for row in over.queue) > 0


def test_counting_changes_no_step(step: wt.Answer) -> None:
    assert step.traffic is not None
    plain = small_step(step.traffic.engine, loads=False)
    assert plain.step_time_s == step.step_time_s and plain.traffic is not None and plain.traffic.over_time is None
    shares = [{c.name: c.share for c in hot.calls} for hot in plain.traffic.hot]
    for planned, hot in zip(shares, step.traffic.hot, strict=True):  # packets: from the plan when they are not counted
        for call in hot.calls:
            assert planned.get(call.name, 0.0) == pytest.approx(call.share, abs=0.02)


@pytest.mark.parametrize("network", ["flow", "packet"])
@pytest.mark.parametrize("op", ["all_reduce", "all_to_all"])
def test_a_collective_adds_up(network: str, op: str) -> None:
    seen: list[tuple[dict[str, object], Traffic]] = []
    wt.collective("h100-ib", op, 16, [2**20, 2**22], network=network, watch=lambda *what: seen.append(what), loads=True)
    assert [row["size"] for row, _ in seen] == [2**20, 2**22]
    for _, traffic in seen:
        _check(traffic)
        assert all(call.name.startswith(("rank ", "switch", "pauses")) for hot in traffic.hot for call in hot.calls)


def test_skipped_time_has_no_load() -> None:
    with pytest.raises(SpecError, match="no --skip"):
        wt.collective("h100-ib", "all_reduce", 16, 2**20, network="packet", skip=True, loads=True)


@examples(25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=16), st.sampled_from([0.0, 0.01]))
def test_recalled_episodes_carry_what_simulated_ones_do(launches: list[tuple[int, int]], skip: float) -> None:
    """The same launches, all simulated in one network or each pattern once: equal bytes of links and plans, bins nearly so."""
    builder = ProgramBuilder(categories=1)
    for key, (_, late) in enumerate(launches):
        rank = builder.rank()
        done = rank.add(builder.add_template(seconds=[1e-3 * key + 3e-6 * late], category=[0], stream=[0]))
        rank.add_rendezvous(stream=1, parts=[(key, 1.0, 1)], waits=[done], cat_wait=0, cat_transfer=0)
    program = builder.build()
    graph = parse_fabric(FABRIC)
    src, dst = np.array([0, 1, 4, 5], np.int32), np.array([8, 9, 12, 13], np.int32)
    paths, lanes = route(graph, src, dst), plain_lanes(src, dst, np.full(4, 100_000))
    keys, plans = np.arange(len(launches), dtype=np.int64), np.array([plan for plan, _ in launches], np.int32)
    reports = []
    for share in (None, skip):
        network = packet_network(graph, paths, lanes, np.arange(5), keys, plans, PacketOptions(loads=True), skip=share)
        run_program(program, network=network)
        reports.append(network.report())
    whole, part = reports
    assert part["replay"]["replayed"] == len(launches) - len(set(plans.tolist()))
    np.testing.assert_array_equal(part["link_data"], whole["link_data"])
    moved = []
    for report in reports:
        loads, sent = LinkLoads.of_packets(report), Sent.of_packets(report)
        assert loads is not None and sent is not None
        total = report["link_data"] + report["link_control"]
        table = loads.bytes_of(np.arange(graph.links))
        np.testing.assert_array_equal(table.sum(axis=1), total)
        np.testing.assert_array_equal(np.bincount(sent.link, sent.bytes, graph.links), total)
        moved.append((loads.width, table))
    (one, first), (other, second) = moved
    assert one == other
    bins = min(first.shape[1], second.shape[1])
    behind = np.abs(np.cumsum(first, axis=1)[:, :bins] - np.cumsum(second, axis=1)[:, :bins])
    assert (behind <= 64 * 100 + graph.link_rate[:, None] * one / 8).all()
