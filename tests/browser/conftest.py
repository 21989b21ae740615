"""A browser for the module, and pages that fail the test if their scripts raise an error or ask somebody for something."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.opened import Opened, started, why_not


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
