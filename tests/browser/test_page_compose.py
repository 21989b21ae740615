"""Compose and answer: a change moves the figures, errors stand beside their field, links reproduce, tables come down."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.browser.served_page import ServedPage, Window
from tests.service.served import ServedProcess

pytestmark = pytest.mark.browser
CONFIG = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
          "intermediate_size": 5504, "vocab_size": 32000, "a_field_of_nobody": 3}  # fmt: skip

FLAGS = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --bf16 "
    "--micro-batch-size 1 --global-batch-size 64 --tensor-model-parallel-size 2"
)


def step_of(page: Any) -> str:
    """The step time that the page shows, when it shows one."""
    return str(page.locator("wt-sheet .card b").first.inner_text())


def await_step(page: Any, other_than: str) -> str:
    """The step time once it differs."""
    page.wait_for_function(
        "old => { const shown = document.querySelector('wt-sheet')?.shadowRoot.querySelector('.card b'); "
        "return shown && shown.innerText !== old; }",
        arg=other_than,
    )
    return step_of(page)


def test_a_change_moves_the_figures_and_the_way_back_undoes_it(window: Window) -> None:
    page = window().open("compose?job=llama3-8b-8xh100")
    before = step_of(page)
    page.get_by_label("seq (tokens)").fill("4096")
    after = await_step(page, before)
    assert "set=plan.seq=4096" in page.url
    page.get_by_role("button", name="Undo").click()
    page.wait_for_url(re.compile(r"llama3-8b-8xh100$"))
    assert await_step(page, after) == before


def test_an_error_stands_beside_its_field(window: Window) -> None:
    page = window().open("compose?job=llama3-8b-8xh100")
    step_of(page)
    page.get_by_label("tp (GPUs)").fill("3")
    page.locator(".q-field__messages", has_text="a divisor of model.heads = 32").wait_for()
    page.locator("[role=alert]", has_text="Divisors: 1, 2, 4, 8, 16, 32.").first.wait_for()


def test_a_pasted_configuration_says_what_was_read(window: Window) -> None:
    shown = window()
    page = shown.open("compose")
    step_of(page)
    page.get_by_text("Or paste what you have").click()
    page.get_by_label("Text").fill(json.dumps(CONFIG))
    page.get_by_role("button", name="Read it").click()
    page.get_by_text("Recognised as huggingface: job.").wait_for()
    page.wait_for_function("document.location.search.includes('packed=')")
    page.get_by_text("a_field_of_nobody").first.wait_for()
    link = page.url
    page.get_by_role("link", name="Open the whole answer").click()
    page.locator("[data-command]", has_text="config.json").wait_for()
    again = window().page
    again.goto(link)
    step_of(again)


def test_what_opens_stands_still(window: Window) -> None:
    """What slides open under a pointer takes a click away: a button that moves between press and release is not pressed."""
    page = window().open("compose")
    step_of(page)
    places = page.locator("#paste").evaluate(
        """async card => {
          card.querySelector('.q-item').click();
          const places = [], ends = performance.now() + 600;
          while (performance.now() < ends) {
            await new Promise(requestAnimationFrame);
            const area = card.querySelector('textarea'), press = [...card.querySelectorAll('button')].find(one => one.offsetParent);
            if (area && area.offsetParent) { area.focus(); places.push(press.getBoundingClientRect().y); }
          }
          return places;
        }"""
    )
    assert len(places) > 1 and set(places) == {places[-1]}


def test_pasted_flags_become_the_job(window: Window) -> None:
    page = window().open("compose")
    before = step_of(page)
    page.get_by_text("Or paste what you have").click()
    page.get_by_label("Text").fill(FLAGS)
    page.get_by_role("button", name="Read it").click()
    page.get_by_text("Recognised as megatron", exact=False).wait_for()
    await_step(page, before)
    assert page.get_by_label("tp (GPUs)").input_value() == "2"


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve Qwen/Qwen3-8B -tp 2 --max-model-len 8192",
        "docker run vllm/vllm-openai --model Qwen/Qwen3-8B --tensor-parallel-size 2",
        "services:\n  s:\n    image: vllm/vllm-openai:latest\n    command: --model Qwen/Qwen3-8B --tensor-parallel-size 2\n",
    ],
)
def test_a_pasted_server_is_answered(window: Window, text: str) -> None:
    """A line or a manifest that starts a server: what was read, and how it answers on the machine."""
    page = window().open("compose")
    step_of(page)
    page.get_by_text("Or paste what you have").click()
    page.get_by_label("Text").fill(text)
    page.get_by_role("button", name="Read it").click()
    page.get_by_text("Recognised as server: server.").wait_for()
    page.locator("wt-sheet", has_text="output tokens/s a GPU").wait_for()


def test_what_is_no_configuration_says_so(window: Window) -> None:
    page = window().open("compose")
    step_of(page)
    page.get_by_text("Or paste what you have").click()
    page.get_by_label("Text").fill("<script>alert(1)</script> nothing that anybody knows")
    page.get_by_role("button", name="Read it").click()
    page.locator("#paste [role=alert]").wait_for()


def test_a_fault_of_the_service_is_told(browser: Any, tmp_path: Path) -> None:
    """A database that fails is no error of a question: whoever pressed the button would see nothing happen."""
    with ServedProcess(tmp_path / "broken", ["--per-minute", "1000000"], workers=1) as served:
        shown = ServedPage(browser, served.ready().url)
        page = shown.open("compose")
        step_of(page)
        page.get_by_text("Or paste what you have").click()
        page.get_by_label("Text").fill(FLAGS)
        with contextlib.closing(sqlite3.connect(tmp_path / "broken" / "service.db", timeout=60)) as database, database:
            database.execute("drop table answers")
        page.get_by_role("button", name="Read it").click()
        page.locator("[role=alert]", has_text="The service met a fault (OperationalError)").first.wait_for()
        shown.context.close()


def test_the_answer_keeps_tables_links_and_others_beside_it(window: Window, service: ServedProcess) -> None:
    page = window().open("answer?job=llama3-8b-8xh100")
    first = step_of(page)
    assert "windtunnel predict" in page.locator("[data-command]").inner_text()
    page.get_by_text(re.compile(r"^Kernels \(")).click()
    with page.expect_download() as down:
        page.locator("[data-download='kernels.csv']").click()
    rows = list(csv.DictReader(down.value.path().read_text().splitlines()))
    answer = json.loads(service.ask("predict", job="llama3-8b-8xh100")[2])
    assert [float(row["seconds_total"]) for row in rows] == [one["seconds_total"] for one in answer["kernels"]]
    page.get_by_role("button", name="Keep this answer here").click()
    page.wait_for_url(re.compile("beside="))
    page.goto(page.url.replace("job=llama3-8b-8xh100", "job=llama3-8b-8xh100&set=plan.seq=4096"))
    await_step(page, first)
    page.locator("#beside td", has_text="%").first.wait_for()
    link = page.get_by_role("link", name="Link to this answer").get_attribute("href")
    page.goto(f"{service.url}{link}")
    assert step_of(page) != first


def test_the_static_page_is_shown_in_a_frame(window: Window) -> None:
    page = window().open("answer?job=llama3-8b-8xh100")
    page.get_by_role("button", name="Show it").click()
    page.frame_locator("iframe").locator("h1").wait_for()


def test_what_was_seen_is_listed_and_bounded(window: Window) -> None:
    page = window().open("compose?job=llama3-8b-8xh100")
    before = step_of(page)
    page.get_by_label("seq (tokens)").fill("2048")
    after = await_step(page, before)
    page.get_by_role("link", name="Open the whole answer").click()
    past = page.locator("#history .wt-past")
    past.nth(1).wait_for()
    assert past.count() == 2
    assert [past.nth(at).locator(".wt-strong").inner_text() for at in range(2)] == [one.split(" ±")[0] for one in (after, before)]
