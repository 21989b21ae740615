"""Theil's line and Mann and Whitney's test against scipy's, which are slow to import."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from windtunnel.fleet.findings.decline import chance_of_greater, fit_theil_line


@pytest.mark.parametrize("seed", range(40))
def test_both_are_scipy_s(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(10, 41))
    places = np.cumsum(random.uniform(0.5, 3.0, count))
    values = random.normal(size=count) + random.choice([0.0, 0.1]) * places
    if seed % 3 == 0:
        values = np.round(values, 1)  # ties
    theirs = stats.theilslopes(values, places)
    assert fit_theil_line(places, values) == pytest.approx((theirs.slope, theirs.intercept), rel=1e-12, abs=1e-12)
    cut = int(random.integers(3, count - 2))
    exact = stats.mannwhitneyu(values[cut:], values[:cut], alternative="greater", method="exact").pvalue
    assert chance_of_greater(values[cut:], values[:cut]) == pytest.approx(exact, rel=1e-9, abs=1e-15)


def test_the_smallest_chance_is_one_order_of_all() -> None:
    assert chance_of_greater(np.arange(20.0, 40.0), np.arange(20.0)) == pytest.approx(1 / 137_846_528_820, rel=1e-9)
    assert chance_of_greater(np.arange(3.0), np.arange(3.0, 7.0)) == 1.0


def test_a_run_without_slow_links_is_judged_without_scipy_stats() -> None:
    script = """
import sys
import numpy as np
from windtunnel.fleet.findings.decline import trend_of
random = np.random.default_rng(0)
trend_of(random.normal(size=100))
trend_of(np.r_[random.normal(size=50), 9 + random.normal(size=50)])
assert "scipy.stats" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
