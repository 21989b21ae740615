"""The frame of the page: every section opens, theme and language stay, nothing leaves loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser.served_page import ServedPage
from tests.service.served import ServedProcess

pytest.importorskip("nicegui")
pytestmark = pytest.mark.browser
Window = Callable[..., ServedPage]


@pytest.fixture(scope="module")
def service(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    with ServedProcess(tmp_path_factory.mktemp("page"), ["--per-minute", "1000000"]) as served:
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


def test_every_section_opens(window: Window) -> None:
    shown = window()
    page = shown.open("compose")
    links = page.locator("nav a").all_inner_texts()
    assert links == ["Compose", "Answer", "Choose", "Network", "Serving and RL", "Trust", "Runs"]
    for title in links:
        page.locator("nav a", has_text=title).click()
        page.locator("h1", has_text=title).wait_for()


def test_the_language_is_kept(window: Window) -> None:
    page = window().open("compose")
    page.get_by_role("button", name="Language").click()
    page.get_by_text("中文").click()
    page.locator("h1", has_text="编写").wait_for()
    page.locator("nav a", has_text="可信度").click()
    page.locator("h1", has_text="可信度").wait_for()
