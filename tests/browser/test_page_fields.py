"""Fields of the page: the last one that was typed counts, however quick the tap; a number is read as the terminal reads it."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.served_page import Window

pytestmark = pytest.mark.browser


def type_and_press(page: Any, field: Any, text: str, button: Any, way: str) -> None:
    """Types as somebody does, then asks at once: by a tap without a held press, or by the key on the button."""
    field.click()
    field.press("Control+a")
    field.press_sequentially(text)
    if way == "key":
        button.press("Enter")
    else:
        button.click(delay=0)


@pytest.mark.parametrize("way", ["tap", "key"])
def test_the_last_field_that_was_typed_is_asked(window: Window, way: str) -> None:
    page = window().open("network?c.bytes=1M&c.gpus=8")
    sweep = page.locator("#sweep")
    type_and_press(page, sweep.get_by_label("GPUs"), "32", sweep.get_by_role("button", name="Show the sweep"), way)
    code = page.locator("#sweep-answer .wt-code")
    code.wait_for()
    assert "--gpus=32" in code.inner_text()
    assert parse_qs(urlsplit(page.url).query)["c.gpus"] == ["32"]


def test_the_job_of_choose_is_the_one_that_was_typed(window: Window) -> None:
    page = window().open("choose?job=llama3-8b-8xh100")
    go = page.get_by_role("button", name="Show the run")
    type_and_press(page, page.get_by_label("Job or model"), "gpt3-175b-64", go, "tap")
    code = page.locator("#run-answer .wt-code")
    code.wait_for()
    assert "gpt3-175b-64" in code.inner_text()
    assert parse_qs(urlsplit(page.url).query)["job"] == ["gpt3-175b-64"]


@pytest.mark.parametrize(("label", "text", "read"), [
    ("seq (tokens)", "4k", "4096"), ("seq (tokens)", "4Ki", "4096"), ("tokens (tokens)", "1.5M", "1500000"),
])  # fmt: skip
def test_a_number_with_a_prefix_is_read_as_in_the_terminal(window: Window, label: str, text: str, read: str) -> None:
    page = window().open("compose?job=llama3-8b-8xh100")
    page.locator("#outcome [data-key]").wait_for()
    before = page.locator("#outcome [data-key]").get_attribute("data-key")
    field = page.get_by_label(label, exact=True)
    field.click()
    field.press("Control+a")
    field.press_sequentially(text)
    page.wait_for_function("was => document.querySelector('#outcome [data-key]').dataset.key !== was", arg=before)
    page.wait_for_url(f"**set=*={text}*")
    page.reload()
    page.wait_for_function("read => [...document.querySelectorAll('input')].some(one => one.value === read)", arg=read)


@pytest.mark.parametrize(("label", "text", "allowed"), [
    ("seq (tokens)", "128q", "a whole number"), ("tp (GPUs)", "abc", "a whole number"),
    ("tokens (tokens)", "1e400", "a finite number"),
])  # fmt: skip
def test_what_is_no_number_is_told_at_its_field(window: Window, label: str, text: str, allowed: str) -> None:
    page = window().open("compose?job=llama3-8b-8xh100")
    page.locator("#outcome [data-key]").wait_for()
    field = page.get_by_label(label, exact=True)
    field.click()
    field.press("Control+a")
    field.press_sequentially(text)
    page.locator(".q-field", has=field).locator(".q-field__messages", has_text=allowed).wait_for()
    assert field.input_value() == text


def test_a_form_asks_nothing_while_a_number_cannot_be_read(window: Window) -> None:
    page = window().open("serving")
    server = page.locator("#server")
    users, go = server.get_by_label("Users at a time"), server.get_by_role("button", name="Show the server")
    type_and_press(page, users, "1o", go, "tap")
    server.locator(".q-field__messages", has_text="a whole number such as").wait_for()
    assert page.locator("#server-answer").inner_text() == ""
    type_and_press(page, users, "16", go, "tap")
    page.locator("#server-answer .wt-code", has_text="--concurrency=16").wait_for()


def test_gpus_of_a_pasted_job_are_no_other_number(window: Window) -> None:
    page = window().open("compose?job=llama3-8b-8xh100")
    page.locator("#outcome [data-key]").wait_for()
    page.get_by_text("Or paste what you have").click()
    page.get_by_label("Text").fill("--num-layers 2")
    gpus = page.get_by_label("GPUs", exact=True)
    type_and_press(page, gpus, "1x6", page.get_by_role("button", name="Read it"), "tap")
    page.locator(".q-field", has=gpus).locator(".q-field__messages", has_text="a whole number such as").wait_for()
    assert gpus.input_value() == "1x6"
