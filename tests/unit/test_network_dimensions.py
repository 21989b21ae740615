"""Collectives over several dimensions, by hand."""

from __future__ import annotations

import math

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.network.closed.dimensions import Dimension, split, walk
from windtunnel.workload.ops import Comm

GB = 1e9
RING = Dimension("ring", 4, 100 * GB, 1e-6)
FULL = Dimension("fully_connected", 8, 50 * GB, 1e-6)
SWITCH = Dimension("switch", 8, 25 * GB, 1e-6)


def test_one_dimension_by_hand() -> None:
    assert walk([RING], Comm.ALL_REDUCE, 4e9, chunks=1).seconds == pytest.approx(2 * (3e-6 + 4e9 * 3 / 4 / 100e9))
    assert walk([FULL], Comm.REDUCE_SCATTER, 8e9, chunks=1).seconds == pytest.approx(1e-6 + 8e9 * 7 / 8 / 50e9)
    assert walk([SWITCH], Comm.ALL_GATHER, 8e9, chunks=1).seconds == pytest.approx(3e-6 + 8e9 * 7 / 8 / 25e9)
    assert walk([SWITCH], Comm.ALL_TO_ALL, 8e9, chunks=1).seconds == pytest.approx(1e-6 + 8e9 * 7 / 8 / 25e9)
    # on a ring of 4, a quarter goes 1 hop each way and a quarter 2: (1 + 2 + 1)/4 of the bytes cross links
    assert walk([RING], Comm.ALL_TO_ALL, 4e9, chunks=1).seconds == pytest.approx(2e-6 + 4e9 / 100e9)


def test_one_chunk_walks_the_dimensions_one_after_the_other() -> None:
    there = (3e-6 + 8e9 * 3 / 4 / 100e9) + (1e-6 + 2e9 * 7 / 8 / 50e9)
    assert walk([RING, FULL], Comm.ALL_REDUCE, 8e9, chunks=1).seconds == pytest.approx(2 * there)
    assert walk([RING, FULL], Comm.ALL_GATHER, 8e9, chunks=1).seconds == pytest.approx(there)


def test_many_chunks_are_bound_by_the_busiest_dimension() -> None:
    slow = [Dimension("ring", 4, 100 * GB, 0.0), Dimension("switch", 8, 5 * GB, 0.0)]
    result = walk(slow, Comm.ALL_REDUCE, 8e9, chunks=256)
    assert max(result.busy) == pytest.approx(2 * 2e9 * 7 / 8 / 5e9)
    assert result.seconds == pytest.approx(max(result.busy), rel=0.02)
    assert result.seconds >= max(result.busy)


def test_themis_balances_what_a_fixed_order_leaves_to_one_dimension() -> None:
    dims = [
        Dimension("ring", 16, 100 * GB, 0.0),
        Dimension("fully_connected", 8, 100 * GB, 0.0),
        Dimension("switch", 4, 100 * GB, 0.0),
    ]
    plain, themis = (walk(dims, Comm.ALL_REDUCE, 1e9, s) for s in ("plain", "themis"))
    assert themis.seconds < 0.55 * plain.seconds  # three dimensions as wide as the first, which the plain order leaves idle
    assert min(themis.utilisation) > 0.7 > 0.2 > min(plain.utilisation)
    bound = 2 * 1e9 * (1 - 1 / 512) / 300e9  # every byte crosses some link, all links together
    assert bound <= themis.seconds <= 1.25 * bound


def test_a_collective_needs_all_of_its_bytes() -> None:
    """Whatever the order, what all dimensions move together is what the collective needs."""
    for schedule in ("plain", "themis"):
        dims = [RING, FULL, SWITCH]
        free = [Dimension(d.kind, d.size, d.bandwidth, 0.0) for d in dims]
        moved = sum(busy * d.bandwidth for busy, d in zip(walk(free, Comm.REDUCE_SCATTER, 1e9, schedule).busy, free, strict=True))
        assert moved == pytest.approx(1e9 * (1 - 1 / 256))


def test_as_astra_sim_prints_for_three_dimensions() -> None:
    """8 x 8 x 8 ring, fully connected, switch at 200, 100, 50 "GB/s" (2^30) a link, 1 GiB in 4 chunks: 10 515 004 ns, of which
    ASTRA-sim counts 3 (n-1)/n S / 1600 GB/s for local memory in the ring."""
    gib = 2.0**30
    dims = [
        Dimension("ring", 8, 200 * gib, 50e-9),
        Dimension("fully_connected", 8, 7 * 100 * gib, 500e-9),
        Dimension("switch", 8, 50 * gib, 2e-6),
    ]
    local = 3 * 7 / 8 * gib / 1600e9
    assert walk(dims, Comm.ALL_REDUCE, gib, chunks=4).seconds + local == pytest.approx(10515004e-9, rel=0.03)


def test_groups_take_the_innermost_dimensions() -> None:
    inner, outer = split([RING, FULL, SWITCH], 8)
    assert [(d.kind, d.size) for d in inner] == [("ring", 4), ("fully_connected", 2)]
    assert [(d.kind, d.size) for d in outer] == [("fully_connected", 4), ("switch", 8)]
    inner, outer = split([RING, FULL, SWITCH], 256)
    assert math.prod(d.size for d in inner) == 256 and outer == ()


@pytest.mark.parametrize(
    "bad",
    [
        lambda: Dimension("torus", 4, 1e9),  # type: ignore[arg-type]
        lambda: Dimension("ring", 0, 1e9),
        lambda: walk([RING], Comm.BROADCAST, 1.0),
        lambda: walk([RING], Comm.ALL_REDUCE, 1.0, "fast"),  # type: ignore[arg-type]
        lambda: walk([RING], Comm.ALL_REDUCE, 1.0, chunks=0),
        lambda: split([RING, FULL], 3),
        lambda: split([RING, FULL], 64),
    ],
)
def test_bad_input_is_named(bad) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError):
        bad()
