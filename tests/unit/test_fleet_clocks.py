"""Clocks of machines from messages: synthetic records whose true times are known."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.fleet_clocks import negative_arrows
from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.fleet.findings.clocks import MachineClocks, _lower_hull, align, clocks_of
from windtunnel.records.sections import Section, Sections


def truth(nodes: int, seed: int, seconds: float = 60.0, count: int = 400, way: float = 60e-6, back: float = 60e-6) -> Sections:
    """On the true clock: neighbours send to each other both ways, and all meet in a collective; ways take at least `way` or `back`,
    `way` from lower ranks to higher ones."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[float, ...]] = []
    for step in range(count):
        at = seconds * step / count
        for one in range(nodes - 1):
            for source, target, least in ((one, one + 1, way), (one + 1, one, back)):
                begin = at + rng.uniform(0, 1e-3)
                took = least + rng.exponential(200e-6)
                posted = begin - rng.uniform(0, 2e-3)
                rows.append((source, step, begin, 30e-6, 0, step, target, 1, 0))
                rows.append((target, step, posted, begin + took - posted, 0, step, source, 0, 0))
        enter = at + 5e-3 + rng.exponential(1e-3, nodes)
        leave = enter.max() + way + rng.exponential(50e-6, nodes)
        rows += [(rank, step, enter[rank], leave[rank] - enter[rank], 1, step, -1, 0, Comm.ALL_REDUCE) for rank in range(nodes)]
    rank, steps, begin, took, group, call, peer, sends, comm = (np.array(column) for column in zip(*rows, strict=True))
    return Sections.of(
        rank,
        steps,
        Section.CALL,
        begin,
        took,
        group=group,
        call=call,
        peer=peer,
        sends=sends,
        comm=comm,
        groups=(tuple(range(nodes)),) * 2,
        group_names=("pp", "dp"),
        hosts={rank: f"node{rank}" for rank in range(nodes)},
        zero=1.7e9,
    )


def set_wrong(sections: Sections, offsets: np.ndarray, rates: np.ndarray) -> Sections:
    """What each machine's clock would have said. Rates count from time 0."""
    factor = 1 + rates[sections.rank]
    begin = sections.begin * factor + offsets[sections.rank]
    return Sections.of(
        sections.rank, sections.step, sections.section, begin, sections.seconds * factor, group=sections.group, call=sections.call,
        peer=sections.peer, sends=sections.sends, comm=sections.comm, groups=sections.groups, group_names=sections.group_names,
        hosts=sections.hosts, zero=sections.zero,
    )  # fmt: skip


def residual(clocks: MachineClocks, offsets: np.ndarray, rates: np.ndarray, seconds: float = 60.0) -> np.ndarray:
    """The farthest that each node is from node 0 when all look at their corrected clocks at the same moments."""
    true = np.linspace(0, seconds, 20)
    wrong = [true * (1 + rate) + offset for rate, offset in zip(rates, offsets, strict=True)]
    right = [times + clocks.correction(f"node{node}", times) for node, times in enumerate(wrong)]
    return np.array([np.abs(times - right[0]).max() for times in right])


