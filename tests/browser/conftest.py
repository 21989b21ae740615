"""A browser for the module, and pages that fail the test if their scripts raise an error or ask somebody for something."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
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


@pytest.fixture
def window(browser: Any, service: ServedProcess) -> Iterator[Window]:
    opened: list[ServedPage] = []

    def open_window(**how: Any) -> ServedPage:
        opened.append(ServedPage(browser, service.url, **how))
        return opened[-1]

    yield open_window
    for one in opened:
        one.close()
