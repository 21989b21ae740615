"""Did any number of another verb's answer move? If it was meant to, say so: run the refresh script and note it in changelog.d/."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers import cases
from folding import digest, folded
from test_golden import moved

EXPECTED = Path(__file__).parent / "expected_answers.json"
CASES: dict[str, Callable[[], Any]] = cases()


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return json.loads(EXPECTED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES)
def test_answers_have_not_moved(case: str, expected: dict[str, Any]) -> None:
    lines = moved(expected.get(case), json.loads(json.dumps(CASES[case]())))
    assert not lines, "\n".join(
        [f"{case}: {len(lines)} numbers moved.", *lines[:20], "If that is meant: python tests/golden/refresh.py"]
    )


def test_nothing_else_is_expected(expected: dict[str, Any]) -> None:
    assert set(expected) == set(CASES)


def test_long_lists_are_folded_to_sums_by_hand() -> None:
    """1 + 2 + ... + 9 = 45; their squares add up to 285."""
    numbers = {"count": 9, "finite": 9, "sum": 45.0, "in_order": 285.0}
    assert folded(np.arange(1, 10)) == folded(tuple(range(1, 10))) == numbers
    assert folded([{"a": number, "b": "x"} for number in range(1, 10)]) == {"a": numbers, "b": [9, *["x"] * 8]}
    assert folded({"a": "two words", "b": None, "c": [1.5, "d"]}) == {"b": None, "c": [1.5, "d"]}
    assert folded([(number, 0) for number in range(1, 10)])[0] == numbers


def test_a_digest_sees_small_numbers_beside_large_ones() -> None:
    """log(1 + 1e12) = 27.6310211 for 1: twice that is 5.2620422 beyond 50, and 82.8930634 with the second one twice is 2.8930633
    beyond 80. A name and a gap count too."""
    assert digest([1.0, {"a": 1}]) == [[15.2620422, 12.8930633]]
    assert moved(digest([1, []]), digest([1])) and moved(digest([10**9]), digest([10**9 + 1]))
    same = [4e12, 3e-6, 0, "name", None]
    others = (
        [4e12, 3.0001e-6, 0, "name", None],
        [4e12, 3e-6, 0, "other", None],
        [4e12, 3e-6, 0, "name", 0],
        [3e-6, 4e12, 0, "name", None],
    )
    assert all(moved(digest(same), digest(other)) for other in others)
    assert not moved(digest(same), digest([4e12 * (1.0 + 1e-9), 3e-6, 0, "name", None]))
