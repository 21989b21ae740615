"""Takes pictures of every section of the page, and of the page of every verb, light and dark, wide and narrow: `make pictures`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.browser.conftest import write_runs
from tests.browser.opened import Opened, started, why_not
from tests.browser.served_page import ServedPage
from tests.browser.verb_pages import write_pages
from tests.service.served import ServedProcess

VIEWS: dict[str, tuple[str, str]] = {
    "compose": ("compose?job=llama3-8b-8xh100&set=plan.seq=4096", "wt-sheet .card"),
    "answer": ("answer?job=llama3-8b-8xh100&set=plan.seq=4096", "wt-sheet .card"),
    "choose": (
        "choose?job=llama3-8b-8xh100&s.run=1&g.run=1&b.run=1&b.on=h100-ib&b.gpus=64&b.model=llama3.1-8b&b.tokens=100B",
        "#sheet-both table",
    ),
    "network": ("network?c.bytes=1M:64M:4&c.gpus=16&c.run=1&l.bytes=1M&l.run=1&f.run=1", "#flows-answer svg"),
    "serving": ("serving?v.users=1,8,32&v.isl=256&v.osl=32&v.most=2&v.front=1&v.server=1", "#server-answer svg"),
    "trust": ("trust?t_only=A100-Megatron-Selene", "#published"),
    "run": ("run?r_run=runs0/slow", "#heat .wt-chart"),
    "run-kept": ("run?r_run=runs0/kept", "#incidents"),
}
"""Name -> the address below /ui, and what is there when the section has its answer."""
WINDOWS: dict[str, dict[str, Any]] = {
    "light": {}, "dark": {"dark": True}, "narrow": {"wide": 390}, "chinese": {"locale": "zh-CN", "dark": True},
}  # fmt: skip
SETTLED = 1500.0
"""Milliseconds for what moves to come to rest."""


def take_pictures(browser: Any, url: str, folder: Path, wanted: Sequence[str]) -> None:
    """Writes NAME-WINDOW.png of the wanted views, or of all."""
    for name, (path, sign) in VIEWS.items():
        if wanted and name not in wanted:
            continue
        for look, how in WINDOWS.items():
            shown = ServedPage(browser, url, **how)
            page = shown.open(path)
            if name == "trust":
                page.wait_for_timeout(SETTLED)
                score = page.locator("#published .wt-go")
                if score.is_visible():
                    score.click()
                page.locator("#scored table.wt-matrix").wait_for()
                page.locator("#scored .wt-table tbody tr").first.click()
            page.locator(sign).first.wait_for()
            page.wait_for_timeout(SETTLED)
            page.wait_for_function("!document.querySelector('.wt-progress:not(.hidden)')")
            tall = page.evaluate("document.documentElement.scrollHeight")
            page.set_viewport_size({"width": how.get("wide", 1280), "height": min(int(tall), 6000)})
            page.wait_for_timeout(300)
            page.screenshot(path=str(folder / f"{name}-{look}.png"))
            shown.close()
            print(folder / f"{name}-{look}.png", flush=True)


def take_pictures_of_files(browser: Any, folder: Path, scratch: Path, wanted: Sequence[str]) -> None:
    """Writes verb-NAME-WINDOW.png of the pages that verbs write, or of those that are wanted."""
    if wanted and not any(name.startswith("verb-") for name in wanted):
        return
    for name, file in write_pages(scratch).items():
        if wanted and f"verb-{name}" not in wanted:
            continue
        for look, how in WINDOWS.items():
            if "locale" in how:
                continue  # they speak English alone
            shown = Opened(browser, file, dark=how.get("dark", False))
            shown.page.set_viewport_size({"width": how.get("wide", 1280), "height": 900})
            shown.page.screenshot(path=str(folder / f"verb-{name}-{look}.png"), full_page=True)
            shown.context.close()
            print(folder / f"verb-{name}-{look}.png", flush=True)


def main() -> None:
    """Takes them into out/pictures, or into the folder that is named first; further words are names of views."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out/pictures")
    if why_not():
        sys.exit(why_not())
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        runs = write_runs(Path(scratch) / "runs0")
        options = ["--per-minute", "1000000", "--runs", str(runs)]
        with ServedProcess(Path(scratch) / "page", options) as served, started() as browser:
            take_pictures(browser, served.ready().url, folder, sys.argv[2:])
            take_pictures_of_files(browser, folder, Path(scratch), sys.argv[2:])


if __name__ == "__main__":
    main()
