"""Long ways through the page, as a planner goes them: from a pasted model to a link that a colleague opens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.served_page import Window

pytestmark = pytest.mark.browser
CONFIG = {
    "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False,
}  # fmt: skip
OWN = (
    "id,family,framework,model,gpu,gpus,gpus_per_node,tp,pp,dp,seq,gbs,mbs,precision,iter_time_s\n"
    "mine-1,mine,megatron,llama3-8b,h100-sxm-80gb,8,8,2,1,4,8192,32,1,bf16,4.1\n"
    "<b>mine-2</b>,mine,megatron,llama3-8b,h100-sxm-80gb,8,8,1,1,8,8192,32,1,bf16,3.9\n"
)


def figure_of(page: Any, place: int = 0) -> str:
    return str(page.locator("wt-sheet .card b").nth(place).inner_text())


def test_a_planner_pastes_a_model_finds_its_plan_drags_failures_and_shares_the_link(window: Window) -> None:
    page = window().open("compose")
    before = figure_of(page)
    page.get_by_text("Or paste what you have").click()
    page.get_by_label("Text").fill(json.dumps(CONFIG))
    page.get_by_label("GPUs", exact=True).fill("512")
    page.get_by_role("button", name="Read it").click()
    page.wait_for_function(
        "old => document.querySelector('wt-sheet')?.shadowRoot.querySelector('.card b').innerText !== old", arg=before
    )
    page.get_by_label("global_batch (sequences)").fill("1024")
    page.wait_for_url("**global_batch*")
    page.locator("nav a", has_text="Choose").click()
    page.locator("h1", has_text="Choose").wait_for()
    page.get_by_role("button", name="Search plans").click()
    page.locator("#plans section p", has_text="No plan of this space ").first.wait_for()  # the last of its rounds
    page.locator("#plans svg").nth(1).wait_for()
    page.get_by_role("button", name="Show the run").click()
    goodput = page.locator("#run-answer .card b").nth(1)
    goodput.wait_for()
    was = goodput.inner_text()
    slider = page.get_by_role("slider", name="Failures, against the source").locator("[tabindex]")
    for _ in range(6):
        slider.press("ArrowRight")
    shown = "document.querySelector('#run-answer wt-sheet')?.shadowRoot.querySelectorAll('.card b')[1]?.innerText"
    page.wait_for_function(f"was => {shown} && {shown} !== was", arg=was)
    page.wait_for_url("**g.rate=*")
    now = goodput.inner_text()
    assert float(now.split()[0]) < float(was.split()[0])
    other = window(dark=True).open(page.url.split("/ui/")[1])
    other.locator("#run-answer .card b").first.wait_for()
    other.locator("#plans svg").nth(1).wait_for()
    other.wait_for_function(f"now => {shown} === now", arg=now)


def test_the_answer_of_any_verb_has_its_own_link_with_tables_and_its_page(window: Window) -> None:
    page = window().open("choose?job=llama3-8b-8xh100&s.run=1")
    page.locator("#plans svg").nth(1).wait_for()
    page.goto(page.locator("#plans a", has_text="Open the answer").evaluate("one => one.href"))
    page.locator("#other dd").first.wait_for()
    page.locator("#tables", has_text="plans (").wait_for()
    page.frame_locator("iframe").locator("h1").wait_for()


def test_own_measurements_are_scored_and_their_names_are_text(window: Window) -> None:
    page = window().open("trust")
    with page.expect_file_chooser() as chosen:
        page.get_by_role("button", name="Choose files").click()
    chosen.value.set_files({"name": "mine.csv", "mimeType": "text/csv", "buffer": OWN.encode()})
    page.locator("#own [aria-live]", has_text="mine.csv").wait_for()
    page.get_by_role("button", name="Score these files").click()
    page.locator("#own-scored svg").first.wait_for()
    assert page.locator("#own-scored .card b").first.inner_text() == "2"
    assert page.locator("#own-scored td", has_text="<b>mine-2</b>").count() == 1


def test_a_file_that_is_no_measurement_says_what_to_upload(window: Window) -> None:
    page = window().open("trust")
    with page.expect_file_chooser() as chosen:
        page.get_by_role("button", name="Choose files").click()
    chosen.value.set_files({"name": "mine.csv", "mimeType": "text/csv", "buffer": b"\x00\xff;;;"})
    page.locator("#own [aria-live]", has_text="mine.csv").wait_for()
    page.get_by_role("button", name="Score these files").click()
    page.locator("#own [role=alert]").wait_for()


def test_the_whole_way_is_open_to_a_keyboard(window: Window) -> None:
    page = window().open("compose?job=llama3-8b-8xh100")
    before = figure_of(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "wt-skip"
    page.keyboard.press("Enter")
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('aria-label')") == "seq (tokens)":
            break
    page.keyboard.press("Control+a")
    page.keyboard.type("2048")
    page.wait_for_function(
        "old => document.querySelector('wt-sheet')?.shadowRoot.querySelector('.card b').innerText !== old", arg=before
    )


def test_a_search_of_a_job_that_fits_nowhere_says_so(window: Window) -> None:
    page = window().open("choose?job=llama3-8b-8xh100&set=model.layers=900&s.run=1")
    told = page.locator("#plans [role=alert], #plans section p").first
    told.wait_for()
    assert "fit" in told.inner_text() or "memory" in told.inner_text()
