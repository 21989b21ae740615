"""The closed form of goodput and the core's simulation agree; `benchmarks/goodput_agreement.py` asks for 1,000 settings."""

from __future__ import annotations

import numpy as np
import pytest
from random_runs import differences

from windtunnel.base.errors import EngineError
from windtunnel.engine.faults import PARTS, FaultKind, FaultTask, Law, run

DAY = 86400.0


def test_inside_the_assumptions_within_half_a_point() -> None:
    closed, gaps = differences(60, seed=11, failures=40_000.0)
    assert closed.min() < 0.8 < 0.95 < closed.max()
    assert np.abs(gaps).max() < 0.005
    assert abs(gaps.mean()) < 0.0005


def test_with_planned_stops_slow_nodes_and_failures_that_return() -> None:
    """What the closed form leaves out is small: 9 of 10 settings within half a point, all within two."""
    _, gaps = differences(30, seed=5, wide=True, failures=40_000.0)
    assert (np.abs(gaps) < 0.005).mean() >= 0.9 and np.abs(gaps).max() < 0.02


def test_equal_seeds_are_equal_whatever_the_threads() -> None:
    kind = FaultKind(rate=1.0 / 5000.0, detect=Law(30.0, "lognormal", 1.0), replaces=True)
    task = FaultTask(
        work=1e5, horizon=1e6, interval=500.0, save=3.0, flush=20.0, drag=0.1, spares=2, spare_repair=Law(DAY, "exponential")
    )
    one, three, other = (run(task, [kind], 2500, seed, threads) for seed, threads in ((4, 1), (4, 3), (5, 1)))
    assert np.array_equal(one.parts, three.parts) and np.array_equal(one.count, three.count)
    assert not np.array_equal(one.parts, other.parts)
    assert np.allclose(one.parts.sum(axis=1), one.wall) and one.parts.shape[1] == len(PARTS)
    shorter = run(task, [kind], 1200, 4)
    assert np.array_equal(shorter.wall, one.wall[:1200])


def test_numbers_out_of_bounds_are_refused() -> None:
    with pytest.raises(EngineError, match="horizon"):
        run(FaultTask(work=1.0, horizon=float("inf"), interval=1.0), [], 1)
    with pytest.raises(EngineError, match="rate"):
        run(FaultTask(work=1.0, horizon=1.0, interval=1.0), [FaultKind(rate=-1.0)], 1)
