"""The core's order of two interleaved sequences is that of a slow evaluator."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import EngineError
from windtunnel.engine.turns import OperatorSequence, interleave

SECONDS = st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.3, 1.0, 1e-6])


@st.composite
def sequences(draw: st.DrawFn) -> OperatorSequence:
    n = draw(st.integers(0, 12))
    stream = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    seconds = draw(st.lists(SECONDS, min_size=n, max_size=n))
    waits = [[draw(st.integers(-1, row - 1)) for _ in range(2)] for row in range(n)]
    return OperatorSequence(np.array(stream, np.int32), np.array(seconds, np.float64), np.array(waits, np.int32).reshape(-1, 2))


def evaluate(parts: tuple[OperatorSequence, OperatorSequence], last: int) -> list[tuple[int, int, list[int]]]:
    """(sequence, row, places waited for) of each place."""
    stream, cost, awaited = ([getattr(part, name).tolist() for part in parts] for name in ("stream", "seconds", "waits"))
    total = [reduce(add, seconds, 0.0) or 1.0 for seconds in cost]
    ends: tuple[list[float], list[float]] = ([], [])
    places: tuple[list[int], list[int]] = ([], [])
    done, free, order = [0.0, 0.0], dict.fromkeys(range(64), 0.0), list[tuple[int, int, list[int]]]()
    while waiting := [p for p in (0, 1) if len(ends[p]) < len(cost[p])]:
        bids = []
        for p in waiting:
            row = len(ends[p])
            start = max([free[stream[p][row]], *(ends[p][w] for w in awaited[p][row] if w >= 0)])
            bids.append((start, stream[p][row] == last, done[p] / total[p], p))
        start, _, _, p = min(bids)
        row = len(ends[p])
        ends[p].append(start + cost[p][row])
        free[stream[p][row]] = ends[p][-1]
        done[p] += cost[p][row]
        places[p].append(len(order))
        order.append((p, row, [places[p][w] if w >= 0 else -1 for w in awaited[p][row]]))
    return order


@given(sequences(), sequences(), st.integers(0, 2))
def test_the_order_is_that_of_the_rules(one: OperatorSequence, other: OperatorSequence, last: int) -> None:
    sequence, row, waits = interleave(one, other, last)
    assert list(zip(sequence.tolist(), row.tolist(), waits.tolist(), strict=True)) == evaluate((one, other), last)


def test_waits_for_later_rows_are_refused() -> None:
    bad = OperatorSequence(np.zeros(1, np.int32), np.ones(1), np.array([[0, -1]], np.int32))
    with pytest.raises(EngineError, match="row 0 waits for row 0"):
        interleave(bad, bad, 0)
