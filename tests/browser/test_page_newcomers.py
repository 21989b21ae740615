"""What newcomers stumbled over on the page: each stays mended, as seen in a browser."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.served_page import Window
from tests.browser.test_page_compose import await_step, step_of

pytestmark = pytest.mark.browser
SCRIPT = """#!/bin/bash
torchrun --nnodes ${SLURM_NNODES:-64} --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
  --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --bf16 --micro-batch-size 1 --global-batch-size 512 \\
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4
"""
LOAD = "v.isl=256&v.osl=32&v.ttft=1&v.tpot=0.02"


def paste(page: Any, text: str, gpus: str = "") -> None:
    """Pastes a text into Compose and has it read."""
    page.get_by_text("Or paste what you have").click()
    page.get_by_label("Text").fill(text)
    page.get_by_label("GPUs", exact=True).fill(gpus)
    page.get_by_role("button", name="Read it").click()


def test_a_script_is_read_on_the_machine_that_it_states(window: Window) -> None:
    page = window().open("compose")
    before = step_of(page)
    paste(page, SCRIPT)
    await_step(page, before)
    assert "cluster.gpus" not in page.url
    assert page.locator("[data-field='cluster.gpus']").input_value() == "512"


def test_no_figure_of_another_job_stands_beside_an_error(window: Window) -> None:
    """Of a field, and of a text that cannot be read; the error has no flag of the terminal."""
    page = window(wide=390).open("compose?job=llama3-8b-8xh100")
    before = step_of(page)
    assert before.split(" ±")[0] in page.locator(".wt-peek").inner_text()
    page.get_by_label("tp (GPUs)").fill("3")
    page.locator("#outcome [role=alert]").wait_for()
    assert page.locator("wt-sheet").count() == 0 and page.locator(".wt-peek").inner_text() == ""
    page.get_by_label("tp (GPUs)").fill("1")
    step_of(page)
    paste(page, SCRIPT, "8")
    told = page.locator("#paste [role=alert]")
    told.wait_for()
    assert "a multiple of tp*pp*cp = 32" in told.inner_text() and "--set" not in told.inner_text()
    assert page.locator("wt-sheet").count() == 0


def test_an_error_names_the_field_of_the_page(window: Window) -> None:
    page = window().open("serving?v.on=h100&v.server=1")
    told = page.locator("#server-answer [role=alert]")
    told.wait_for()
    assert told.inner_text().startswith("“Machine”: got 'h100'") and "--" not in told.inner_text()


def test_an_advice_opens_compose_with_its_change(window: Window) -> None:
    page = window().open("answer?job=llama3-8b-8xh100")
    step_of(page)
    page.get_by_role("link", name="Apply the advice: plan.recompute = none").click()
    page.wait_for_url("**/ui/compose?*set=plan.recompute=none*")
    assert page.locator("#fields .wt-changed").count() == 1 or "recompute" in page.url
    step_of(page)


@pytest.mark.parametrize(("change", "said"), [
    ("plan.recompute=none", r"differ by [\d.]+ %, less than ±\d+ %"), ("plan.seq=2048", r"differ by [\d.]+ %, more than either"),
])  # fmt: skip
def test_a_difference_is_set_beside_the_errors(window: Window, change: str, said: str) -> None:
    page = window().open("answer?job=llama3-8b-8xh100")
    step_of(page)
    page.get_by_role("button", name="Keep this answer here").click()
    page.wait_for_url(re.compile("beside="))
    page.goto(page.url.replace("job=llama3-8b-8xh100", f"job=llama3-8b-8xh100&set={change}"))
    beside = page.locator("#beside")
    beside.locator("td", has_text=re.compile(r"±\d+ % \([+-]")).first.wait_for()
    assert re.search(said, beside.inner_text()), beside.inner_text()
    assert not re.search(r"\de\+\d", beside.inner_text())


@pytest.mark.parametrize("way", ["users", "rate"])
def test_replicas_behind_a_router_are_answered(window: Window, way: str) -> None:
    """How many replicas a load takes, with its table of what was tried; the link shows the same again, in a narrow window too."""
    load = "v.f_users=40" if way == "users" else "v.f_rate=20"
    page = window().open(f"serving?{LOAD}&{load}")
    page.locator("#fleet").get_by_role("button", name="Show the replicas").click()
    answer = page.locator("#fleet-answer")
    answer.locator(".card b").nth(3).wait_for()
    command = answer.locator(".wt-code").inner_text()
    assert command.startswith("windtunnel serve-fleet ")
    assert ("--users=40" in command, "--rate=20" in command) == (way == "users", way == "rate")
    page.wait_for_url("**v.fleet=1*")
    again = window(wide=390, locale="zh-CN").open(page.url.split("/ui/")[1])
    again.locator("#fleet-answer .card b").nth(3).wait_for()
    assert again.locator("#fleet-answer .card b").first.inner_text() == answer.locator(".card b").first.inner_text()
    assert again.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_number_of_replicas_is_kept_in_its_range(window: Window) -> None:
    page = window().open(f"serving?{LOAD}&v.f_replicas=2k")
    fleet = page.locator("#fleet")
    fleet.get_by_role("button", name="Show the replicas").click()
    fleet.locator(".q-field__messages", has_text="from 1 to 1024").wait_for()
    assert page.locator("#fleet-answer").inner_text() == ""


@pytest.mark.parametrize(("section", "card", "label", "text", "option"), [
    ("choose?b.on=h100-ib&b.gpus=64&b.model=llama3.1-8b&b.days=&b.budget=", "#sheet", "Tokens (such as 2T)", "5T", "--tokens=5T"),
    ("serving?v.osl=32", "#server", "Users at a time", "0.1k", "--concurrency=100"),
    ("network?c.gpus=16", "#sweep", "Size", "128k", "128k"),
])  # fmt: skip
def test_every_form_takes_prefixes(window: Window, section: str, card: str, label: str, text: str, option: str) -> None:
    page = window().open(section)
    form = page.locator(card)
    form.get_by_label(label).first.fill(text)
    form.locator(".wt-go").first.click()
    code = form.locator(".wt-code")
    code.wait_for()
    assert option in code.inner_text()


def test_a_field_of_memory_takes_its_unit(window: Window) -> None:
    page = window().open("compose?job=llama3-8b-8xh100&set=cluster.node.gpu.memory=40GiB")
    page.locator("#outcome .card", has_text="of 40.0 GiB").or_(page.locator("#outcome .card", has_text="does not fit")).wait_for()


def test_a_search_that_is_too_short_names_its_field(window: Window) -> None:
    page = window().open("choose?job=llama3-8b-8xh100&s.limit=1ns&s.run=1")
    told = page.locator("#plans [role=alert]")
    told.wait_for()
    assert told.inner_text().startswith("“Longest search (s)”: got ") and "time enough" in told.inner_text()


@pytest.mark.parametrize(("path", "section"), [("runs", "run"), ("servings", "serving"), ("zzz", "compose")])
def test_an_address_that_is_none_leads_to_the_nearest_section(window: Window, path: str, section: str) -> None:
    page = window().open(path)
    assert page.url.endswith(f"/ui/{section}")


def test_the_link_of_an_unknown_answer_says_that_it_is_gone(window: Window) -> None:
    page = window().open("answer?key=abcdef")
    page.locator("#content", has_text="This answer is no longer kept").wait_for()
    assert "bloom" not in page.locator("#content").inner_text()


def test_an_empty_text_is_told_and_leaves_no_message_of_the_text_before(window: Window) -> None:
    page = window().open("compose")
    step_of(page)
    paste(page, SCRIPT)
    page.get_by_text("Recognised as megatron", exact=False).wait_for()
    page.get_by_label("Text").fill("")
    page.get_by_role("button", name="Read it").click()
    page.locator("#paste [role=alert]", has_text="There is nothing to read").wait_for()
    assert page.get_by_text("Recognised as megatron", exact=False).count() == 0


@pytest.mark.parametrize(("letters", "told"), [(510_000, "Recognised as megatron"), (5_000_000, "more than 4 MiB")])
def test_a_long_paste_is_read_as_a_file_is(window: Window, letters: int, told: str) -> None:
    """A field of the page carries no more than a message of its socket does."""
    page = window().open("compose")
    step_of(page)
    page.get_by_text("Or paste what you have").click()
    page.get_by_label("Text").evaluate(
        """(area, text) => { const data = new DataTransfer(); data.setData('text/plain', text);
        area.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})); }""",
        SCRIPT + "#" * letters,
    )
    page.locator("#paste", has_text=told).wait_for()


@pytest.mark.parametrize("typed", ["Qwen3-8B", "qwen3-8b"])
def test_enter_picks_the_model_that_was_typed(window: Window, typed: str) -> None:
    page = window().open("compose")
    step_of(page)
    field = page.locator("#start input").first
    field.click()
    field.press_sequentially(typed)
    field.press("Enter")
    page.wait_for_url("**job=qwen3-8b&on=h100-ib*")


def test_memory_of_plans_is_in_the_unit_of_compose(window: Window) -> None:
    page = window().open("choose?job=llama3-8b-8xh100&s.run=1")
    page.locator("#plans th", has_text="Fullest GPU (GiB)").wait_for()
    heads = page.locator("#plans .wt-table th").all_inner_texts()
    (place,) = (place for place, head in enumerate(heads) if "± of step (%)" in head)
    assert 1 <= int(page.locator("#plans .wt-table tbody tr").first.locator("td").nth(place).inner_text()) <= 60
    assert (
        page.locator("#search").get_by_label("Machines (clusters, with commas)").get_attribute("placeholder") == "as the job has it"
    )


def test_choose_says_on_which_machine_the_job_runs(window: Window) -> None:
    """And its whole run, which is not of the plans of the search; another job changes both."""
    page = window().open("choose?job=bloom-176b-384&s.gpus=512")
    lines = page.locator("[data-line]")
    lines.nth(1).wait_for()
    assert lines.all_inner_texts() == [
        "On jean-zay · 384 GPUs",
        "Of the job as it stands, on jean-zay · 384 GPUs; not of a plan of the search above.",
    ]
    field = page.get_by_label("Job or model")
    field.fill("llama3-8b-8xh100")
    field.press("Enter")
    page.get_by_text("On h100-ib · 8 GPUs", exact=True).wait_for()
    compose = window().open("compose?job=bloom-176b-384")
    compose.locator("#start .q-field__messages", has_text="of the job: jean-zay · 384 GPUs").wait_for()


def test_a_first_page_is_of_a_run_of_days_and_its_fields_say_so(window: Window) -> None:
    page = window().open("compose")
    page.locator("wt-sheet", has_text="10 billion tokens in").wait_for()
    assert page.locator("[data-field=tokens]").input_value() == "10000000000"