@pytest.mark.parametrize("seed", range(8))
def test_offsets_and_drifts_are_found(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    nodes = int(rng.integers(2, 7))
    offsets, rates = rng.uniform(-0.5, 0.5, nodes), rng.uniform(-1e-4, 1e-4, nodes)
    there = truth(nodes, seed)
    wrong = set_wrong(there, offsets, rates)
    assert negative_arrows(wrong) > 0
    clocks = clocks_of(wrong)
    found = residual(clocks, offsets, rates)
    assert found.max() < 1e-3
    assert (found <= clocks.bound + 1e-9).all()
    right = align(wrong, clocks)
    assert negative_arrows(right) == 0
    steady = clocks.drift("node1") - ((1 + rates[1]) / (1 + rates[0]) - 1)
    assert abs(steady) < 5e-6
    assert np.allclose(right.seconds, there.seconds * (1 + rates[0]), atol=2e-6)


def test_unequal_ways_are_wrong_by_half_their_difference_and_the_bound_says_so() -> None:
    offsets, rates = np.array([0.2, -0.4]), np.array([5e-5, -9e-5])
    clocks = clocks_of(set_wrong(truth(2, 3, way=50e-6, back=2e-3), offsets, rates))
    (_, found) = residual(clocks, offsets, rates)
    assert found <= clocks.bound[1] + 1e-9
    assert clocks.slack >= -1e-9


def test_collectives_alone_do_where_the_last_to_come_changes() -> None:
    offsets, rates = np.array([0.0, 0.5, -0.5]), np.array([0.0, 1e-4, -1e-4])
    wrong = set_wrong(truth(3, 5), offsets, rates)
    clocks = clocks_of(wrong.where(wrong.comm == Comm.ALL_REDUCE))
    found = residual(clocks, offsets, rates)
    assert found.max() < 1e-3 and (found <= clocks.bound + 1e-9).all()
    assert negative_arrows(align(wrong.where(wrong.comm == Comm.ALL_REDUCE), clocks)) == 0


def test_exchanges_with_the_collector_do_where_nodes_exchange_nothing() -> None:
    offsets = np.array([0.25, -0.25])
    rng = np.random.default_rng(2)
    exchanges: dict[str, list[list[int]]] = {}
    for node, offset in enumerate(offsets):
        for second in range(60):
            out, back = 1e-4 + rng.exponential(2e-4, 2)
            stamps = [second + offset, second + out, second + out + 1e-4, second + out + 1e-4 + back + offset]
            exchanges.setdefault(f"node{node}", []).append([int((stamp + 1.7e9) * 1e9) for stamp in stamps])
    alone = Sections.of([0, 1], [0, 0], Section.STEP, [0.0, 0.0], [1.0, 1.0], hosts={0: "node0", 1: "node1"}, zero=1.7e9)
    clocks = clocks_of(alone, exchanges)
    found = residual(clocks, offsets, np.zeros(2))
    assert found.max() < 2e-4 and (found <= clocks.bound[:2] + 1e-9).all()
    assert "(collector)" in clocks.nodes


def test_exchanges_of_a_machine_without_records_change_nothing() -> None:
    calls = truth(3, 5)
    calls = calls.where(calls.comm == Comm.ALL_REDUCE)
    stamps = [[int((1.7e9 + second + part * 1e-4) * 1e9) for part in range(4)] for second in range(-60, 300, 5)]
    clocks, plain = clocks_of(calls, {"container-7f3": stamps}), clocks_of(calls)
    assert clocks.nodes == plain.nodes and np.array_equal(clocks.values, plain.values)


def test_a_machine_that_nothing_links_stays_and_says_so() -> None:
    two = truth(2, 1)
    three = Sections.of([2], [0], Section.STEP, [1.0], [1.0], hosts={2: "node2"}, zero=1.7e9)
    from windtunnel.records.sections import join_sections

    clocks = clocks_of(join_sections([two, three]))
    assert clocks.bound[2] == np.inf and clocks.offset("node2") == 0.0
    with pytest.raises(SpecError):
        clocks_of(two, reference="elsewhere")


def test_an_hour_of_a_clock_whose_rate_moves() -> None:
    """Pieces of 15 minutes follow a rate that wanders by 2 ppm over an hour."""
    there = truth(2, 9, seconds=3600.0, count=3600)
    wander = 2e-6 * 3600 / (2 * np.pi) * (1 - np.cos(2 * np.pi * there.begin / 3600)) * (there.rank == 1)
    wrong = Sections.of(
        there.rank, there.step, there.section, there.begin + wander + 0.3 * (there.rank == 1), there.seconds, group=there.group,
        call=there.call, peer=there.peer, sends=there.sends, comm=there.comm, groups=there.groups, group_names=there.group_names,
        hosts=there.hosts, zero=there.zero,
    )  # fmt: skip
    clocks = clocks_of(wrong, bounds=False)
    right = align(wrong, clocks)
    assert np.abs(right.begin - there.begin).max() < 1e-3


def test_the_lower_hull_of_points() -> None:
    """(0, 0), (4, 1) and (8, 4): the slopes are 1/4 and 3/4. Nothing lies below it, among random points either."""
    x, y = np.array([0.0, 2.0, 4.0, 6.0, 8.0]), np.array([0.0, 2.0, 1.0, 3.0, 4.0])
    assert _lower_hull(x, y).tolist() == [0, 2, 4]
    rng = np.random.default_rng(3)
    x, y = rng.uniform(0, 100, 60), rng.uniform(0, 3, 60)
    hull = _lower_hull(x, y).tolist()
    assert hull == sorted(hull, key=lambda at: x[at]) and {int(np.argmin(x)), int(np.argmax(x))} <= set(hull)
    on = np.interp(x, x[hull], y[hull])
    assert (y >= on - 1e-12).all()  # no point below it
    slopes = np.diff(y[hull]) / np.diff(x[hull])
    assert (np.diff(slopes) > 0).all()  # and it bends one way
