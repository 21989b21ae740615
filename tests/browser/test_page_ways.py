"""Twelve journeys of newcomers by mouse, touch and key: with a token, over a link of 300 ms, on a phone, in both languages.

Each goes one way; with WINDTUNNEL_ALL_WAYS=1 each goes all three.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.browser.served_page import ServedPage
from tests.browser.slow_link import SlowLink
from tests.service.served import ServedProcess
from windtunnel.service.page.context import words_of

pytestmark = pytest.mark.browser
ROUND_TRIP = 0.3
VLLM = "vllm serve Qwen/Qwen3-8B -tp 2 --max-model-len 8192"
SCRIPT = (
    "torchrun --nnodes ${NNODES:-4} --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
    "--seq-length 4096 --max-position-embeddings 4096 --bf16 --micro-batch-size 1 --global-batch-size 64 "
    "--tensor-model-parallel-size 2"
)
RL = """workload = "rl"
model = "qwen2.5-0.5b"
cluster = { base = "h100-ib", gpus = 8 }
rl = { prompts = 16, samples = 4, response = "200~1<600" }
"""


class Journey(NamedTuple):
    """A question: the page, the card, the field (a key of the page's words, or its label) and what is typed there, what is pressed
    then, where the answer appears, and a part of its command line."""

    path: str
    card: str
    field: str
    text: str
    press: str
    answer: str
    command: str


JOB = "job=llama3-8b-8xh100"
BUDGET = "b.on=h100-ib&b.gpus=64&b.model=llama3.1-8b&b.tokens=100B&b.days="
SERVER = "serving?v.isl=256&v.osl=32&v.ttft=1&v.tpot=0.02"
JOURNEYS = {
    "sequence": Journey(f"compose?{JOB}", "#fields", "seq (tokens)", "4k", "", "#outcome", "plan.seq=4k"),
    "tokens": Journey(f"compose?{JOB}", "#fields", "tokens (tokens)", "5T", "", "#outcome", "tokens=5T"),
    "script": Journey("compose", "#paste", "compose.text", SCRIPT, "compose.read", "#outcome", "launch.sh"),
    "server line": Journey("compose", "#paste", "compose.text", VLLM, "compose.read", "#pasted-server", "windtunnel serve-predict"),
    "plans": Journey(f"choose?{JOB}&s.gap=5", "#search", "choose.gpus", "8", "choose.go", "div#plans", "--gpus=8"),
    "failures": Journey(f"choose?{JOB}", "#run", "choose.days_of_run", "30", "choose.run_go", "#run-answer", "--days=30"),
    "budget": Journey(f"choose?{BUDGET}", "#sheet", "choose.budget", "2M", "choose.sheet_go", "#sheet-both", "--budget=2M"),
    "sweep": Journey("network?c.bytes=1M", "#sweep", "network.ranks", "16", "network.sweep_go", "#sweep-answer", "--gpus=16"),
    "servers": Journey(
        f"{SERVER}&v.most=1", "#front", "serving.users_list", "1,8", "serving.front_go", "#front-answer", "--users=1,8"
    ),
    "one server": Journey(SERVER, "#server", "serving.users", "12", "serving.server_go", "#server-answer", "--concurrency=12"),
    "replicas": Journey(SERVER, "#fleet", "serving.f_users", "40", "serving.fleet_go", "#fleet-answer", "--users=40"),
    "rl": Journey("serving", "#rl", "serving.rl_job", RL, "serving.rl_go", "#rl-answer", "windtunnel rl-predict"),
}
WAYS = ("mouse", "touch", "key")


@pytest.fixture(scope="module")
def far(guarded: ServedProcess) -> Iterator[SlowLink]:
    with SlowLink(guarded.port, ROUND_TRIP / 2) as link:
        yield link


def reach(page: Any, element: Any, way: str) -> None:
    """Goes to an element and, if it is no field, uses it."""
    is_field = element.evaluate("one => ['INPUT', 'TEXTAREA'].includes(one.tagName)")
    if way == "mouse":
        element.click(delay=0)
    elif way == "touch":
        element.tap()
    else:
        for _ in range(250):
            if element.evaluate("one => one === document.activeElement"):
                break
            page.keyboard.press("Tab")
        else:
            raise AssertionError(f"no key leads to {element}")
        if not is_field:
            page.keyboard.press("Enter")


def sign_in(page: Any, url: str, token: str, words: dict[str, str], way: str) -> None:
    page.goto(f"{url}/ui/sign-in")
    page.get_by_label(words["frame.token"]).fill(token)
    reach(page, page.get_by_role("button", name=words["frame.sign_in"]), way)
    page.wait_for_url("**/ui/compose*")


@pytest.mark.parametrize(("name", "way"), [
    (name, way) for number, name in enumerate(JOURNEYS) for place, way in enumerate(WAYS)
    if os.environ.get("WINDTUNNEL_ALL_WAYS") or place == number % len(WAYS)
])  # fmt: skip
def test_a_newcomer_gets_the_figure_and_follows_its_link(
    browser: Any, guarded: ServedProcess, far: SlowLink, name: str, way: str
) -> None:
    journey = JOURNEYS[name]
    code = ("en", "zh")[(list(JOURNEYS).index(name) + WAYS.index(way)) % 2]
    words = words_of(code)
    shown = ServedPage(browser, far.url, wide=390, locale={"en": "en-US", "zh": "zh-CN"}[code], touch=way == "touch")
    sign_in(shown.page, far.url, str(guarded.token), words, way)
    page = shown.open(journey.path)
    card = page.locator(journey.card).first
    if journey.card == "#paste":
        reach(page, card.locator(".q-item").first, way)
    field = card.get_by_label(words.get(journey.field, journey.field), exact=True).first
    reach(page, field, way)
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(journey.text)
    if journey.press:
        reach(page, card.get_by_role("button", name=words[journey.press], exact=True), way)
    else:
        page.wait_for_url(f"**{journey.text}*")
    if journey.command == "launch.sh":
        page.wait_for_url("**packed=*")
    figure = page.locator(f"{journey.answer} .card b, {journey.answer} td").first
    figure.wait_for()
    if journey.answer == "#outcome":
        page.locator("[data-key]").wait_for()
        link = page.get_by_role("link", name=words["compose.open"])
    else:
        link = page.locator(f"{journey.card} .wt-commandline a").first
        assert journey.command in page.locator(f"{journey.card} .wt-code").first.inner_text()
    assert any(letter.isdigit() for letter in figure.inner_text())
    assert page.locator("[role=alert]").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    reach(page, link, way)
    page.wait_for_url("**/ui/answer?*")
    page.locator("#again .wt-code").wait_for()
    assert journey.command.split("=")[0] in page.locator("#again .wt-code").inner_text()
    shown.close()
