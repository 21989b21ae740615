"""Trust and Runs in a browser: rows are scored and picked, a run is seen as it is, axe finds nothing grave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.browser.served_page import ServedPage, Window, grave_findings
from tests.service.served import PATIENCE, ServedProcess

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("dark", [False, True])
def test_a_watched_run_is_shown_as_it_is(window: Window, dark: bool) -> None:
    page = window(dark=dark).open("run?r_run=" + "runs0/slow")
    page.locator("#findings", has_text="rank 5 on node1 computes").wait_for()
    page.locator("#heat .wt-chart").wait_for()
    page.locator("#neighbours table").first.wait_for()
    assert grave_findings(page) == []


COLLECTED_JOB = """
import os, pathlib, sys, time
sys.path.insert(0, sys.argv[1])
from tests.helpers.fleet_rings import written
written(pathlib.Path(os.environ["WINDTUNNEL_FLEET_DIR"]) / os.environ["WINDTUNNEL_FLEET_RUN"])
end = time.monotonic() + 300
while not pathlib.Path(sys.argv[2]).exists() and time.monotonic() < end:
    time.sleep(0.1)
"""


def test_a_collected_run_is_shown_while_it_runs_and_afterwards(browser: Any, tmp_path: Path) -> None:
    """The folder is one that `fleet run --collect` wrote itself, and looking at it changes nothing in it."""
    runs, stop = tmp_path / "runs", tmp_path / "stop"
    root = str(Path(__file__).resolve().parents[2])
    job = subprocess.Popen(
        [sys.executable, "-m", "windtunnel", "fleet", "run", "--dir", str(runs), "--run", "job", "--collect", "--no-monitor", "--",
         sys.executable, "-c", COLLECTED_JOB, root, str(stop)],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    kept = runs / "job" / "collected"
    try:
        until = time.monotonic() + PATIENCE
        while not any(file.stat().st_size for file in kept.glob("log/*.wtlog")):
            assert time.monotonic() < until and job.poll() is None, job.communicate()[1]
            time.sleep(0.1)
        with ServedProcess(tmp_path / "data", ["--runs", str(runs), "--per-minute", "1000000"], workers=1) as served:
            window = ServedPage(browser, served.ready().url)
            window.open("run?r_run=runs/job").locator("#findings", has_text="rank 5 on node1 computes").wait_for()
            stop.touch()
            _, said = job.communicate(timeout=PATIENCE)
            assert job.returncode == 0, said
            before = {path: path.stat().st_mtime_ns for path in kept.rglob("*")}
            time.sleep(5.0)  # longer than a look is kept
            page = window.open("run?r_run=runs/job")
            page.locator("#findings", has_text="rank 5 on node1 computes").wait_for()
            page.locator("#heat .wt-chart").wait_for()
            assert {path: path.stat().st_mtime_ns for path in kept.rglob("*")} == before
            window.close()
    finally:
        stop.touch()
        if job.poll() is None:
            job.communicate(timeout=PATIENCE)


def test_incidents_and_checkpoints_of_a_kept_run(window: Window) -> None:
    page = window(wide=390).open("run?r_run=runs0/kept")
    page.locator("#incidents", has_text="crash").wait_for()
    page.locator("#checkpoints", has_text="300").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_scored_rows_open_their_job(window: Window) -> None:
    page = window().open("trust?t_only=A100-Megatron-Selene")
    page.locator("#published").get_by_role("button", name="Score").click()
    page.locator("#scored table.wt-matrix").wait_for()
    page.locator("#scored .wt-table tbody tr").first.press("Enter")
    page.get_by_role("link", name="Open this job in Compose").wait_for()
    assert grave_findings(page) == []


def test_a_path_of_a_visitor_is_no_run(window: Window, tmp_path: Path) -> None:
    (tmp_path / "incidents.jsonl").write_text("")
    page = window().open(f"run?r_run={tmp_path}")
    page.locator("#state", has_text="No run here is called").wait_for()
