"""Metrics of a watched job, in a format that Prometheus reads, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from fleet_collectors import Server, collecting, identity
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from windtunnel.cli import app
from windtunnel.fleet.batch import OPEN_ROWS, SUMMARIES, Batch, BatchMeta, BatchTable, RankBeat, encode, table_of_rows
from windtunnel.fleet.collect.collector import JOB_METRICS
from windtunnel.fleet.collect.dashboard import grafana_dashboard
from windtunnel.fleet.ring import ROW, RowState
from windtunnel.records.incidents import FILE, Incident, append_incident
from windtunnel.records.sections import Section

RANKS, STEPS, STEP_NS = 4, 40, 50_000_000
DOCUMENT = Path(__file__).parents[2] / "docs" / "fleet-collector.md"


def rows_of_rank(slow: bool) -> np.ndarray:
    """Steps of 50 ms: 1 ms for data, a forward of 20 ms, or 40 ms, and a call for the rest."""
    work, data = (40_000_000 if slow else 20_000_000), 1_000_000
    sections = [Section.STEP, Section.DATA, Section.FORWARD, Section.CALL]
    rows = np.zeros(STEPS * len(sections), ROW)
    rows["step"] = np.repeat(np.arange(STEPS), len(sections))
    rows["section"] = np.tile(sections, STEPS)
    begin = 1_700_000_000_000_000_000 + rows["step"].astype(np.int64) * STEP_NS
    rows["begin"] = begin + np.tile([0, 0, data, data + work], STEPS)
    rows["nanos"] = rows["host_nanos"] = np.tile([STEP_NS, data, work, STEP_NS - work - data], STEPS)
    rows["name"] = rows["peer"] = rows["micro_batch"] = rows["bytes"] = -1
    rows["group"] = np.where(rows["section"] == Section.CALL, 0, -1)
    rows["call"] = np.where(rows["section"] == Section.CALL, rows["step"], -1)
    rows["state"] = RowState.DONE
    return rows


def filled(server: Server, **facts: float) -> None:
    whos = [identity(rank, RANKS) for rank in range(RANKS)]
    for who in whos:
        who.facts = {**who.facts, **facts}
    rows = [rows_of_rank(rank == 2) for rank in range(RANKS)]
    count = STEPS * 4
    beats = [
        RankBeat(who.key(), count, STEPS - 1 - who.rank % 2, 1, "running", next=count, identity=who, lines_from=0, lines=[0])
        for who in whos
    ]  # fmt: skip
    meta = BatchMeta("node0", 1, beats, [("group", {"name": "dp", "ranks": list(range(RANKS))})])
    batch = Batch(
        bytes(16), 1, meta, table_of_rows([np.arange(count)] * RANKS, rows), BatchTable.empty(OPEN_ROWS, RANKS),
        BatchTable.empty(SUMMARIES, RANKS),
    )  # fmt: skip
    assert server.ask("POST", "/v1/batches", encode(batch))[0] == 200


def metrics_of(server: Server) -> dict[str, dict[tuple[str, ...], float]]:
    """Sample name -> label values, in order of their names -> value."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    status, text = server.ask("GET", "/metrics")
    assert status == 200
    for family in text_string_to_metric_families(text.decode()):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name) and family.documentation
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {}), "a sample twice"
            found[sample.name][labels] = sample.value
    return found


@pytest.fixture
def alarms(tmp_path: Path) -> Path:
    """Alarms beside a collector's folder: two of one kind, one that is over, one that is being written."""
    path = tmp_path / "alarms.jsonl"
    one = {"seconds": 1_700_000_100.0, "verdict": "hang", "ranks": [1], "text": "x", "cleared": False}
    path.write_text("\n".join([json.dumps(one), json.dumps({**one, "seconds": 1_700_000_200.0}),
                               json.dumps({**one, "verdict": "slow rank", "cleared": True}), '{"seconds": 3', "7"]))  # fmt: skip
    keep_incidents(tmp_path)
    return path


