"""The flow engine's door: hand-computed runs, what is refused, and a program that runs over it."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from windtunnel.base.errors import EngineError
from windtunnel.engine import ProgramBuilder
from windtunnel.engine import run as run_program
from windtunnel.engine.flow import Changes, Demands, Variables, latency, network, report, run
from windtunnel.engine.graph import Graph, Paths

RATE = 50e9


def star(hosts: int, rate: float = RATE, wait: float = 1e-6) -> Graph:
    """Hosts around one switch: link h goes up from host h, link hosts + h down to it."""
    nodes, links = hosts + 1, 2 * hosts
    ids = np.arange(hosts, dtype=np.int32)
    hub = np.full(hosts, hosts, np.int32)
    return Graph(
        node_kind=np.array([1] * hosts + [0], np.uint8), node_site=np.full(nodes, -1, np.int32),
        link_from=np.concatenate([ids, hub]), link_to=np.concatenate([hub, ids]), link_rate=np.full(links, rate),
        link_latency=np.full(links, wait), link_axis=np.full(links, -1, np.int16), link_up=np.ones(links, np.uint8),
        endpoint=ids, nic_start=np.zeros(hosts + 1, np.int64), nics=np.empty(0, np.int32), rail=np.full(hosts, -1, np.int32),
    )  # fmt: skip


def pairs(hosts: int, src: list[int], dst: list[int]) -> Paths:
    links = np.array([link for s, d in zip(src, dst, strict=True) for link in (s, hosts + d)], np.int32)
    return Paths(np.arange(len(src) + 1, dtype=np.int64) * 2, links)


def test_one_flow_takes_serialisation_propagation_and_store_and_forward() -> None:
    graph, paths, size = star(4), pairs(4, [0], [1]), np.array([1e6])
    there, back = latency(graph, paths, size, mtu=4096, ack=64)
    assert there[0] == pytest.approx(2e-6 + 4096 / RATE)
    assert back[0] == pytest.approx(2e-6 + 2 * 64 / RATE)
    got = run(graph.link_rate, Demands.of_paths(paths), Variables(np.zeros(1), size, latency=there))
    assert got.delivered[0] == pytest.approx(1e6 / RATE + 2e-6 + 4096 / RATE)
    assert got.use.bytes == pytest.approx([1e6, 0, 0, 0, 0, 1e6, 0, 0])


def test_latency_of_short_flows_slow_links_and_flows_to_themselves() -> None:
    graph = star(2)
    graph.link_rate[3] = RATE / 4  # the way down to host 1
    paths = Paths(np.array([0, 2, 2, 4]), np.array([0, 3, 1, 2], np.int32))
    there, back = latency(graph, paths, np.array([1000.0, 1000.0, 1e9]), mtu=4096, ack=0)
    assert there == pytest.approx([2e-6 + 1000 / RATE, 0.0, 2e-6 + 4096 / RATE])  # the slowest link is the fluid's
    assert back == pytest.approx([2e-6, 0.0, 2e-6])


def test_incast_takes_the_time_of_its_bytes() -> None:
    graph, paths = star(32), pairs(32, list(range(1, 32)), [0] * 31)
    size = np.full(31, 1048576.0)
    there, _ = latency(graph, paths, size, mtu=4096)
    got = run(graph.link_rate, Demands.of_paths(paths), Variables(np.zeros(31), size, latency=there))
    assert got.last == pytest.approx(31 * 1048576 / RATE, rel=0.02)
    assert got.use.full[32] == pytest.approx(31 * 1048576 / RATE)
    assert got.stats["solves"] == 2


def test_all_to_all_of_equal_flows_needs_one_full_solve() -> None:
    """What ends first is what is fastest, and its end gives nothing to those that are held up elsewhere."""
    hosts = 24
    ordered = [(s, d) for s in range(hosts) for d in range(hosts) if s != d]
    graph = star(hosts, rate=1.0)
    graph.link_rate[:hosts] = 1.0 + np.arange(hosts) / 7
    paths = pairs(hosts, [s for s, _ in ordered], [d for _, d in ordered])
    got = run(graph.link_rate, Demands.of_paths(paths), Variables(np.zeros(len(ordered)), np.ones(len(ordered))))
    assert got.stats["full"] == 1
    assert got.use.bytes == pytest.approx(np.full(2 * hosts, hosts - 1.0))


def test_equal_flows_share_one_unknown() -> None:
    paths = Demands(np.array([0, 1]), np.zeros(1, np.int32))
    got = run(np.array([2.0]), paths, Variables(np.zeros(1000), np.arange(1000.0), row=np.zeros(1000, np.int32)))
    assert got.stats["unknowns"] == 1
    assert got.last == pytest.approx(np.arange(1000.0).sum() / 2)


def test_tolerance_trades_solves_for_exactness() -> None:
    rng = np.random.default_rng(1)
    hosts, flows = 16, 600
    src, dst = rng.integers(0, hosts, flows), rng.integers(0, hosts, flows)
    paths = pairs(hosts, src.tolist(), dst.tolist())
    variables = Variables(np.zeros(flows), rng.uniform(1.0, 3.0, flows))
    exact = run(np.ones(2 * hosts), Demands.of_paths(paths), variables)
    for tolerance in (1e-3, 1e-2, 1e-1):
        coarse = run(np.ones(2 * hosts), Demands.of_paths(paths), variables, tolerance=tolerance)
        assert np.abs(coarse.delivered / exact.delivered - 1.0).max() < 2 * tolerance
        assert coarse.stats["solves"] < exact.stats["solves"]
        assert coarse.use.bytes == pytest.approx(exact.use.bytes)


def test_a_link_that_fails_and_comes_back() -> None:
    flow = Demands(np.array([0, 1]), np.zeros(1, np.int32))
    one = Variables(np.zeros(1), np.array([10.0]))
    down = Changes(np.array([1.0, 3.0]), np.zeros(2, np.int32), np.array([0.0, 1.0]))
    assert run(np.array([2.0]), flow, one, down).last == pytest.approx(11.0)
    never = Changes(np.array([1.0]), np.zeros(1, np.int32), np.zeros(1))
    with pytest.raises(EngineError, match="variable 0 can never finish: link 0 has no capacity from 1 s on"):
        run(np.array([2.0]), flow, one, never)


def test_what_is_wrong_is_named() -> None:
    flow, one = Demands(np.array([0, 1]), np.zeros(1, np.int32)), Variables(np.zeros(1), np.ones(1))
    with pytest.raises(EngineError, match="link 0 has no capacity"):
        run(np.zeros(1), flow, one)
    with pytest.raises(EngineError, match=r"size\[0\] is nan"):
        run(np.ones(1), flow, Variables(np.zeros(1), np.array([np.nan])))
    with pytest.raises(EngineError, match=r"begin\[0\] is -1"):
        run(np.ones(1), flow, Variables(np.array([-1.0]), np.ones(1)))
    with pytest.raises(EngineError, match="GiB of memory for 10000000 variables"):
        many = np.zeros(10_000_000)
        run(np.ones(1), flow, Variables(many, many, row=np.zeros(10_000_000, np.int32)), memory=2**30)
    waits = Variables(
        np.zeros(2), np.ones(2), row=np.zeros(2, np.int32), dep_start=np.array([0, 1, 2]), deps=np.array([1, 0], np.int32)
    )
    with pytest.raises(EngineError, match="cycle: variable 0 waits for 1 waits for 0"):
        run(np.ones(1), flow, waits)


def test_nothing_to_do() -> None:
    got = run(np.ones(2), Demands(np.zeros(1, np.int64), np.empty(0, np.int32)), Variables(np.empty(0), np.empty(0)))
    assert got.last == 0.0
    assert got.use.bytes.tolist() == [0.0, 0.0]


def long_run(flows: int = 20_000) -> tuple[np.ndarray, Demands, Variables]:
    """Random sizes over random pairs: each of many ends changes nearly all rates."""
    rng = np.random.default_rng(2)
    hosts = 64
    paths = pairs(hosts, rng.integers(0, hosts, flows).tolist(), rng.integers(0, hosts, flows).tolist())
    return np.ones(2 * hosts), Demands.of_paths(paths), Variables(np.zeros(flows), rng.uniform(1.0, 3.0, flows))


def test_progress_is_told_and_may_stop_the_run() -> None:
    told: list[float] = []

    def progress(share: float) -> None:
        told.append(share)
        if len(told) == 2:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        run(*long_run(), progress=progress)
    assert 0.0 <= told[0] <= told[1] < 1.0


def test_control_c_stops_the_run() -> None:
    """The signal comes after 0.05 s of the process' own CPU time, however busy the machine is; the run needs many seconds."""
    endless = long_run(200_000)
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.05)
            run(*endless)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def test_a_program_runs_over_plans() -> None:
    """Pairs of ranks compute 1, 2 and 3 s, then send. Two send 8 B over one link of 2 B/s; the third one's key has no plan."""
    builder = ProgramBuilder(categories=3)
    for pair in range(3):
        work = builder.add_template([pair + 1.0])
        for _ in range(2):
            rank = builder.rank()
            rank.add_rendezvous(1, [(pair, 0.5, 2)], [rank.add(work)], cat_wait=1, cat_transfer=2)
    rows = Demands(np.array([0, 1]), np.zeros(1, np.int32))
    plans = network(
        np.array([2.0]), rows, np.array([0, 1]), Variables(np.zeros(1), np.array([8.0])), np.arange(2), np.zeros(2, np.int32)
    )
    timeline = run_program(builder.build(), network=plans)
    assert timeline.rank_end == pytest.approx([8.0, 8.0, 9.0, 9.0, 3.5, 3.5])
    use = report(plans)
    assert use.starts.tolist() == [2]
    assert use.alone == pytest.approx([4.0])
    assert use.total == pytest.approx([7.0 + 7.0])
    assert use.longest == pytest.approx([7.0])
    assert use.use.bytes == pytest.approx([16.0])
    assert use.use.full == pytest.approx([8.0])


def test_plans_that_are_wrong_are_named() -> None:
    rows, one = Demands(np.array([0, 1]), np.zeros(1, np.int32)), Variables(np.zeros(1), np.ones(1))
    with pytest.raises(EngineError, match="key 5 occurs twice"):
        network(np.ones(1), rows, np.array([0, 1]), one, np.array([5, 5]), np.zeros(2, np.int32))
    with pytest.raises(EngineError, match=r"key_plan\[0\] is 1; there are plans 0 to 0"):
        network(np.ones(1), rows, np.array([0, 1]), one, np.array([5]), np.ones(1, np.int32))
    with pytest.raises(EngineError, match="a row each"):
        network(
            np.ones(1),
            rows,
            np.array([0, 1]),
            Variables(np.zeros(1), np.ones(1), row=np.zeros(1, np.int32)),
            np.array([5]),
            np.zeros(1, np.int32),
        )
