"""The page of a running service in a browser: what it asked for, and what went wrong in its scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

GRAVE = ("serious", "critical")
"""Findings of axe that keep somebody from using a page."""
PATIENCE = 120_000.0
"""Milliseconds for whatever has to happen at all, however busy the machine is."""


class ServedPage:
    """A window on the page at `url`. `strangers`: requests that left loopback; `errors`: of its scripts."""

    def __init__(self, browser: Any, url: str, *, dark: bool = False, wide: int = 1280, locale: str = "en-US",
                 touch: bool = False) -> None:  # fmt: skip
        self.url, self.errors, self.strangers = url, list[str](), list[str]()
        self.context = browser.new_context(
            viewport={"width": wide, "height": 900}, color_scheme="dark" if dark else "light", locale=locale, has_touch=touch
        )
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda told: self.errors.append(told.text) if told.type == "error" else None)
        self.page.on("request", self._note)

    def _note(self, asked: Any) -> None:
        where = urlsplit(asked.url)
        if where.scheme in ("http", "https", "ws", "wss") and where.hostname != "127.0.0.1":
            self.strangers.append(asked.url)

    def open(self, path: str) -> Any:
        """Opens a path below /ui and waits until the page is connected."""
        self.page.goto(f"{self.url}/ui/{path}")
        self.page.wait_for_function("window.socket && window.socket.connected")
        return self.page

    def close(self) -> None:
        """Closes it, and fails the test for errors and for requests that left loopback."""
        self.context.close()
        assert self.errors == [], self.errors
        assert self.strangers == [], self.strangers


Window = Callable[..., ServedPage]
"""Opens a window on the page of the tests' service, with the options of `ServedPage`."""


def grave_findings(page: Any) -> list[str]:
    """What axe finds that keeps somebody from using the page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found if one["impact"] in GRAVE]