def keep_incidents(folder: Path) -> None:
    """Three incidents of a kept job, the first of them written twice."""
    for number, what, attempt in ((1, "crash", 0), (1, "crash", 0), (2, "hang", 1), (3, "crash", 2)):
        append_incident(folder / FILE, Incident(number, "job", 1.0, 2.0, what, attempt=attempt))


def test_an_incident_log_that_is_damaged_leaves_the_other_metrics(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"number": "x"}\n')
    with collecting(tmp_path / "collected", policy={"metric_seconds": 0.0}) as server:
        filled(server)
        found = metrics_of(server)
    assert found["windtunnel_job_up"] == {(): 1.0} and "windtunnel_job_incident_attempt" not in found


def test_the_metrics_say_what_the_job_does(tmp_path: Path, alarms: Path) -> None:
    with collecting(tmp_path / "collected", policy={"metric_seconds": 0.0}) as server:
        filled(server, tokens_per_step=1000)
        found = metrics_of(server)
    job = {name.removeprefix("windtunnel_job_"): values for name, values in found.items() if name.startswith("windtunnel_job_")}
    assert set(job) >= set(JOB_METRICS)
    assert job["up"] == {(): 1.0} and job["info"] == {("job", "4"): 1.0} and job["ranks"] == {("running",): 4.0}
    assert job["step"] == {(): STEPS - 2}
    assert job["step_seconds"][()] == pytest.approx(0.05) and job["tokens_per_second"][()] == pytest.approx(20_000)
    own = {int(rank): value for (_, rank), value in job["rank_own_seconds"].items()}
    assert own == pytest.approx({0: 0.02, 1: 0.02, 2: 0.04, 3: 0.02})
    waiting = {int(rank): value for (_, rank), value in job["rank_waiting_seconds"].items()}
    assert waiting == pytest.approx({0: 0.029, 1: 0.029, 2: 0.009, 3: 0.029})
    slow = {int(rank): value for (_, rank), value in job["rank_slow_ratio"].items()}
    assert slow[2] == pytest.approx(1.0, rel=0.2) and slow[0] == slow[1] == slow[3] == 0.0
    assert job["findings"] == {("slow rank",): 1.0} and job["finding_cost_seconds"][("2", "slow rank")] > 0.01
    assert job["alarms_total"] == {("hang",): 2.0}
    assert job["incidents_total"] == {("crash",): 2.0, ("hang",): 1.0} and job["incident_attempt"] == {(): 2.0}
    assert job["last_alarm_timestamp_seconds"] == {("hang",): 1_700_000_200.0}


def test_before_the_job_begins_and_with_few_ranks_of_many(tmp_path: Path) -> None:
    with collecting(tmp_path / "collected", policy={"metric_seconds": 0.0, "metric_ranks": 1}) as server:
        found = metrics_of(server)
        assert found["windtunnel_job_up"] == {(): 1.0} and found["windtunnel_job_step"] == {(): -1.0}
        filled(server)
        found = metrics_of(server)
        assert list(found["windtunnel_job_rank_own_seconds"]) == [("node0", "2")]
        assert "windtunnel_job_tokens_per_second" not in found


def test_the_dashboard_asks_for_metrics_that_there_are(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["fleet", "dashboard"])
    board = json.loads(said.output)
    assert said.exit_code == 0 and board == json.loads(json.dumps(grafana_dashboard()))
    alarm = {"seconds": 1_700_000_100.0, "verdict": "hang", "ranks": [1], "text": "x", "cleared": False}
    (tmp_path / "alarms.jsonl").write_text(json.dumps(alarm))
    keep_incidents(tmp_path)
    with collecting(tmp_path / "collected", policy={"metric_seconds": 0.0}) as server:
        filled(server, tokens_per_step=1000)
        there = set(metrics_of(server))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    names = {name for expression in asked for name in re.findall(r"windtunnel_\w+", expression)}
    assert len(names) > 15 and names <= there
    assert {f"windtunnel_job_{name}" for name in JOB_METRICS} - names == {"windtunnel_job_info"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len(ids) and all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in board["panels"])


def test_the_document_has_every_metric() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, what in JOB_METRICS.items():
        assert f"| `windtunnel_job_{name}` | {what} |" in text
