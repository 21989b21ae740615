"""Bisection over pairs: without noise it finds exactly the bad nodes and links, whatever they are."""

from __future__ import annotations

import random

from hypothesis import assume, given
from hypothesis import strategies as st

from windtunnel.fleet.diagnose.bisect import Round, bisect


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[str], set[str]]:
    """Nodes, and bad ones that are fewer than half."""
    count = draw(st.integers(3, 60))
    nodes = [f"n{at}" for at in range(count)]
    return nodes, set(draw(st.permutations(nodes))[: draw(st.integers(0, (count - 1) // 2))])


@given(fleets(), st.integers(1, 3))
def test_any_set_of_bad_nodes_below_half_is_found_exactly(fleet: tuple[list[str], set[str]], confirm: int) -> None:
    nodes, bad = fleet
    rounds: list[Round] = []

    def test(pairs: Round) -> list[bool]:
        rounds.append(pairs)
        return [not bad & set(pair) for pair in pairs]

    found = bisect(nodes, test, confirm)
    assert set(found.bad) == bad
    assert found.links == found.unknown == ()
    assert found.rounds == len(rounds)
    assert found.tests == sum(map(len, rounds))
    for pairs in rounds:  # they run at the same time
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs)
    if len(nodes) % 2 == 0 and len(bad) <= len(nodes) // 4 and confirm == 1:
        assert found.rounds <= 2


@given(st.integers(3, 40), st.data())
def test_as_long_as_two_nodes_are_good_all_bad_ones_are_found(count: int, data: st.DataObject) -> None:
    nodes = [f"n{at}" for at in range(count)]
    bad = set(data.draw(st.permutations(nodes))[: data.draw(st.integers(0, count - 2))])
    assert set(bisect(nodes, lambda pairs: [not bad & set(pair) for pair in pairs]).bad) == bad


@given(fleets())
def test_with_fewer_than_two_good_nodes_nobody_is_named(fleet: tuple[list[str], set[str]]) -> None:
    nodes, _ = fleet
    found = bisect(nodes, lambda pairs: [False] * len(pairs))
    assert found.bad == ()
    assert found.unknown == tuple(nodes)


@given(st.integers(2, 20), st.data())
def test_a_bad_link_between_good_nodes_names_no_node(half: int, data: st.DataObject) -> None:
    nodes = [f"n{at}" for at in range(2 * half)]
    at = data.draw(st.integers(0, half - 1))
    link = {nodes[2 * at], nodes[2 * at + 1]}
    found = bisect(nodes, lambda pairs: [set(pair) != link for pair in pairs])
    assert found.bad == ()
    assert [set(pair) for pair in found.links] == [link]


@given(fleets(), st.integers(0, 2**32))
def test_with_noise_it_ends_and_names_nodes_of_the_fleet(fleet: tuple[list[str], set[str]], seed: int) -> None:
    nodes, bad = fleet
    assume(len(nodes) > 3)
    dice = random.Random(seed)
    found = bisect(nodes, lambda pairs: [(not bad & set(pair)) == (dice.random() > 0.2) for pair in pairs], 2)
    assert set(found.bad) <= set(nodes)
    assert found.tests <= 3 * len(nodes) * len(nodes)
