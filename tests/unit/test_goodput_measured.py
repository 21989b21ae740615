"""The twin: laws from incidents, and what they predict against runs whose truth is known."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.goodput.measured import FleetRun, measured_conditions, predict_fleet, twin, with_laws_of
from windtunnel.records.incidents import Incident, IncidentSeconds
from windtunnel.spec.reliability import Duration

STEP, EVERY, SAVE = 2.0, 20, 0.5


def made_up(wall: float, mtbf: float, seed: int, while_down: bool = False) -> FleetRun:
    """A run of steps with a save after every 20, in which faults come at random while it trains."""
    dice = random.Random(seed)
    now, done, saved, saves, incidents = 0.0, 0, 0, [], []
    fault = dice.expovariate(1 / mtbf)  # seconds of training until the next
    while now < wall:
        seconds = STEP + (SAVE if (done + 1) % EVERY == 0 else 0.0)
        if fault >= seconds:
            now, fault, done = now + seconds, fault - seconds, done + 1
            if done % EVERY == 0:
                saved = done
                saves.append(SAVE)
            continue
        at = now + fault
        down = IncidentSeconds(dice.uniform(1, 3), 1.0, 0.0, dice.uniform(4, 8), 1.5, (done - saved) * STEP + fault)
        what = dice.choice(("crash", "hang"))
        incidents.append(
            Incident(len(incidents), "j", at, at + (down.detect or 0), what, seconds=down, from_step=saved, lost_steps=done - saved,
                     outcome="recovered", action="retry")  # type: ignore[arg-type]
        )  # fmt: skip
        now, done, fault = at + down.down, saved, dice.expovariate(1 / mtbf)
    return FleetRun(tuple(incidents), 0.0, now, 4, STEP, EVERY * STEP, tuple(saves))


def test_laws_by_hand() -> None:
    seconds = IncidentSeconds(1.0, 2.0, 3.0, 4.0, 5.0, None)
    one = Incident(1, "j", 100.0, 101.0, "crash", seconds=seconds, lost_steps=5, outcome="recovered", action="replace")
    run = FleetRun((one,), 0.0, 1000.0, 2, 2.0, 40.0, (0.5,) * 10)
    laws = measured_conditions(run)
    ((name, kind),) = laws.kinds
    assert name == "crash"
    assert kind.per_job_day == pytest.approx(86400 / (1000 - 15))
    assert (kind.detect.mean, kind.diagnose.mean, kind.repair.mean) == (1.0, 2.0, 3.0)
    assert (laws.init.mean, laws.checkpoint.load, laws.checkpoint.save) == (4.0, 5.0, 0.5)
    assert run.ettr == pytest.approx((1000 - 15 - 10 - 5) / 1000)
    assert run.parts["wait"] == pytest.approx(0.003)
    with_repair = measured_conditions(run, Duration(mean=3600.0))
    assert with_repair.swap.mean == 3.0
    assert with_repair.kinds[0][1].replaces_node


@pytest.mark.parametrize("seed", range(4))
def test_a_run_is_predicted_from_another_run_of_its_laws(seed: int) -> None:
    learned, other = made_up(160_000.0, 150.0, seed), made_up(160_000.0, 150.0, seed + 100)
    found = predict_fleet(measured_conditions(learned), other.wall, len(learned.incidents))
    assert found.predicted == pytest.approx(other.ettr, abs=0.02)
    for part in ("detect", "init", "load", "replay", "save"):
        assert found.parts[part] == pytest.approx(other.parts[part], abs=0.012)


def test_eighty_of_a_hundred_runs_are_in_the_interval() -> None:
    learned = made_up(20_000.0, 200.0, 7)
    found = predict_fleet(measured_conditions(learned), 5000.0, len(learned.incidents))
    inside = sum(found.low <= made_up(5000.0, 200.0, seed).ettr <= found.high for seed in range(1000, 1100))
    assert 60 <= inside <= 98


def test_faults_during_recoveries_are_seen() -> None:
    run = made_up(5000.0, 150.0, 3)
    first = run.incidents[0]
    during = replace(run.incidents[1], began=first.began + 0.5, number=99)
    assert not any(kind.while_down for _, kind in measured_conditions(run).kinds)
    assert all(kind.while_down for _, kind in measured_conditions(replace(run, incidents=(*run.incidents, during))).kinds)


def test_more_nodes_fail_more_often() -> None:
    run = made_up(20_000.0, 150.0, 5)
    laws = measured_conditions(run)
    larger = with_laws_of(replace(laws, nodes=8), run)
    assert sum(map(larger.rate, dict(larger.kinds).values())) == pytest.approx(2 * sum(map(laws.rate, dict(laws.kinds).values())))


def test_the_twin_says_what_one_slow_incident_moves() -> None:
    run = made_up(5000.0, 150.0, 3)
    worst = run.incidents[4]
    hour = replace(worst, seconds=replace(worst.seconds, detect=3600.0))
    later = [replace(one, began=one.began + 3600.0, seen=one.seen + 3600.0) for one in run.incidents[5:]]
    struck = twin(replace(run, ended=run.ended + 3600.0, incidents=(*run.incidents[:4], hour, *later)))
    assert struck.slowest is not None and struck.slowest[0] == worst.number
    assert struck.slowest[1] > struck.predicted + 0.2
    assert struck.slowest[1] == pytest.approx(twin(run).predicted, abs=0.01)


def test_an_ignored_incident_costs_no_time_of_its_own() -> None:
    """A lost agent whose node was lost too stands twice in the log, with the same begin."""
    seconds = IncidentSeconds(3.0, 1.0, 0.0, 4.0, 2.0, None)
    lost = Incident(2, "j", 100.0, 103.0, "node-lost", seconds=seconds, outcome="recovered", action="retry")
    agent = replace(lost, number=1, what="agent-lost", seconds=IncidentSeconds(2.5), outcome="ignored")
    run = FleetRun((agent, lost), 0.0, 1000.0, 2, 2.0, 40.0)
    assert run.parts["detect"] == pytest.approx(0.003)
    assert run.ettr == pytest.approx(0.99)


def test_a_run_without_incidents_teaches_nothing() -> None:
    with pytest.raises(SpecError, match="recovered from"):
        twin(FleetRun((), 0.0, 100.0, 1, 1.0, 10.0))


def test_the_twin_recommends_an_interval() -> None:
    found = twin(made_up(20_000.0, 150.0, 9))
    assert 0.5 * (2 * SAVE * 150) ** 0.5 < found.best.best < 2 * (2 * SAVE * 150) ** 0.5  # Young's
    assert found.best.goodput >= found.predicted - 1e-9


def test_only_faults_that_were_recovered_from_are_counted() -> None:
    run = made_up(5000.0, 150.0, 3)
    ignored = replace(run.incidents[1], number=99, outcome="ignored")
    assert twin(replace(run, incidents=(*run.incidents, ignored))).counted == len(run.incidents)


def test_a_twin_recommends_spares_where_nodes_are_replaced() -> None:
    run = made_up(5000.0, 150.0, 3)
    assert twin(run).spares == ()
    replaced = replace(run, incidents=tuple(replace(one, action="replace") for one in run.incidents))
    found = twin(replaced, Duration(mean=3600.0))
    assert found.spares and found.spares[0].per_node == max(one.per_node for one in found.spares)
