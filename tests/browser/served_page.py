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


class Contexts:
    """Contexts of a browser that windows use one after another: what the page loads is fetched and compiled once for all of them.
    One that is given back keeps no cookie and nothing that scripts stored, and no two windows have the same one at a time."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._free: dict[tuple[str, bool], list[Any]] = {}

    def take(self, locale: str, touch: bool) -> Any:
        free = self._free.setdefault((locale, touch), [])
        if free:
            return free.pop()
        context = self._browser.new_context(locale=locale, has_touch=touch)
        context.set_default_timeout(PATIENCE)
        return context

    def give_back(self, context: Any, locale: str, touch: bool) -> None:
        context.clear_cookies()
        context.clear_permissions()
        self._free[locale, touch].append(context)


class ServedPage:
    """A window on the page at `url`. `strangers`: requests that left loopback; `errors`: of its scripts."""

    def __init__(self, contexts: Contexts, url: str, *, dark: bool = False, wide: int = 1280, locale: str = "en-US",
                 touch: bool = False) -> None:  # fmt: skip
        self.url, self.errors, self.strangers = url, list[str](), list[str]()
        self._contexts, self._kind = contexts, (locale, touch)
        self.context = contexts.take(*self._kind)
        self.page = self.context.new_page()
        self.page.set_viewport_size({"width": wide, "height": 900})
        self.page.emulate_media(color_scheme="dark" if dark else "light")
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
        if not self.page.is_closed() and self.page.url.startswith(self.url):
            self.page.evaluate("localStorage.clear(), sessionStorage.clear()")
        for page in self.context.pages:
            page.close()
        self._contexts.give_back(self.context, *self._kind)
        assert self.errors == [], self.errors
        assert self.strangers == [], self.strangers


Window = Callable[..., ServedPage]
"""Opens a window on the page of the tests' service, with the options of `ServedPage`."""


def grave_findings(page: Any) -> list[str]:
    """What axe finds that keeps somebody from using the page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found if one["impact"] in GRAVE]
