"""What people come with, pasted on the page and answered within two minutes: a server's line with limits, a fine-tune that runs
out of memory, the console log of a trainer of reinforcement learning, and logs and results alone."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.browser.served_page import Window

pytestmark = pytest.mark.browser
PATIENCE = 120.0
"""Seconds in which a user wants an answer."""
LINE = "vllm serve Qwen/Qwen3-8B-FP8 -tp 2 --max-model-len 32768 --max-num-seqs 64"
FINE_TUNE = """model_name_or_path: Qwen/Qwen2.5-14B-Instruct
stage: sft
do_train: true
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json
cutoff_len: 16384
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
"""
OUT_OF_MEMORY = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.53 GiB. GPU 3 has a total capacity of 79.10 GiB "
    "of which 11.31 GiB is free. Including non-PyTorch memory, this process has 67.76 GiB memory in use. Of the allocated memory "
    "61.38 GiB is allocated by PyTorch, and 4.61 GiB is reserved by PyTorch but unallocated.\n"
)
SCRIPT = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 data.max_prompt_length=512 \\
    data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct actor_rollout_ref.rollout.n=4 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \\
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1 trainer.n_gpus_per_node=8
"""
CONSOLE = (
    "(TaskRunner pid=7) step:11 - response_length/mean:398.4 - response_length/max:1024.0 - response_length/clip_ratio:0.021 - "
    "prompt_length/mean:141.2 - timing_s/gen:98.41 - timing_s/old_log_prob:14.31 - timing_s/ref:13.90 - "
    "timing_s/update_actor:51.77 - timing_s/step:181.03\n"
)


@contextmanager
def in_two_minutes() -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < PATIENCE


def paste(page: Any, text: str, machine: str = "") -> None:
    page.get_by_text("Or paste what you have").click()
    page.get_by_label("Text").fill(text)
    if machine:
        page.locator("#paste").get_by_label("Machine").fill(machine)
        page.keyboard.press("Enter")
    page.get_by_role("button", name="Read it").click()


def test_a_servers_line_with_limits(window: Window) -> None:
    """The line is answered, its limits are tried on it, and a search finds what keeps them."""
    with in_two_minutes():
        page = window().open("compose")
        paste(page, LINE)
        page.locator("#paste wt-sheet", has_text="output tokens/s a GPU").wait_for()
        page.goto(page.get_by_role("link", name="Set limits").evaluate("one => one.href"))
        page.get_by_label("Limit of the first token").fill("2")
        limit = page.get_by_label("Limit of each further token")
        limit.fill("3ms")
        page.locator("#server").get_by_label("Users at a time").fill("32")
        page.locator("#server .wt-go").click()
        answer = page.locator("#server-answer")
        answer.locator(".card", has_text="keep the limits").wait_for()
        command = answer.locator(".wt-code").inner_text()
        assert "Qwen/Qwen3-8B-FP8" in command and "--tp=2" in command and "--tpot=3ms" in command
        page.locator("#front").get_by_label("Users", exact=False).fill("1,4")
        page.locator("#front .wt-go").click()
        page.locator("#front-answer .card b").first.wait_for()


def test_a_fine_tune_that_runs_out_of_memory(window: Window) -> None:
    """It does not fit, and what mends it stands there in the trainer's words."""
    with in_two_minutes():
        page = window().open("compose")
        paste(page, FINE_TUNE)
        page.locator("#outcome .card", has_text="does not fit").wait_for()
        page.get_by_role("link", name="Open the whole answer").click()
        page.locator(
            "body", has_text=re.compile(r"LLaMA-Factory: (enable_liger_kernel|per_device_train_batch_size|cutoff_len)")
        ).wait_for()


def test_the_console_of_a_trainer_of_reinforcement_learning(window: Window) -> None:
    """Its phases stand beside those that are predicted."""
    with in_two_minutes():
        page = window().open("serving")
        page.locator("#rl").get_by_label("Job, or a script").fill(SCRIPT)
        page.locator("#rl").get_by_label("Machine of a script").fill("h100-ib")
        page.locator("#rl").get_by_label("Console log").fill(CONSOLE)
        page.locator("#rl .wt-go").click()
        answer = page.locator("#rl-answer")
        answer.locator("th", has_text="measured").first.wait_for()
        assert {"98.4 s", "181 s"} <= set(answer.locator("td").all_inner_texts())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CONSOLE, r"timing_s/gen 98\.41"),
        (OUT_OF_MEMORY, "rank 3 asked for 18.53 GiB"),
        ("Throughput: 7.67 requests/s, 8437.12 total tokens/s, 767.01 output tokens/s\n", r"tokens per s: 767\.01"),
        (
            "step 1 loss 2.31 step_time 1.42 s tokens/s 9120\nstep 2 loss 2.30 step_time 1.40 s tokens/s 9130\n",
            r"step seconds: 1\.4",
        ),
    ],
)
def test_a_log_alone_says_its_figures(window: Window, text: str, said: str) -> None:
    page = window().open("compose")
    paste(page, text)
    page.locator("[data-facts]").wait_for()
    assert re.search(said, page.locator("[data-facts]").inner_text())
