"""The page of a watched run in a browser: the heat map tells and picks, the mesh shows neighbours, reloads keep the rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.opened import Opened
from tests.helpers.fleet_rings import written
from windtunnel.cli import main

pytestmark = pytest.mark.browser
LEFT, TALL = 130, 16
"""Pixels of the heat map left of its cells, and the height of a row of few ranks."""
Open = Callable[..., Opened]


def page_of(folder: Path, **job: Any) -> Path:
    """The page of a job of two machines whose rank 5 is slow."""
    written(folder / "runs" / "job", **job)
    assert main(["fleet", "show", str(folder / "runs"), "--html", str(folder / "run.html")]) == 0
    return folder / "run.html"


@pytest.fixture(scope="module")
def slow(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(tmp_path_factory.mktemp("slow"), loading=6)


def cell(shown: Opened, row: int, column: int) -> tuple[float, float]:
    columns = len(shown.data()["steps"])
    return LEFT + (column + 0.5) * (shown.width("heat") - LEFT) / columns, (row + 0.5) * TALL


def picked(shown: Opened) -> tuple[str, str, str]:
    """The rank that the page has picked, by its field, by its text and by its address."""
    about = shown.page.locator("#about p").first.inner_text()
    return shown.page.locator("#picked").input_value(), about.split()[1], shown.page.evaluate("location.hash")


@pytest.mark.parametrize("dark", [False, True])
def test_the_slow_rank_is_red_and_picked_at_first(opened: Open, slow: Path, dark: bool) -> None:
    shown = opened(slow, dark=dark)
    red, green, blue, _ = shown.colour("heat", *cell(shown, 5, 3))
    assert red > 170 and green < 110 and blue < 110  # 30 % longer: full colour
    red, green, blue, _ = shown.colour("heat", *cell(shown, 2, 3))
    assert max(red, green, blue) - min(red, green, blue) < 60  # as long as its equals: pale
    assert picked(shown) == ("5", "5", "")


def test_a_cell_tells_rank_machine_step_and_excess(opened: Open, slow: Path) -> None:
    shown = opened(slow)
    shown.page.mouse.move(*shown.at("heat", *cell(shown, 5, 3)))
    told = shown.page.locator("#heat-tip").inner_text()
    step = shown.data()["steps"][3]
    assert told.startswith(f"rank 5 on node1, from step {step}: +") and "usual 10.0" in told and told.endswith(" ms")
    excess = float(told.split("+")[1].split(" %")[0])
    assert excess == pytest.approx(30.0, abs=1.0)  # 13 ms instead of 10
    shown.page.mouse.move(*shown.at("heat", LEFT / 2, TALL))
    assert shown.page.locator("#heat-tip").inner_text().strip() == ""


def test_a_click_on_the_heat_map_picks_a_rank(opened: Open, slow: Path) -> None:
    shown = opened(slow)
    before = shown.picture("mesh")
    shown.page.mouse.click(*shown.at("heat", *cell(shown, 2, 3)))
    assert picked(shown) == ("2", "2", "#2")
    assert shown.picture("mesh") != before


def test_the_rank_of_the_field_and_of_a_neighbour_is_picked(opened: Open, slow: Path) -> None:
    shown = opened(slow)
    shown.page.locator("#picked").fill("6")
    shown.page.locator("#picked").press("Enter")
    assert picked(shown) == ("6", "6", "#6")
    # dp 2 x tp 4: rank 6 is dp 1, tp 2
    listed = [line.split(": ")[1].split() for line in shown.page.locator("#about ul").first.inner_text().splitlines()]
    assert listed == [["2"], ["4", "5", "7"]]
    shown.page.locator("#about button", has_text="2").click()
    assert picked(shown) == ("2", "2", "#2")
    shown.page.locator("#picked").fill("99")
    shown.page.locator("#picked").press("Enter")
    assert picked(shown)[1:] == ("2", "#2")  # there is no such rank


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_a_click_on_the_mesh_picks_the_rank_that_lies_there(opened: Open, slow: Path, scale: float) -> None:
    shown = opened(slow, scale=scale)
    size = 26  # of a cell, in a plane of two lines of four: the upper line is shifted to the right by half of it
    for rank in (0, 3, 4, 7):
        line, column = divmod(rank, 4)
        x, y = 8 + (column + 0.7 + 0.5 * (1 - line)) * size, 24 + (line * 0.9 + 0.4) * size
        shown.page.mouse.click(*shown.at("mesh", x, y))
        assert picked(shown) == (str(rank), str(rank), f"#{rank}")


def test_another_layer_is_drawn_when_it_is_chosen(opened: Open, slow: Path) -> None:
    shown = opened(slow)
    names = [name.strip() for name in shown.page.locator("#layer option").all_inner_texts()]
    assert shown.page.locator("#layer").input_value() == "own work" and set(names) == set(shown.data()["layers"])
    before = shown.picture("heat")
    assert "data" in names
    shown.page.locator("#layer").select_option("data")
    assert shown.picture("heat") != before
    red, green, blue, _ = shown.colour("heat", *cell(shown, 6, 3))
    assert red - blue > 20  # its data takes 1 ms more, a tenth of the usual work
    shown.page.locator("#layer").select_option("own work")
    assert shown.picture("heat") == before


def test_the_address_picks_a_rank_and_a_page_that_reloads_keeps_it(opened: Open, slow: Path, tmp_path: Path) -> None:
    """A page that is followed is written anew while it is open, and reloads itself."""
    text = slow.read_text(encoding="utf-8")
    file = tmp_path / "run.html"

    def write(name: str) -> None:
        told = text.replace("<h1>job</h1>", f"<h1>{name}</h1>")
        file.write_text(told.replace("<title>", '<meta http-equiv="refresh" content="1"><title>', 1), encoding="utf-8")

    write("first")
    shown = opened(file, mark="#3")
    # Asked in one go: between two questions the page may reload itself.
    keeps = """name => document.querySelector('h1')?.textContent === name && document.getElementById('picked')?.value === '3'
        && document.querySelector('#about p')?.innerText.split(/\\s+/)[1] === '3' && location.hash === '#3'"""
    for name in ("first", "second", "third"):
        write(name)
        shown.page.wait_for_function(keeps, arg=name)


def test_the_maps_follow_the_theme_and_the_width(opened: Open, slow: Path) -> None:
    shown = opened(slow)
    light = shown.picture("heat"), shown.picture("mesh")
    shown.page.locator("#theme").click()
    shown.page.wait_for_function("old => document.getElementById('heat').toDataURL() !== old", arg=light[0])
    assert shown.picture("mesh") != light[1]
    shown.page.set_viewport_size({"width": 700, "height": 900})
    shown.page.wait_for_function("(c => c.width === c.clientWidth && c.width < 700)(document.getElementById('heat'))")
    shown.page.mouse.click(*shown.at("heat", *cell(shown, 7, 3)))
    assert picked(shown)[0] == "7"


def test_a_rank_that_hangs_says_for_whom_it_waits(opened: Open, tmp_path: Path) -> None:
    written(tmp_path / "runs" / "job", slow=-1, stuck=3, ends=False)
    alarms = tmp_path / "runs" / "job" / "alarms.jsonl"
    assert main(["fleet", "monitor", str(tmp_path / "runs"), "--once", "--every", "1", "--json", str(alarms)]) == 3
    assert main(["fleet", "show", str(tmp_path / "runs"), "--html", str(tmp_path / "run.html")]) == 0
    shown = opened(tmp_path / "run.html", mark="#0")
    about = shown.page.locator("#about").inner_text()
    assert "It hangs, waiting for:" in about and "rank 3 in all_reduce" in about


def test_many_ranks_are_drawn_by_machine(opened: Open, tmp_path: Path) -> None:
    shown = opened(page_of(tmp_path, ranks=192, steps=6, slow=100))
    assert "One row a machine: its slowest rank." in shown.page.locator("#heat-rows").inner_text()
    shown.page.mouse.move(*shown.at("heat", LEFT + 60, 6))
    assert shown.page.locator("#heat-tip").inner_text().startswith("rank 100 on node1")  # the slowest machine comes first
