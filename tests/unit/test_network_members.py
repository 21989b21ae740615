"""Groups of an axis as rank numbers, against an enumeration of coordinates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from windtunnel.base.errors import SpecError
from windtunnel.network.groups.shape import rows_of
from windtunnel.workload.ops import Axis

SIZES = {"tp": 2, "cp": 2, "dp": 3, "pp": 2}
PLACEMENTS = (("tp", "cp", "ep", "dp", "pp"), ("tp", "pp", "ep", "dp", "cp"), ("dp", "tp", "cp", "pp", "ep"))


def coordinates(placement: tuple[str, ...]) -> list[dict[str, int]]:
    """Of each rank: its place on every axis, the innermost axis changing fastest."""
    order = [a for a in placement if a in SIZES]
    places = itertools.product(*(range(SIZES[a]) for a in reversed(order)))
    return [dict(zip(reversed(order), place, strict=True)) for place in places]


def by_hand(placement: tuple[str, ...], along: tuple[str, ...]) -> set[tuple[int, ...]]:
    """Ranks that differ in `along` only, together."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, at in enumerate(coordinates(placement)):
        groups.setdefault(tuple(v for a, v in sorted(at.items()) if a not in along), []).append(rank)
    return {tuple(g) for g in groups.values()}


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(("axis", "along"), [(Axis.TP, ("tp",)), (Axis.CP, ("cp",)), (Axis.DP, ("dp",)),
                                              (Axis.SHARD, ("dp", "cp")), (Axis.WORLD, ("tp", "cp", "dp", "pp"))])  # fmt: skip
def test_groups_differ_in_their_axis_only(placement: tuple[str, ...], axis: Axis, along: tuple[str, ...]) -> None:
    found = rows_of(axis, SIZES, placement, shard=6, ep=1)
    assert {tuple(sorted(row)) for row in found.tolist()} == by_hand(placement, along)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_stage_has_its_own_groups(placement: tuple[str, ...]) -> None:
    places = coordinates(placement)
    for stage in range(2):
        found = rows_of(Axis.DP, SIZES, placement, 6, 1, stage)
        assert {places[r]["pp"] for r in found.ravel().tolist()} == {stage}
    both = np.concatenate([rows_of(Axis.DP, SIZES, placement, 6, 1, s) for s in range(2)])
    assert sorted(both.ravel().tolist()) == list(range(24))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_pairs_go_to_the_next_stage(placement: tuple[str, ...]) -> None:
    places = coordinates(placement)
    for a, b in rows_of(Axis.PP, SIZES, placement, 6, 1, stage=1).tolist():  # from the last stage to the first
        assert (places[a]["pp"], places[b]["pp"]) == (1, 0)
        assert {k: v for k, v in places[a].items() if k != "pp"} == {k: v for k, v in places[b].items() if k != "pp"}


def test_replicas_hold_the_same_shard() -> None:
    found = rows_of(Axis.REPLICA, {"tp": 1, "cp": 1, "dp": 6, "pp": 1}, PLACEMENTS[0], shard=2, ep=1)
    assert sorted(map(tuple, found.tolist())) == [(0, 2, 4), (1, 3, 5)]


def test_an_axis_is_needed() -> None:
    with pytest.raises(SpecError, match="axis"):
        rows_of(Axis.NONE, SIZES, PLACEMENTS[0], 6, 1)
