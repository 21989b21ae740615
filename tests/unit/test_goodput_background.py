"""A background checkpoint's own costs, a stop and longer steps: closed form and simulation agree on jobs of the catalogue."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import windtunnel as wt
from windtunnel.goodput.closed import at, steady
from windtunnel.goodput.conditions import Conditions
from windtunnel.goodput.run import BESIDE, STOP, conditions_of
from windtunnel.goodput.simulate import simulate

JOBS = {"llama3.1-405b-16384": 15.0, "megascale-175b-12288": 6.5, "llama2-70b-64xh100": 10.0}
"""Seconds of a step, so that nothing is predicted here."""


def background(name: str) -> Conditions:
    """The job's conditions under many failures, with checkpoints whose stop and drag nobody states."""
    sets = [
        "reliability.crash.per_node_day=2e-2", "reliability.crash.detect=1min", "reliability.init=2min", "reliability.spares=0",
        "reliability.checkpoint.mode=background", "reliability.checkpoint.write=100GB/s",
    ]  # fmt: skip
    found = conditions_of(wt.check(wt.load(name, sets)), JOBS[name])
    assert STOP < found.checkpoint.save < 2.0 and found.checkpoint.drag >= BESIDE and found.checkpoint.flush > 0.0
    return found


@pytest.mark.parametrize("times", [1.0, 1.05, 3.0, 30.0])
@pytest.mark.parametrize("name", JOBS)
def test_closed_form_and_simulation_agree(name: str, times: float) -> None:
    """From flushes back to back to one in thirty: ETTR within four standard errors and 0.02 points, and each part within 2 % and
    0.02 points. Of work that is done again, its stops are replay in the closed form and saves in the simulation."""
    run = background(name)
    cost = run.checkpoint
    interval = times * max(run.shortest, cost.flush)
    answer = at(run, interval)
    replicas = 200
    horizon = 40_000.0 / replicas * answer.mtbf
    simulated = simulate(run, interval, math.inf, horizon, replicas, seed=7)
    assert simulated.ettr.mean == pytest.approx(answer.ettr, abs=4.0 * simulated.ettr_error + 2e-4)
    hours = sum(simulated.parts.values())
    for parts in (("useful",), ("drag",), ("save", "replay")):
        shares = (sum(simulated.parts[part] for part in parts) / hours, sum(answer.parts[part] for part in parts))
        assert shares[0] == pytest.approx(shares[1], rel=0.02, abs=2e-4), parts


@pytest.mark.parametrize("name", JOBS)
def test_both_costs_are_in_the_parts(name: str) -> None:
    """By hand: each interval pays one stop, and during its flush a step takes 1 + drag as long."""
    run = background(name)
    cost, answer = run.checkpoint, steady(run)
    each = answer.parts["useful"] / answer.interval  # intervals a second of wall time
    assert answer.parts["save"] == pytest.approx(each * cost.save, rel=0.05)
    assert answer.parts["drag"] == pytest.approx(each * cost.flush * cost.drag / (1.0 + cost.drag), rel=0.05)
    free = steady(replace(run, checkpoint=replace(cost, save=cost.save - STOP, drag=0.0)))  # what was computed before
    assert free.ettr > answer.ettr and free.interval <= answer.interval
