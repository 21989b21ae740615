"""Which of several optimizers ends a step: the last of a round in which each has a turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.fleet.watch.recorder import Recorder
from windtunnel.fleet.watch.steps import StepWatch


def _ends(turns: list[int]) -> list[bool]:
    """Whether each update ended a step."""
    recorder = cast(Recorder, SimpleNamespace(name=lambda text: 0))
    watch = StepWatch(recorder, lambda: None)
    return [watch._ends_round(one) for one in turns]


@pytest.mark.parametrize(
    ("turns", "last"),
    [([1], 1), ([1, 2], 2), ([1, 2, 3], 3), ([1, 1, 1, 1, 1, 2], 2), ([2, 1, 1, 1], 1), ([1, 1, 2, 2], 2), ([3, 1, 2, 1], 1)],
)
def test_a_round_of_optimizers_is_one_step(turns: list[int], last: int) -> None:
    ended = [at % len(turns) for at, ends in enumerate(_ends(turns * 30)) if ends and at >= 3 * len(turns)]
    assert ended == [len(turns) - 1] * 27 and turns[-1] == last


@given(st.lists(st.integers(0, 3), min_size=1, max_size=16), st.lists(st.integers(0, 5), max_size=60))
def test_every_round_ends_steps_at_the_same_places_whatever_trained_before(turns: list[int], before: list[int]) -> None:
    ends = _ends(before + turns * 40)[-20 * len(turns) :]
    rounds = {tuple(ends[at : at + len(turns)]) for at in range(0, len(ends), len(turns))}
    assert len(rounds) == 1 and any(next(iter(rounds)))


@given(st.lists(st.integers(0, 3), max_size=200))
def test_steps_go_on_in_any_order(turns: list[int]) -> None:
    ends = _ends(turns)
    longest = max((len(run) for run in "".join(".|"[one] for one in ends).split("|")), default=0)
    assert longest <= 64


def test_an_optimizer_of_now_and_then_ends_no_step_and_delays_none() -> None:
    turns = ([1] * 100 + [2]) * 5
    ends = _ends(turns)[40:]
    assert sum(ends) >= 0.9 * len(ends)


def test_an_optimizer_that_replaces_another_ends_steps() -> None:
    assert all(_ends([1] * 50 + [2] * 50))


def test_optimizers_that_are_made_anew_end_steps() -> None:
    assert all(_ends(list(range(200))))
