"""Choose, Network, and Serving and RL in a browser: ask, see the answer, share the link."""

from __future__ import annotations

import pytest

from tests.browser.served_page import Window

pytestmark = pytest.mark.browser
LOG = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304
#       size         count      type   redop    root     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    80.00   13.11   24.58      0
     4194304       1048576     float     sum      -1   150.00   27.96   52.43      0
"""
RL = """workload = "rl"
model = "qwen2.5-0.5b"
[cluster]
base = "h100-ib"
gpus = 8
[rl]
prompts = 16
samples = 4
response = "200~1<600"
"""


def test_a_search_shows_its_space_its_plans_and_its_proof_and_a_link_shows_them_again(window: Window) -> None:
    page = window().open("choose?job=llama3-8b-8xh100")
    page.get_by_role("button", name="Show the space").click()
    page.locator("#space td", has_text="plan.tp").wait_for()
    page.get_by_role("button", name="Search plans").click()
    page.locator(
        "#plans section p", has_text="No plan of this space is faster than the "
    ).first.wait_for()  # the last of its rounds
    page.locator("#plans svg").nth(1).wait_for()
    words = page.locator("#plans section p").all_inner_texts()
    assert page.locator("#plans .wt-code").inner_text().startswith("windtunnel search ")
    again = window(wide=390).open(page.url.split("/ui/")[1])
    again.locator("#plans section p", has_text="No plan of this space is faster than the ").first.wait_for()
    assert again.locator("#plans section p").all_inner_texts() == words
    assert again.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_plan_of_the_table_opens_in_compose(window: Window) -> None:
    page = window().open("choose?job=llama3-8b-8xh100&s.run=1")
    page.locator("#plans .q-table tbody tr").first.click()
    page.wait_for_url("**/ui/compose?*set=plan.recompute=none*")


def test_an_error_says_what_to_type(window: Window) -> None:
    page = window().open("choose?job=llama3-8b-8xh100&s.gpus=8,16&s.run=1")
    assert "Try 16" in page.locator("#plans [role=alert]").inner_text()


def test_a_slider_of_the_failure_rate_moves_the_goodput(window: Window) -> None:
    page = window(dark=True).open("choose?job=llama3-8b-8xh100&g.run=1")
    shown = page.locator("#run-answer .card b").nth(2)
    shown.wait_for()
    before = shown.inner_text()
    slider = page.get_by_role("slider", name="Failures, against the source").locator("[tabindex]")
    for _ in range(4):
        slider.press("ArrowRight")
    cards = "document.querySelector('#run-answer wt-sheet')?.shadowRoot.querySelectorAll('.card b')"
    page.wait_for_function(f"was => {cards} && {cards}[2].innerText !== was", arg=before)
    page.wait_for_url("**g.rate=1**")
    assert "reliability.crash.per_node_day" in page.locator("#run-answer .wt-code").inner_text()


def test_the_sheet_has_rent_and_buy(window: Window) -> None:
    page = window().open("choose?b.on=h100-ib&b.gpus=64&b.model=llama3.1-8b&b.tokens=100B&b.budget=&b.days=&b.run=1")
    page.locator("#sheet-both table").wait_for()
    heads = page.locator("#sheet th").all_inner_texts()
    row = page.locator("#sheet tbody tr").first.locator("td").all_inner_texts()
    rent, buy = (row[next(n for n, head in enumerate(heads) if word in head)] for word in ("rent", "buy"))
    assert rent not in ("–", buy) and buy != "–"


def test_a_pasted_log_stands_beside_the_sweep(window: Window) -> None:
    page = window().open("network?c.bytes=1M:4M:4&c.gpus=16")
    page.get_by_label("Log of nccl-tests").fill(LOG)
    page.get_by_role("button", name="Show the sweep").click()
    page.locator("#sweep-answer svg").first.wait_for()
    assert page.locator("#sweep-answer #sizes tbody tr").count() == 2
    assert "mean |error| of 2 sizes" in page.locator("#sweep-answer .cards").inner_text()


def test_the_fabric_is_drawn_with_its_load_and_flows_have_queues(window: Window) -> None:
    page = window().open("network?l.bytes=1M&l.run=1&f.run=1")
    page.locator("#fabric-answer svg#fabric").wait_for()
    assert page.locator("#fabric-answer svg.heat").count() > 0
    page.locator("#flows-answer svg").nth(1).wait_for()
    assert "pfc pauses" in page.locator("#flows-answer #counters").inner_text()


def test_a_point_of_the_front_has_its_command(window: Window) -> None:
    page = window().open("serving?v.users=1,8&v.isl=256&v.osl=32&v.most=1&v.front=1&v.server=1")
    page.locator('#front-answer [data-point="1"]').click(force=True)
    assert "--concurrency 1 " in page.locator("#front-answer .command").inner_text()
    page.locator("#server-answer svg").nth(2).wait_for()


def test_a_step_of_rl_has_phases_and_memory(window: Window) -> None:
    page = window(locale="zh-CN").open("serving")
    page.get_by_label("任务，或 verl", exact=False).fill(RL)
    page.get_by_label("任务，或 verl", exact=False).blur()
    page.locator("#rl .wt-go").click()
    page.locator("#rl-answer svg").nth(1).wait_for()
    assert "采样" in (page.locator("#rl-answer svg").first.text_content() or "")
