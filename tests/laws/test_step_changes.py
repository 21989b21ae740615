"""Changes of the level of steps: a shift is found where it is, noise and peaks are none, and units do not matter."""

from __future__ import annotations

import numpy as np
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.arrays import Floats
from windtunnel.runs.report_sheet import LEAST, MOST, changes_of

SERIES = st.tuples(st.integers(0, 10_000), st.integers(40, 200), st.integers(40, 200), st.floats(1.1, 3.0), st.booleans())


def drawn(seed: int, before: int, after: int, ratio: float, down: bool) -> Floats:
    """A level, another one, noise of 1 %, and a peak every 20 steps."""
    draw = np.random.default_rng(seed)
    levels = np.concatenate([np.full(before, ratio if down else 1.0), np.full(after, 1.0 if down else ratio)])
    series = levels * draw.normal(1.0, 0.01, before + after)
    series[::20] *= 4.0
    return series


@examples(60)
@given(SERIES)
def test_a_shift_is_found_where_it_is(made: tuple[int, int, int, float, bool]) -> None:
    seed, before, after, ratio, down = made
    found = changes_of(drawn(seed, before, after, ratio, down))
    assert len(found) == 1
    assert abs(found[0].at - before) <= 1  # a peak may stand at the shift
    assert abs(found[0].ratio / (1.0 / ratio if down else ratio) - 1.0) < 0.02


@examples(60)
@given(st.integers(0, 10_000), st.integers(40, 200), st.integers(40, 200), st.integers(40, 200), st.floats(1.1, 3.0))
def test_a_change_back_and_forth_is_two(seed: int, before: int, between: int, after: int, ratio: float) -> None:
    """Also where the levels before and after are alike, so that halves of the series have one median."""
    series = np.repeat([1.0, ratio, 1.0], [before, between, after])
    series *= np.random.default_rng(seed).normal(1.0, 0.01, len(series))
    assert [one.at for one in changes_of(series)] == [before, before + between]


@examples(60)
@given(SERIES, st.floats(1e-6, 1e6))
def test_units_do_not_matter(made: tuple[int, int, int, float, bool], factor: float) -> None:
    series = drawn(*made)
    assert [one.at for one in changes_of(series * factor)] == [one.at for one in changes_of(series)]


@examples(60)
@given(st.integers(0, 10_000), st.integers(1, 400))
def test_noise_and_short_series_have_few_changes(seed: int, count: int) -> None:
    noise = np.random.default_rng(seed).normal(1.0, 0.002, count)
    assert changes_of(noise) == ()  # levels of noise differ by less than a hundredth
    assert changes_of(np.ones(count)) == () == changes_of(noise[: 2 * LEAST - 1])


def test_very_many_changes_are_bounded() -> None:
    series = np.tile(np.concatenate([np.full(60, 1.0), np.full(60, 2.0)]), 60)
    series *= np.linspace(1.0, 40.0, len(series))
    found = changes_of(series)
    assert 0 < len(found) <= MOST and [one.at for one in found] == sorted(one.at for one in found)


def test_a_run_without_steps_has_no_change() -> None:
    assert changes_of(np.zeros(0)) == ()
