"""Simulated runs a second, and the closed form's whole run for one plan of a search.

pytest benchmarks/test_goodput_speed.py        asserts no time
"""

from __future__ import annotations

from typing import Any

from windtunnel.goodput import run_of
from windtunnel.goodput.conditions import DAY
from windtunnel.goodput.run import conditions_of
from windtunnel.goodput.simulate import simulate
from windtunnel.spec import load_job

JOB = load_job("llama3.1-405b-16384", ["reliability=llama3-2024", "reliability.checkpoint.every=5min"])


def test_ten_thousand_runs_of_54_days(benchmark: Any) -> None:
    """54 days of 16,384 GPUs with 419 unexpected failures each, on one thread."""
    run = conditions_of(JOB, 7.2)
    answer = benchmark.pedantic(lambda: simulate(run, 300.0, float("inf"), 54 * DAY, 10_000), rounds=1)
    assert 400.0 < sum(count for name, count in answer.failures.items() if name != "planned") < 440.0


def test_the_whole_run_of_a_plan(benchmark: Any) -> None:
    """What a search asks for every plan: below a millisecond."""
    assert benchmark(lambda: run_of(JOB, 7.2)).days is not None
