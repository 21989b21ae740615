"""Meshes, operations in closed form and the law of a start. No torch."""

from __future__ import annotations

from itertools import product

import pytest

from windtunnel.base.errors import PlanError, SpecError, UnknownName
from windtunnel.fleet.startup.layout import (
    Operations,
    connections,
    make_layout,
    memberships,
    ordered_counts,
    parse_mesh,
    peers,
    torch_counts,
)
from windtunnel.fleet.startup.start_costs import StartLaw, StartPoint, fit


def test_last_axis_is_fastest_unless_an_order_says_otherwise() -> None:
    torch_like = make_layout(("dp", "pp", "tp"), (2, 3, 4))
    assert torch_like.group(("tp",), 5) == (4, 5, 6, 7)
    assert torch_like.group(("dp",), 5) == (5, 17)
    assert torch_like.coordinates(23) == {"dp": 1, "pp": 2, "tp": 3}
    megatron = make_layout(("pp", "dp", "cp", "tp"), (2, 2, 2, 2), order="tp-cp-dp-pp")
    assert megatron.group(("tp",), 0) == (0, 1)
    assert megatron.group(("cp",), 0) == (0, 2)
    assert megatron.group(("dp",), 0) == (0, 4)
    assert megatron.group(("dp", "cp"), 1) == (1, 3, 5, 7)
    assert make_layout(("pp", "dp", "cp", "tp"), (2, 2, 2, 2), order="tp-cp-pp-dp").group(("dp",), 0) == (0, 8)


@pytest.mark.parametrize("order", [None, "tp-dp-pp", "pp-tp-dp"])
def test_groups_of_an_axis_hold_every_rank_once(order: str | None) -> None:
    layout = make_layout(("dp", "pp", "tp"), (2, 3, 4), order)
    for axes in (("dp",), ("pp",), ("tp",), ("dp", "tp")):
        groups = layout.groups(axes)
        assert sorted(rank for group in groups for rank in group) == list(range(24))
        assert all(layout.group(axes, rank) == group for group in groups for rank in group)


def test_wrong_meshes_say_what_to_type() -> None:
    for text in ("dp", "dp=x", "dp=2,dp=2", "dp=0", ""):
        with pytest.raises(SpecError):
            parse_mesh(text)
    with pytest.raises(PlanError, match="fastest first"):
        parse_mesh("dp=2,tp=2", "tp-pp")
    with pytest.raises(UnknownName):
        parse_mesh("dp=2").group(("tp",), 0)
    with pytest.raises(UnknownName):
        ordered_counts(parse_mesh("dp=2"), "etcd")


def test_operations_of_64_ranks_by_hand() -> None:
    layout = parse_mesh("dp=8,pp=4,tp=2")
    # n(2n + 1) a gloo group: the world, 8 groups of 8, 16 of 4, 32 of 2
    assert torch_counts(layout).total == 64 * 129 + 8 * 8 * 17 + 16 * 4 * 9 + 32 * 2 * 5 == 10240
    assert ordered_counts(layout).total == 128
    assert torch_counts(layout).total >= 5 * ordered_counts(layout).total
    assert ordered_counts(layout).shared.keys == 64 + 64 * 63
    assert ordered_counts(layout, world="bare").shared.keys == 64 + 64 * (7 + 3 + 1)
    nodes = ordered_counts(layout, "hierarchical")
    assert nodes.shared.total == 16
    assert nodes.local.total == 8 * (8 + 1 + 7)


def test_a_barrier_for_every_group_costs_ranks_times_groups() -> None:
    layout = parse_mesh("dp=8,pp=4,tp=2")
    more = torch_counts(layout, barrier=True).shared.calls - torch_counts(layout).shared.calls
    calls = 1 + 8 + 16 + 32
    assert more == {"add": 2 * 64 * calls, "wait": 64 * calls, "set": calls}


def test_an_axis_of_all_ranks_is_the_default_group() -> None:
    assert torch_counts(parse_mesh("dp=8")).total == 8 * 17
    assert connections(parse_mesh("dp=8"), "torch") == 56
    assert connections(parse_mesh("dp=8"), "ordered", "bare") == 56
    assert memberships(parse_mesh("dp=8"), "ordered", "bare") == 8


def test_operations_grow_as_ranks_and_as_their_square() -> None:
    small, large = parse_mesh("dp=32,pp=8,tp=8"), parse_mesh("dp=64,pp=8,tp=8")
    assert ordered_counts(large, world="bare").total == 2 * ordered_counts(small, world="bare").total
    assert torch_counts(large).total > 3.8 * torch_counts(small).total


def test_peers_are_the_ranks_of_all_groups() -> None:
    layout = parse_mesh("dp=2,pp=2,tp=2")
    assert peers(layout, 0, "bare") == (1, 2, 4)
    assert peers(layout, 0, "bare", [("dp", "tp")]) == (1, 2, 4, 5)
    assert peers(layout, 3, "full") == (0, 1, 2, 4, 5, 6, 7)


def test_the_law_finds_the_terms_it_was_made_of() -> None:
    truth = StartLaw(0.02, 3e-5, 1e-9, 0.004, 2e-4, 0.0)
    cases = ((100, 9e6, 32, 50), (5000, 1e5, 32, 900), (200, 3e4, 300, 4000), (50, 7e3, 8, 8), (700, 4e7, 20, 30))
    points = [
        StartPoint(ranks, ops, int(size), groups, ends, 2, truth.seconds(ranks, ops, int(size), groups, ends, 2))
        for ranks, (ops, size, groups, ends) in product((8, 64), cases)
    ]
    found = fit(points, truth.per_byte)
    assert found.fixed == pytest.approx(truth.fixed)
    assert found.per_operation == pytest.approx(truth.per_operation)
    assert found.per_byte == pytest.approx(truth.per_byte)
    assert found.per_group == pytest.approx(truth.per_group)
    assert found.per_connection == pytest.approx(truth.per_connection)
    assert found.error < 1e-9
    with pytest.raises(SpecError):
        fit(points[:4])


def test_operations_add_up_and_travel_as_json() -> None:
    one = Operations()
    one.add("multi_get", 1, 5, 100)
    one.add("set", 2, size=10)
    both = one + one
    assert (both.total, both.keys, both.bytes) == (6, 14, 220)
    assert Operations.of(both.table()) == both
