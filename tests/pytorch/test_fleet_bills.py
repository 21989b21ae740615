"""The bill of jobs that do not use windtunnel's checkpointer: what was repeated is told, or said to be unknown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("cryptography")

from tests.faults.recovery.kept import KeptJob
from windtunnel.cli import app
from windtunnel.fleet.driver.plan import RecoveryPolicy

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("keepers")]
SCRIPT = Path(__file__).with_name("own_script.py")
KILL = 35


def _killed(folder: Path, *words: str) -> KeptJob:
    with KeptJob(folder, *words, spares=0, script=SCRIPT, per_node=1, policy=RecoveryPolicy(retries=2)) as job:
        job.drive()
        assert job.ended() == 0, job.said()
    return job


@pytest.mark.parametrize("kind", ["nothing", "sgd-nothing"])
def test_a_script_that_loads_nothing_repeats_everything_and_that_is_said(tmp_path: Path, kind: str) -> None:
    job = _killed(tmp_path / "job", "--kind", kind)
    (one,) = job.incidents()
    assert one.from_step == 0 and KILL - 2 <= (one.lost_steps or 0) <= KILL
    assert any(f"attempt 1 began again at step 0: {one.lost_steps} steps are repeated" in line for line in job.said())
    told = CliRunner().invoke(app, ["fleet", "incidents", str(job.folder)])
    assert f"began again at step 0: {one.lost_steps} steps were repeated; no checkpoint was loaded" in " ".join(told.output.split())
    assert "unknown" not in told.output
    twin = CliRunner().invoke(app, ["fleet", "replay", str(job.folder)])
    assert twin.exit_code != 0 and "No two checkpoints were seen" in str(twin.exception or twin.output)
    assert CliRunner().invoke(app, ["fleet", "replay", str(job.folder), "--interval", "1"]).exit_code == 0


@pytest.mark.parametrize("kind", ["file", "dcp", "sgd"])
def test_a_script_that_resumes_by_itself_is_billed_for_what_it_repeated(tmp_path: Path, kind: str) -> None:
    job = _killed(tmp_path / "job", "--kind", kind)
    (one,) = job.incidents()
    assert one.from_step == 30 and 3 <= (one.lost_steps or 0) <= 5
    assert not any("began again" in line for line in job.said())
    told = CliRunner().invoke(app, ["fleet", "incidents", str(job.folder), "--json", "-"])
    assert json.loads(told.stdout)["incidents"][0]["replay_s"] > 0
    twin = CliRunner().invoke(app, ["fleet", "replay", str(job.folder)])
    assert twin.exit_code == 0, twin.output
    assert re.search(r"A checkpoint every \d", twin.output)


def test_what_nothing_tells_is_unknown(tmp_path: Path) -> None:
    job = _killed(tmp_path / "job", "--kind", "weights")
    (one,) = job.incidents()
    assert one.from_step is None and one.lost_steps is None
    told = CliRunner().invoke(app, ["fleet", "incidents", str(job.folder)])
    assert "unknown" in told.output and "ETTR at most" in told.output and "report_load" in told.output
    data = json.loads(CliRunner().invoke(app, ["fleet", "incidents", str(job.folder), "--json", "-"]).stdout)
    assert data["incidents"][0]["replay_s"] is None


def test_no_escape_of_a_rank_reaches_the_drivers_terminal(tmp_path: Path) -> None:
    job = _killed(tmp_path / "job", "--kind", "nothing")
    told = CliRunner().invoke(app, ["fleet", "incidents", str(job.folder)])
    assert "tokenizer shard 17 is gone" in " ".join(told.output.split()) and "\x1b" not in told.output and "PWN" not in told.output
    page = tmp_path / "page.html"
    assert CliRunner().invoke(app, ["fleet", "incidents", str(job.folder), "--html", str(page)]).exit_code == 0
    assert "\x1b" not in page.read_text()
