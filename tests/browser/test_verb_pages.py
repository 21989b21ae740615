"""Pages of plan, goodput, compare, collective, flows, whatif, design and runs in a browser: they load, fit, tell, and give CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.opened import Opened
from tests.browser.served_page import grave_findings
from tests.browser.verb_pages import COMMANDS, NAME, write_pages

pytestmark = pytest.mark.browser
Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def pages(browser: object, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_pages(tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("dark", [False, True])
def test_a_page_loads_fits_any_window_and_has_nothing_grave(opened: Open, pages: dict[str, Path], name: str, dark: bool) -> None:
    """Without an error; axe looks at it in a narrow window."""
    shown = opened(pages[name], dark=dark)
    assert shown.page.locator("h1").is_visible()
    for width in (1200, 360, 390):
        shown.page.set_viewport_size({"width": width, "height": 800})
        assert shown.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
    assert grave_findings(shown.page) == []


@pytest.mark.parametrize("name", [name for name, words in COMMANDS.items() if "NAMED" in words])
def test_a_script_in_the_name_of_a_job_is_text(opened: Open, pages: dict[str, Path], name: str) -> None:
    shown = opened(pages[name])
    shown.page.on("dialog", lambda asked: pytest.fail(asked.message))
    assert NAME in shown.page.locator("body").inner_text() or NAME in pages[name].read_text("utf-8").replace("&lt;", "<").replace(
        "&gt;", ">"
    )
    assert shown.page.locator("script", has_text="alert(1)").count() == 0
    assert shown.page.locator("svg script, td script, h1 script").count() == 0


@pytest.mark.parametrize(("name", "table"), [("plan", "rows"), ("compare", "parts"), ("flows", "slowest"), ("design", "designs")])
def test_a_table_downloads_as_it_is_shown_with_numbers_behind(opened: Open, pages: dict[str, Path], name: str, table: str) -> None:
    shown = opened(pages[name])
    with shown.page.expect_download() as waited:
        shown.page.locator(f'button[aria-label="download the table {table} as CSV"]').click()
    assert waited.value.suggested_filename == f"{table}.csv"
    heads, *rows = csv.reader(io.StringIO(Path(waited.value.path()).read_text("utf-8-sig"), newline=""))
    cells: list[list[str]] = shown.page.evaluate(
        "id => [...document.getElementById(id).tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent.trim()))", table
    )
    assert [row[: len(cells[0])] for row in rows] == cells
    behind = [at for at, head in enumerate(heads) if head.endswith(", number")]
    assert behind and all(float(row[at]) == float(row[at]) for row in rows for at in behind if row[at])


def test_a_formula_in_a_cell_is_text_in_the_csv(opened: Open, pages: dict[str, Path]) -> None:
    shown = opened(pages["flows"])
    shown.page.evaluate("document.querySelector('#slowest tbody td:nth-child(2)').textContent = '=cmd|\\'/C calc\\'!A0'")
    with shown.page.expect_download() as waited:
        shown.page.locator('button[aria-label="download the table slowest as CSV"]').click()
    assert "'=cmd|" in Path(waited.value.path()).read_text("utf-8-sig")


def test_tables_sort_by_keyboard(opened: Open, pages: dict[str, Path]) -> None:
    shown = opened(pages["flows"])
    head = shown.page.locator("#levels th", has_text="fullest")
    head.focus()
    for key, wanted in (("Enter", "descending"), (" ", "ascending")):
        shown.page.keyboard.press(key)
        assert head.get_attribute("aria-sort") == wanted


def test_points_are_reached_by_keyboard_and_tell_what_they_are(opened: Open, pages: dict[str, Path]) -> None:
    shown = opened(pages["plan"])
    point = shown.page.locator('svg.plot [tabindex="0"]').first
    point.focus()
    told = shown.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert "GPU" in told or "×" in told
    assert point.locator("title").text_content() == told


def test_a_run_tells_where_its_steps_change(opened: Open, pages: dict[str, Path]) -> None:
    text = opened(pages["run"]).page.locator("body").inner_text()
    assert "From step 121 on a step takes" in text


def test_the_theme_changes_what_is_drawn(opened: Open, pages: dict[str, Path]) -> None:
    """Text of a drawing keeps its contrast: it has the colour of the theme."""
    shown = opened(pages["memory"])
    colour: Any = "getComputedStyle(document.querySelector('svg.memory .strong')).fill"
    before = shown.page.evaluate(colour)
    shown.page.locator("#theme").click()
    assert shown.page.evaluate(colour) != before
