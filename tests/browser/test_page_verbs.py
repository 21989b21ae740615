"""The section `verbs`: a form for any verb, also for one that a package of its own adds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import windtunnel as wt
from tests.browser.served_page import ServedPage, Window, grave_findings
from tests.helpers.toy_packages import example, with_package
from tests.service.served import ServedProcess

pytestmark = pytest.mark.browser


def test_a_verb_is_picked_and_asked(window: Window) -> None:
    page = window().open("verbs")
    page.get_by_label("Verb", exact=True).fill("collective")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/verbs?of=collective")
    page.get_by_label("gpus", exact=True).fill("16")
    page.get_by_label("cluster", exact=True).fill("h100-ib")
    page.get_by_label("bytes", exact=True).fill("1M")
    page.locator("#verb").get_by_role("button", name="Ask").click()
    answer = page.locator("#verb-answer")
    answer.get_by_text("windtunnel collective").wait_for()
    assert "--gpus=16" in answer.inner_text() and grave_findings(page) == []


def test_changes_of_a_job_and_a_file_are_asked(window: Window, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(wt.dump(wt.load("llama3-8b-8xh100")), encoding="utf-8")
    page = window().open("verbs?of=memory")
    page.locator("#verb input[type=file]").set_input_files(str(tmp_path / "job.toml"))
    page.locator("#verb .wt-soft", has_text="job.toml").wait_for()
    page.get_by_label("job", exact=True).fill("job.toml")
    page.get_by_label("set", exact=True).fill("plan.seq=2048 model.layers=4")
    page.locator("#verb").get_by_role("button", name="Ask").click()
    answer = page.locator("#verb-answer")
    answer.get_by_text("windtunnel memory").wait_for()
    assert "--set=plan.seq=2048 --set=model.layers=4" in answer.inner_text()


def test_a_verb_of_another_package_is_asked_everywhere(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in with_package(tmp_path, "verbs", example("verb")).items():
        monkeypatch.setenv(name, value)
    with ServedProcess(tmp_path / "data", workers=1, alone=True) as served:
        status, _, answer = served.ready().ask("toy", number=41, more=2)
        assert status == 200 and b'"sum": 43' in answer
        assert b"What is added." in served.send("GET", "/api/v1/openapi.json")[2]
        assert served.ask("toy", number="many")[0] == 422
        code = f"import windtunnel as wt; print(wt.connect({served.url!r}).toy(41, more=2, artefacts=['html']).sum)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.stdout == "43\n", done.stderr
        opened = ServedPage(browser, served.url)
        page = opened.open("verbs?of=toy")
        page.get_by_label("number", exact=True).fill("41")
        page.locator("#verb").get_by_role("button", name="Ask").click()
        page.locator("#verb-answer").get_by_text("41 and more is 42").wait_for()
        opened.close()
