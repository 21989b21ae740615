"""Pages in a headless Chromium, and why there may be none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first that is installed runs. The shell draws no windows of its own: a third less of the processor for the same pages."""


def why_not() -> str:
    """Why no browser can be started, or nothing."""
    if find_spec("playwright") is None:
        return "playwright is not installed; type: .venv/bin/pip install playwright (it downloads no browser by itself)"
    return "" if _program() else f"none of {', '.join(NAMES)} is on the path; on Debian type: apt-get install {NAMES[0]}"


def _program() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def started() -> Iterator[Any]:
    """A running browser of the system; nothing is downloaded. Root may not use Chromium's sandbox."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=_program(), args=options)
        yield browser
        browser.close()


class Opened:
    """A page from a file, with the errors that its scripts raised."""

    def __init__(self, browser: Any, file: Path, *, mark: str = "", dark: bool = False, scale: float = 1.0) -> None:
        self.errors: list[str] = []
        self.context = browser.new_context(
            viewport={"width": 1200, "height": 900}, color_scheme="dark" if dark else "light", device_scale_factor=scale
        )
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda told: self.errors.append(told.text) if told.type == "error" else None)
        self.page.on("request", lambda asked: self.errors.append(asked.url) if not asked.url.startswith("file:") else None)
        self.page.goto(file.as_uri() + mark)

    def data(self) -> Any:
        """What the page's scripts draw."""
        return self.page.evaluate("JSON.parse(document.getElementById('data').textContent)")

    def colour(self, canvas: str, x: float, y: float) -> tuple[int, ...]:
        """Red, green, blue and opacity of a canvas at a point, in pixels of the page."""
        code = """([id, x, y]) => { const c = document.getElementById(id), s = c.width / c.clientWidth;
                  return [...c.getContext('2d').getImageData(Math.round(x * s), Math.round(y * s), 1, 1).data]; }"""
        return tuple(self.page.evaluate(code, [canvas, x, y]))

    def picture(self, canvas: str) -> str:
        """All that a canvas shows, to compare."""
        return str(self.page.evaluate("id => document.getElementById(id).toDataURL()", canvas))

    def at(self, canvas: str, x: float, y: float) -> tuple[float, float]:
        """A point of a canvas as a point of the window; the canvas is scrolled into view."""
        self.page.locator(f"#{canvas}").scroll_into_view_if_needed()
        box = self.page.locator(f"#{canvas}").bounding_box()
        return box["x"] + x, box["y"] + y

    def width(self, element: str) -> float:
        return float(self.page.evaluate("id => document.getElementById(id).clientWidth", element))
