"""Pages of served models and of steps of reinforcement learning in a browser: they load, tell what is under the mouse, and fit."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.opened import Opened
from windtunnel.cli import main

pytestmark = pytest.mark.browser
Open = Callable[..., Opened]

SERVE = ("llama3.1-8b", "--on", "h100-ib", "--isl", "512~1<2000", "--osl", "64")
RL = """workload = "rl"
name = "small <b>step</b>"
model = "qwen2.5-0.5b"
[cluster]
base = "h100-ib"
gpus = 8
[rl]
prompts = 32
samples = 4
response = "300~1<900"
"""


def written(folders: pytest.TempPathFactory, *command: str) -> Path:
    file = folders.mktemp("page") / "page.html"
    assert main([*command, "--html", str(file)]) == 0
    return file


@pytest.fixture(scope="module")
def served(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(
        tmp_path_factory, "serve-predict", *SERVE, "--tp", "1", "--rate", "8", "--requests", "80", "--ttft", "0.5", "--quiet"
    )


@pytest.fixture(scope="module")
def front(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    limits = ("--tpot", "0.02", "--users", "1,8,32", "--gpus", "2", "--jobs", "1", "--prefill", "--quiet")
    return written(tmp_path_factory, "serve-search", *SERVE, *limits)


@pytest.fixture(scope="module")
def step(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = tmp_path_factory.mktemp("job") / "job.toml"
    job.write_text(RL, encoding="utf-8")
    return written(tmp_path_factory, "rl-predict", str(job), "--quiet")


@pytest.fixture(scope="module")
def splits(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = tmp_path_factory.mktemp("job") / "job.toml"
    job.write_text(RL, encoding="utf-8")
    mode = ("--set", "rl.mode=async", "--set", "rl.rollout.gpus=4", "--set", "cluster.gpus=16", "--splits", "--quiet")
    return written(tmp_path_factory, "rl-predict", str(job), *mode)


@pytest.mark.parametrize("name", ["served", "front", "step", "splits"])
@pytest.mark.parametrize("dark", [False, True])
def test_pages_load_without_an_error_and_fit_any_window(
    opened: Open, name: str, dark: bool, request: pytest.FixtureRequest
) -> None:
    shown = opened(request.getfixturevalue(name), dark=dark)
    assert shown.page.locator("h1").is_visible()
    for width in (1200, 420):
        shown.page.set_viewport_size({"width": width, "height": 800})
        assert shown.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width


def test_drawings_over_time_tell_the_moment(opened: Open, served: Path) -> None:
    """In the middle of the time; all drawings have the line, and the numbers are those that were drawn."""
    shown = opened(served)
    drawing = shown.page.locator("svg.over-time").first
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    shown.page.mouse.move(box["x"] + box["width"] * (76 + 0.5 * (1000 - 92)) / 1000, box["y"] + 40)
    told = shown.page.locator("p.told").inner_text()
    running = json.loads(drawing.get_attribute("data-told") or "")["curves"][0]["values"]
    middle = (running[len(running) // 2 - 1], running[len(running) // 2])
    near = {f"requests that run {value:,.0f} " if value >= 10 else f"requests that run {value:.2g} " for value in middle}
    assert any(words.rstrip() in told for words in near), told
    assert shown.page.locator("svg.over-time .cross[visibility=visible]").count() == 3


def test_a_click_on_a_point_gives_its_command(opened: Open, front: Path) -> None:
    """The best is chosen first; the mouse tells another, a click keeps it; each command runs."""
    shown = opened(front)
    box = shown.page.locator(".chosen")
    told = json.loads(box.get_attribute("data-told") or "")
    points, best = told["points"], told["best"]
    chosen, command = box.locator(".words"), box.locator(".command")
    assert chosen.inner_text() == points[best]["words"]
    other = 0 if best else 1
    dot = shown.page.locator(f'[data-point="{other}"]')
    dot.hover(force=True)
    assert chosen.inner_text() == points[other]["words"]
    shown.page.mouse.move(5, 5)
    assert chosen.inner_text() == points[best]["words"]
    dot.click(force=True)
    shown.page.mouse.move(5, 5)
    assert command.inner_text() == points[other]["command"]
    dot.focus()
    shown.page.keyboard.press("Enter")
    for point in points[:3]:
        words = shlex.split(point["command"])
        assert words[:2] == ["windtunnel", "serve-predict"]
        assert main([*words[1:], "--quiet"]) == 0


def test_text_of_a_job_is_no_markup(opened: Open, step: Path) -> None:
    shown = opened(step)
    assert "small <b>step</b>" in shown.page.locator("h1").inner_text()
    assert shown.page.locator("h1 b").count() == 0
