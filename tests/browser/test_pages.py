"""The page of a prediction in a browser: tables sort and filter, the pipeline zooms, moves and tells, the theme changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.opened import Opened
from windtunnel.cli import main

pytestmark = pytest.mark.browser
LEFT = 62
"""Pixels of the pipeline's canvas left of the blocks."""
Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def deep(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of 8 stages with 3 virtual stages each, few micro batches: wide blocks."""
    return written(tmp_path_factory, "predict", "gpt3-175b-64", "--set", "plan.global_batch=8", "--quiet")


@pytest.fixture(scope="module")
def flat(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of one stage."""
    return written(tmp_path_factory, "predict", "llama3-8b-8xh100", "--quiet")


@pytest.fixture(scope="module")
def limits(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of tables, without a picture."""
    return written(tmp_path_factory, "sensitivity", "llama3-8b-8xh100")


@pytest.fixture(scope="module")
def links(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collective packet by packet, over links whose load changes."""
    call = ("--op", "all_reduce", "-n", "16", "-b", "4M", "--network", "packet", "--set", "fabric=roce")
    return written(tmp_path_factory, "collective", "-c", "h100-ib", *call)


def written(folders: pytest.TempPathFactory, *command: str) -> Path:
    file = folders.mktemp("page") / "page.html"
    assert main([*command, "--html", str(file)]) == 0
    return file


class Pipeline:
    """The picture of the pipeline: where its blocks are while it shows from `start` to `end` microseconds."""

    def __init__(self, shown: Opened) -> None:
        self.shown, self.data = shown, json.loads(str(shown.page.locator("#pipeline-data").text_content()))
        self.start, self.end = 0.0, float(self.data["end"])
        self.tall = max(26.0, min(54.0, 460 / len(self.data["stages"])))

    def x(self, moment: float) -> float:
        return LEFT + (moment - self.start) / (self.end - self.start) * (self.shown.width("pipeline") - LEFT)

    def middle(self, span: list[Any]) -> tuple[float, float]:
        return self.x((span[1] + span[2]) / 2), (span[0] + 0.3) * self.tall

    def pass_of(self, stage: int) -> list[Any]:
        """A pass of a stage: a block that is no transfer and has a micro batch."""
        return next(span for span in self.data["spans"] if span[0] == stage and span[4] >= 0 and not span[5])

    def told(self, x: float, y: float) -> str:
        """What the page tells when the mouse is at a point of the picture."""
        self.shown.page.mouse.move(*self.shown.at("pipeline", x, y))
        tip = self.shown.page.locator("#tip")
        return str(tip.inner_text()) if tip.is_visible() else ""


@pytest.mark.parametrize("name", ["deep", "flat", "limits", "links"])
@pytest.mark.parametrize("dark", [False, True])
def test_pages_load_without_an_error_and_fit_the_window(
    opened: Open, name: str, dark: bool, request: pytest.FixtureRequest
) -> None:
    shown = opened(request.getfixturevalue(name), dark=dark)
    assert shown.page.locator("h1").is_visible()
    assert shown.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_blocks_have_the_colour_of_their_kind(opened: Open, deep: Path, scale: float) -> None:
    drawn = Pipeline(opened(deep, scale=scale))
    tried = set()
    for span in drawn.data["spans"]:
        kind = drawn.data["kinds"][span[3]]
        wide = drawn.x(span[2]) - drawn.x(span[1])
        if kind["name"] in tried or span[5] or span[6] > 0 or wide < 4:  # later chunks are paler
            continue
        tried.add(kind["name"])
        colour = kind["colour"].lstrip("#")
        x, y = drawn.x(span[1]) + 1.5, (span[0] + 0.15) * drawn.tall
        assert drawn.shown.colour("pipeline", x, y)[:3] == tuple(int(colour[at : at + 2], 16) for at in (0, 2, 4)), span
    assert {"forward", "backward"} <= tried


def test_a_block_tells_its_stage_and_micro_batch(opened: Open, deep: Path) -> None:
    drawn = Pipeline(opened(deep))
    stage = len(drawn.data["stages"]) - 1
    span = drawn.pass_of(stage)
    told = drawn.told(*drawn.middle(span))
    assert drawn.data["names"][span[7]] in told and f"stage {drawn.data['stages'][stage]}, micro batch {span[4]}" in told
    assert drawn.told(LEFT / 2, 10) == ""


def test_zoom_goes_to_the_mouse_and_back(opened: Open, deep: Path) -> None:
    drawn = Pipeline(opened(deep))
    page, whole = drawn.shown.page, drawn.shown.picture("pipeline")
    reset = page.locator("#reset")
    assert not reset.is_visible()
    span = drawn.pass_of(0)
    x, y = drawn.middle(span)
    told = drawn.told(x, y)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -500)  # e^-1 of the time
    page.keyboard.up("Control")
    page.wait_for_function("!document.getElementById('reset').hidden")
    assert drawn.shown.picture("pipeline") != whole
    assert drawn.told(x, y) == told  # what is under the mouse stays there
    reset.click()
    assert not reset.is_visible() and drawn.shown.picture("pipeline") == whole


def test_a_plain_wheel_scrolls_the_page(opened: Open, deep: Path) -> None:
    drawn = Pipeline(opened(deep))
    page, whole = drawn.shown.page, drawn.shown.picture("pipeline")
    page.mouse.move(*drawn.shown.at("pipeline", 300, 20))
    before = page.evaluate("window.scrollY")
    page.mouse.wheel(0, 200)
    page.wait_for_function(f"window.scrollY > {before}")
    assert drawn.shown.picture("pipeline") == whole


def test_dragging_moves_the_time_that_is_shown(opened: Open, deep: Path) -> None:
    drawn = Pipeline(opened(deep))
    page = drawn.shown.page
    page.mouse.dblclick(*drawn.shown.at("pipeline", 500, 20))
    assert page.locator("#reset").is_visible()
    size = drawn.end / 2
    centre = (500 - LEFT) / (drawn.shown.width("pipeline") - LEFT) * drawn.end
    drawn.start = max(0.0, centre - size / 2)
    drawn.end = drawn.start + size
    span = next(one for one in drawn.data["spans"] if one[0] == 0 and not one[5] and drawn.start + 0.4 * size < one[1])
    x, y = drawn.middle(span)
    told = drawn.told(x, y)
    assert drawn.data["names"][span[7]] in told
    page.mouse.down()
    page.mouse.move(*drawn.shown.at("pipeline", x - 50, y), steps=4)
    page.mouse.up()
    assert drawn.told(x - 50, y) == told  # the block went with the mouse


def test_keys_zoom_and_move(opened: Open, deep: Path) -> None:
    drawn = Pipeline(opened(deep))
    page, pictures = drawn.shown.page, [drawn.shown.picture("pipeline")]
    page.locator("#pipeline").focus()
    for key in ("+", "ArrowRight", "ArrowLeft", "-"):
        page.keyboard.press(key)
        pictures.append(drawn.shown.picture("pipeline"))
    whole, zoomed, right, left, out = pictures
    assert len({whole, zoomed, right}) == 3 and left == zoomed and out == whole
    assert not page.locator("#reset").is_visible()


def test_the_picture_follows_the_width_of_the_window(opened: Open, deep: Path) -> None:
    drawn = Pipeline(opened(deep))
    page, span = drawn.shown.page, drawn.pass_of(1)
    told = drawn.told(*drawn.middle(span))
    page.set_viewport_size({"width": 800, "height": 900})
    page.wait_for_function("(c => c.width === c.clientWidth)(document.getElementById('pipeline'))")
    assert drawn.shown.width("pipeline") < 800
    assert drawn.told(*drawn.middle(span)) == told


def test_a_table_sorts_by_the_column_that_is_clicked(opened: Open, deep: Path) -> None:
    page = opened(deep).page
    head = page.locator("#kernels th[data-sort=number]").last
    column = head.evaluate("head => head.cellIndex")
    values = f"[...document.getElementById('kernels').tBodies[0].rows].map(row => Number(row.cells[{column}].dataset.value))"
    head.click()
    down = page.evaluate(values)
    assert head.get_attribute("aria-sort") == "descending" and down == sorted(down, reverse=True) and len(set(down)) > 1
    head.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending" and page.evaluate(values) == sorted(down)
    name = page.locator("#kernels th[data-sort=text]").first
    name.click()
    texts = page.evaluate(
        "[...document.getElementById('kernels').tBodies[0].rows].map(row => row.cells[0].textContent.toLowerCase())"
    )
    assert texts == sorted(texts) and page.locator("#kernels th[aria-sort]").count() == 1


def test_a_filter_keeps_the_rows_with_all_of_its_words(opened: Open, deep: Path) -> None:
    page = opened(deep).page
    rows = page.locator("#kernels tbody tr")
    every = rows.count()
    first = rows.first.inner_text().split("\t")[:2]
    page.locator("input[data-filters=kernels]").fill(" ".join(first).upper())
    kept = page.locator("#kernels tbody tr:visible")
    assert 0 < kept.count() < every
    assert all(word.lower() in text.lower() for text in kept.all_inner_texts() for word in " ".join(first).split())
    assert page.locator("#kernels-count").inner_text() == f"{kept.count()} of {every}"
    page.locator("input[data-filters=kernels]").fill("")
    assert kept.count() == every


@pytest.mark.parametrize("name", ["deep", "limits"])
@pytest.mark.parametrize("dark", [False, True])
def test_the_button_changes_the_theme_and_back(opened: Open, name: str, dark: bool, request: pytest.FixtureRequest) -> None:
    page = opened(request.getfixturevalue(name), dark=dark).page
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(colour)
    page.locator("#theme").click()
    after = page.evaluate(colour)
    page.locator("#theme").click()
    assert after != before and page.evaluate(colour) == before


def test_the_picture_is_drawn_in_the_colours_of_the_theme(opened: Open, deep: Path) -> None:
    drawn = Pipeline(opened(deep))
    light = drawn.shown.picture("pipeline")
    drawn.shown.page.locator("#theme").click()
    assert drawn.shown.picture("pipeline") != light


def test_tables_of_a_page_without_a_picture_sort_too(opened: Open, limits: Path) -> None:
    page = opened(limits).page
    head = page.locator("table[data-sortable] th[data-sort]").first
    head.click()
    assert head.get_attribute("aria-sort") in ("ascending", "descending")


def test_the_slider_shows_the_fabric_at_a_moment(opened: Open, links: Path) -> None:
    shown = opened(links)
    page = shown.page
    load = json.loads(str(page.locator("#moment-data").text_content()))
    colours = "[...document.querySelectorAll('#fabric line')].map(line => [line.dataset.row, line.getAttribute('stroke')])"
    whole, moment, told = page.evaluate(colours), page.locator("#moment"), page.locator("#moment-told")
    assert told.inner_text() == "over the whole run" and len(whole) == len(load["edge_bins"])
    steps = [max(row[at] for row in load["edge_bins"]) for at in range(len(load["times"]) - 1)]
    busy = steps.index(min(steps))  # the bin of least load
    moment.fill(str(busy + 1))
    assert told.inner_text() == f"{load['times'][busy]} to {load['times'][busy + 1]}"
    now = page.evaluate(colours)
    assert now == [[row, load["colours"][int(load["edge_bins"][int(row)][busy])]] for row, _ in whole] and now != whole
    title = str(page.locator("#fabric line title").first.text_content())
    assert "fullest link" in title and load["times"][busy + 1] in title
    for heat in page.locator("svg.heat").all():
        frame = heat.locator("rect.now")
        assert frame.get_attribute("visibility") == "visible"
        left, each = (float(str(heat.get_attribute(f"data-{name}"))) for name in ("left", "each"))
        assert float(str(frame.get_attribute("x"))) == pytest.approx(left + busy * each)
    moment.fill("0")
    assert page.evaluate(colours) == whole and page.locator("rect.now").first.get_attribute("visibility") == "hidden"


@pytest.mark.parametrize("width", [1000, 1400])
def test_labels_of_the_load_over_time_do_not_overlap(opened: Open, links: Path, width: int) -> None:
    page = opened(links).page
    page.set_viewport_size({"width": width, "height": 900})
    code = """[...document.querySelectorAll('svg.heat')].flatMap(svg => {
        const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]), hits = [];
        for (let i = 0; i < boxes.length; i++) for (let k = i + 1; k < boxes.length; k++) {
          const [a, b] = [boxes[i][1], boxes[k][1]];
          const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
          if (wide > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2) hits.push([boxes[i][0], boxes[k][0]]);
        }
        return hits; })"""
    assert page.locator("svg.heat").count() == 2 and page.evaluate(code) == []
