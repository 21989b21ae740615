"""The frame of the page: every section opens, theme and language stay, nothing leaves loopback."""

from __future__ import annotations

import pytest

from tests.browser.served_page import Window, grave_findings

pytestmark = pytest.mark.browser


def test_every_section_opens(window: Window) -> None:
    shown = window()
    page = shown.open("compose")
    links = page.locator("nav a").all_inner_texts()
    assert links == ["Compose", "Answer", "Choose", "Network", "Serving and RL", "Trust", "Runs", "Verbs"]
    for title in links:
        page.locator("nav a", has_text=title).click()
        page.locator("h1", has_text=title).wait_for()


def test_the_language_is_kept(window: Window) -> None:
    page = window().open("compose")
    page.get_by_role("button", name="Language").click()
    page.get_by_text("中文").click()
    page.locator("h1", has_text="编写").wait_for()
    page.locator("nav a", has_text="可信度").click()
    page.locator("h1", has_text="可信度").wait_for()


ASKED = {
    "compose": ("compose?job=llama3-8b-8xh100", "wt-sheet .card"),
    "answer": ("answer?job=llama3-8b-8xh100", "wt-sheet .card"),
    "choose": (
        "choose?job=llama3-8b-8xh100&s.run=1&g.run=1&b.run=1&b.on=h100-ib&b.gpus=64&b.model=llama3.1-8b",
        "#sheet-both table",
    ),
    "network": ("network?c.bytes=1M:4M:4&c.gpus=16&c.run=1&l.bytes=1M&l.run=1&f.run=1", "#flows-answer svg"),
    "serving": ("serving?v.users=1,8&v.isl=256&v.osl=32&v.most=1&v.front=1&v.server=1", "#server-answer svg"),
}
"""Section -> the address below /ui, and what is there when it has its answers."""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("section", list(ASKED))
def test_axe_finds_nothing_grave_in_a_section_with_its_answers(window: Window, section: str, dark: bool) -> None:
    address, sign = ASKED[section]
    page = window(dark=dark).open(address)
    page.locator(sign).first.wait_for()
    assert grave_findings(page) == []
