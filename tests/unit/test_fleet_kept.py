"""A kept run's folder as a run with laws, and the verb over it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.helpers.kept_run import kept
from windtunnel.base.errors import FileError, SpecError
from windtunnel.cli import app
from windtunnel.records.incidents import FILE, Incident, IncidentSeconds, append_incident
from windtunnel.runs.fleet.kept import fleet_run


def test_step_interval_and_saves_come_from_the_ranks_events(tmp_path: Path) -> None:
    run = fleet_run(kept(tmp_path))
    assert run.step == pytest.approx(2.0)
    assert run.interval == pytest.approx(20.0)
    assert run.saves == (0.5,) * 30
    assert run.flush == pytest.approx(3.0)
    assert run.began == pytest.approx(1000.0)
    wall = 300 * 2.0 + 30 * 0.5 + 3 * (12.0 + 4 * 2.0) + 3.0
    assert run.wall == pytest.approx(wall)
    assert run.ettr == pytest.approx((300 * 2.0 + 3.0) / wall)


def test_options_stand_in_for_events(tmp_path: Path) -> None:
    kept(tmp_path)
    for file in tmp_path.glob("checkpoints-*"):
        file.unlink()
    with pytest.raises(SpecError, match="--step"):
        fleet_run(tmp_path)
    run = fleet_run(tmp_path, step=2.0, interval=20.0)
    assert (run.step, run.interval, run.saves) == (2.0, 20.0, ())


def test_a_torn_event_is_left_out_and_another_line_refused(tmp_path: Path) -> None:
    kept(tmp_path)
    file = tmp_path / "checkpoints-0.jsonl"
    whole = file.read_text()
    file.write_text(whole + '{"event": "sa')
    assert fleet_run(tmp_path).step == pytest.approx(2.0)
    file.write_text("what\n" + whole)
    with pytest.raises(FileError, match="line 1"):
        fleet_run(tmp_path)


def test_a_load_after_an_incident_says_where_training_went_on_from(tmp_path: Path) -> None:
    kept(tmp_path)
    number, before = 5, fleet_run(tmp_path)
    incident = next(one for one in before.incidents if one.number == number)
    load = {"event": "load", "step": 50, "unix": incident.seen + 1.0, "source": "storage", "why": "step 60 was passed over: a hash"}
    with (tmp_path / "checkpoints-1.jsonl").open("a") as file:
        file.write(json.dumps(load) + "\n")
    run = fleet_run(tmp_path)
    assert run.went_on == {number: "went on from step 50, read from storage; step 60 was passed over: a hash"}
    told = CliRunner().invoke(app, ["fleet", "incidents", str(tmp_path), "--json", "-"])
    assert [one["went_on"] for one in json.loads(told.stdout)["incidents"]] == [run.went_on[number], None, None]


def test_an_empty_folder_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=FILE):
        fleet_run(tmp_path)


def test_replay_of_a_run_says_measured_and_predicted(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["fleet", "replay", str(kept(tmp_path)), "--json", "-"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.output)
    assert found["ettr_measured"] == pytest.approx(0.889, abs=0.002)
    assert found["ettr_low"] <= found["ettr_predicted"] <= found["ettr_high"]
    assert abs(found["ettr_predicted"] - found["ettr_measured"]) < 0.05
    assert found["faults"] == 3


def test_replay_of_a_job_with_a_runs_faults_and_with_a_rate(tmp_path: Path) -> None:
    job = "llama3.1-405b-16384"
    for faults in (str(kept(tmp_path)), "0.004"):
        ran = CliRunner().invoke(app, ["fleet", "replay", job, "--faults", faults, "--nodes", "100000", "--json", "-"])
        assert ran.exit_code == 0, ran.output
    assert "ETTR predicted" in CliRunner().invoke(app, ["fleet", "replay", job, "--faults", "0.004"]).output


@pytest.mark.parametrize(
    "arguments", [["llama3-8b-8xh100"], ["llama3-8b-8xh100", "--faults", "often"], ["llama3-8b-8xh100", "--faults", "-1"]]
)
def test_what_cannot_be_is_said(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["fleet", "replay", *arguments]).exit_code != 0


def test_spares_are_asked_by_the_repair_of_a_node(tmp_path: Path) -> None:
    for number in range(3):
        seconds = IncidentSeconds(1.0, 2.0, 4.0, 8.0, 1.0, None)
        at = 1000.0 + 500 * number
        append_incident(
            tmp_path / FILE,
            Incident(number, "j", at, at + 1, "node-lost", action="replace", seconds=seconds, lost_steps=4, outcome="recovered"),
        )
    options = ["--step", "2", "--interval", "20", "--nodes", "8", "--node-repair", "1h", "--json", "-"]
    found = json.loads(CliRunner().invoke(app, ["fleet", "replay", str(tmp_path), *options]).output)
    assert found["spares"][0]["spares"] > 0
