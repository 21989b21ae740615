"""Trust and Runs in a browser: rows are scored and picked, a run is seen as it is, axe finds nothing grave."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.served_page import Window, grave_findings

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("dark", [False, True])
def test_a_watched_run_is_shown_as_it_is(window: Window, dark: bool) -> None:
    page = window(dark=dark).open("run?r_run=" + "runs0/slow")
    page.locator("#findings", has_text="rank 5 on node1 computes").wait_for()
    page.locator("#heat .wt-chart").wait_for()
    page.locator("#neighbours table").first.wait_for()
    assert grave_findings(page) == []


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
