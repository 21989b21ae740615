"""The flow engine against exact progressive filling, and laws that hold for any run."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from drawn import examples
from flow_oracle import Fluid, simulate
from hypothesis import assume, example, given
from hypothesis import strategies as st

from windtunnel.base.errors import EngineError
from windtunnel.engine.flow import Changes, Demands, FlowRun, Variables, run

LINKS = 5
small = st.integers(1, 6).map(Fraction)
times = st.integers(0, 8).map(lambda n: Fraction(n, 2))


@st.composite
def fluids(draw: st.DrawFn, coupled: bool) -> list[Fluid]:
    found: list[Fluid] = []
    for index in range(draw(st.integers(1, 9))):
        links = draw(st.lists(st.integers(0, LINKS - 1), max_size=4))
        row = tuple((link, draw(small) if coupled else Fraction(1)) for link in links)
        deps = draw(st.lists(st.integers(0, index - 1), max_size=2, unique=True)) if index else []
        found.append(Fluid(
            row, draw(st.integers(0, 12).map(Fraction)), draw(times), draw(small), draw(st.none() | small), draw(times) / 4,
            draw(times) / 4, tuple(deps),
        ))  # fmt: skip
    return found


capacities = st.lists(small, min_size=LINKS, max_size=LINKS)
flaps = st.lists(st.tuples(times, st.integers(0, LINKS - 1), st.integers(0, 4).map(Fraction)), max_size=4).map(
    lambda found: tuple(sorted(found, key=lambda change: change[0]))
)


def engine(
    found: list[Fluid], capacity: list[Fraction], changes: tuple[tuple[Fraction, int, Fraction], ...] = (), **options: float
) -> FlowRun:
    start = np.cumsum([0, *(len(f.row) for f in found)])
    flat = [pair for f in found for pair in f.row]
    demands = Demands(start, np.array([link for link, _ in flat], np.int32), np.array([float(d) for _, d in flat]))
    variables = Variables(
        begin=np.array([float(f.begin) for f in found]), size=np.array([float(f.size) for f in found]),
        weight=np.array([float(f.weight) for f in found]),
        bound=np.array([np.inf if f.bound is None else float(f.bound) for f in found]),
        latency=np.array([float(f.latency) for f in found]), delay=np.array([float(f.delay) for f in found]),
        dep_start=np.cumsum([0, *(len(f.deps) for f in found)]), deps=np.array([d for f in found for d in f.deps], np.int32),
    )  # fmt: skip
    moved = Changes(
        np.array([float(at) for at, _, _ in changes]), np.array([link for _, link, _ in changes], np.int32),
        np.array([float(to) for _, _, to in changes]),
    )  # fmt: skip
    return run(np.array([float(c) for c in capacity]), demands, variables, moved, **options)


def crossing(times: int) -> Fluid:
    """A transfer of one byte that crosses link 0 so many times."""
    return Fluid(((0, Fraction(1)),) * times, Fraction(1), Fraction(0), Fraction(1), None, Fraction(0), Fraction(0), ())


@examples(100)
@given(st.booleans().flatmap(fluids), capacities, flaps)
@example([crossing(2), crossing(4)], [Fraction(1)] * LINKS, ((Fraction(1, 2), 0, Fraction(0)), (Fraction(1), 0, Fraction(1))))
def test_ends_are_those_of_exact_progressive_filling(
    found: list[Fluid], capacity: list[Fraction], changes: tuple[tuple[Fraction, int, Fraction], ...]
) -> None:
    want = simulate(found, capacity, changes)
    if want is None:
        with pytest.raises(EngineError, match="can never finish: link"):
            engine(found, capacity, changes)
        return
    got = engine(found, capacity, changes)
    order = range(len(found))
    np.testing.assert_allclose(got.start, [float(want.start[i]) for i in order], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got.delivered, [float(want.delivered[i]) for i in order], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got.use.bytes, [float(want.bytes[link]) for link in range(LINKS)], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(got.use.busy, [float(want.busy[link]) for link in range(LINKS)], rtol=1e-8, atol=1e-8)
    assert got.stats["fallbacks"] == 0


@examples(35)
@given(fluids(coupled=True), capacities, st.sampled_from([0.0, 1e-9, 0.01, 0.3]))
def test_every_byte_is_moved_once_and_no_link_moves_more_than_it_can(
    found: list[Fluid], capacity: list[Fraction], tolerance: float
) -> None:
    got = engine(found, capacity, tolerance=tolerance)
    want = np.zeros(LINKS)
    for fluid in found:
        for link, demand in fluid.row:
            want[link] += float(demand * fluid.size)
    np.testing.assert_allclose(got.use.bytes, want, rtol=1e-9, atol=1e-9)
    assert (got.use.bytes <= np.array([float(c) for c in capacity]) * got.last * (1 + 1e-9)).all()
    assert (got.use.full <= got.use.busy * (1 + 1e-12)).all()
    assert (got.use.busy <= got.last * (1 + 1e-12)).all()


@examples(35)
@given(fluids(coupled=False), capacities, st.integers(0, 8))
def test_a_flow_in_parts_ends_with_the_whole(found: list[Fluid], capacity: list[Fraction], which: int) -> None:
    """A flow of weight 2w and one bound less is two of weight w, each of half the size."""
    assume(which < len(found))
    whole = found[which]
    half = Fluid(
        whole.row, whole.size / 2, whole.begin, whole.weight / 2, None if whole.bound is None else whole.bound / 2, whole.latency,
        whole.delay, whole.deps,
    )  # fmt: skip
    once = engine(found, capacity)
    twice = engine([*found[:which], half, *found[which + 1 :], half], capacity)
    np.testing.assert_allclose(twice.delivered[: len(found)], once.delivered, rtol=1e-9)
    np.testing.assert_allclose(twice.delivered[-1], once.delivered[which], rtol=1e-9)
