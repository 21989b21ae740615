"""The page of incidents: everything that was said is on it and escaped, and boxes lie where the incidents were."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from windtunnel.cli import app
from windtunnel.draw.page.painters import LEFT, WIDE
from windtunnel.draw.page.sheet import page
from windtunnel.goodput.incidents_sheet import incidents_sheet
from windtunnel.goodput.measured import FleetRun, twin
from windtunnel.records.incidents import FILE, Incident, IncidentSeconds, append_incident

SECONDS = IncidentSeconds(1.0, 2.0, 3.0, 4.0, 0.0, None)
ONE = Incident(1, "j", 500.0, 501.0, "oom", "node1", (3, 4), "<b>out of memory</b>", "retry", 1, SECONDS, 40, 5, "recovered")
RUN = FleetRun((ONE,), 0.0, 1000.0, 2, 2.0, 40.0, (0.5,) * 10)


def test_what_was_said_is_there_and_cannot_become_markup() -> None:
    text = page(incidents_sheet("my run", RUN.incidents, RUN, twin(RUN)), "windtunnel fleet incidents r --html p.html")
    assert "<b>out of memory" not in text
    assert "&lt;b&gt;out of memory" in text
    for part in ("ETTR measured", "ETTR predicted", "node1 ranks 3, 4", "10 s", "20 s", "97.5 %"):
        assert part in text
    assert "http" not in re.sub(r"xmlns=\S+", "", text)


def test_phases_lie_in_a_row_from_the_fault_on() -> None:
    text = page(incidents_sheet("r", RUN.incidents, RUN))
    scale = (WIDE - LEFT) / 1000.0
    boxes = [float(x) for x in re.findall(r'<rect x="([\d.]+)"', text)]
    assert boxes == pytest.approx([LEFT + at * scale for at in (0, 500, 501, 503, 506, 510)], abs=0.01)


def test_a_run_without_incidents_has_a_page() -> None:
    assert "None." in page(incidents_sheet("r", (), replace(RUN, incidents=())))


def test_the_verb_writes_page_and_data(tmp_path: Path) -> None:
    append_incident(tmp_path / FILE, replace(ONE, began=500.0))
    append_incident(tmp_path / FILE, replace(ONE, number=2, began=900.0, evidence="lost"))
    save = {"event": "save", "step": 300, "unix": 700.0, "blocking_seconds": 0.5}
    (tmp_path / "checkpoints-0.jsonl").write_text(json.dumps(save) + "\n")
    shown = tmp_path / "page.html"
    ran = CliRunner().invoke(
        app, ["fleet", "incidents", str(tmp_path), "--step", "2", "--html", str(shown), "--json", str(tmp_path / "j")]
    )
    assert ran.exit_code == 0, ran.output
    assert "2 incidents" in ran.output
    assert "lost" in shown.read_text()
    assert len(json.loads((tmp_path / "j").read_text())["incidents"]) == 2
