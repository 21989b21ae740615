"""A browser for the module, and pages that fail the test if their scripts raise an error or ask somebody for something."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.opened import Opened, started, why_not
from tests.browser.served_page import ServedPage, Window
from tests.helpers.fleet_rings import written
from tests.helpers.kept_run import kept
from tests.service.served import ServedProcess


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if why_not():
        pytest.skip(why_not())
    with started() as running:
        yield running


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Opened]]:
    pages: list[Opened] = []

    def open_page(file: Path, **how: Any) -> Opened:
        pages.append(Opened(browser, file, **how))
        return pages[-1]

    yield open_page
    errors = [error for page in pages for error in page.errors]
    for page in pages:
        page.context.close()
    assert errors == []


def write_runs(folder: Path) -> Path:
    """Two watched runs: `slow` has a slow rank, `kept` incidents and checkpoints."""
    for name in ("slow", "kept"):
        (folder / name).mkdir(parents=True)
    kept(folder / "kept")
    written(folder / "slow", loading=6)
    return folder


@pytest.fixture(scope="session")
def service(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    """One service with its page for all tests of the page."""
    pytest.importorskip("nicegui")
    options = ["--per-minute", "1000000", "--runs", str(write_runs(tmp_path_factory.mktemp("watched") / "runs0"))]
    with ServedProcess(tmp_path_factory.mktemp("page"), options) as served:
        yield served.ready()


@pytest.fixture(scope="session")
def guarded(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    """A service with tokens; its own may ask."""
    pytest.importorskip("nicegui")
    folder = tmp_path_factory.mktemp("guarded")
    file = str(folder / "tokens")
    new = [sys.executable, "-m", "windtunnel", "serve", "--new-token", "ann:write", "--token-file", file]
    token = subprocess.run(new, capture_output=True, text=True, check=True).stdout.strip()
    with ServedProcess(folder / "data", ["--token-file", file, "--per-minute", "1000000"], token=token, workers=1) as served:
        yield served.ready()


PAGES = pytest.StashKey[list[ServedPage]]()
"""Windows that a test has open."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows what its pages showed, and what the service wrote last."""
    report = yield
    if report.failed and call.when == "call" and item.stash.get(PAGES, []):
        for one in item.stash[PAGES]:
            report.sections.append((f"page {one.page.url}", one.page.locator("body").aria_snapshot()))
        report.sections.append(("log of the service", item.funcargs["service"].log.read_text()[-4000:]))  # type: ignore[attr-defined]
    return report


@pytest.fixture
def window(request: pytest.FixtureRequest, browser: Any, service: ServedProcess) -> Iterator[Window]:
    opened: list[ServedPage] = request.node.stash.setdefault(PAGES, [])

    def open_window(**how: Any) -> ServedPage:
        opened.append(ServedPage(browser, service.url, **how))
        return opened[-1]

    yield open_window
    for one in opened:
        one.close()
