"""Charts of the page: what is drawn is what the answer says."""

from __future__ import annotations

import pytest

pytest.importorskip("nicegui")
from windtunnel.service.page.fields import sets_list, sets_of  # noqa: E402
from windtunnel.service.page.sections.serving_rl import file_name  # noqa: E402


def test_changes_are_read_from_words_and_lines() -> None:
    assert sets_of("plan.tp=2,4  plan.pp=1\nnothing =x y=") == {"plan.tp": "2,4", "plan.pp": "1"}
    assert sets_list({"job": "a", "set": {"x": "1"}}, {"x": "2", "y": "3"}) == {"job": "a", "set": {"x": "2", "y": "3"}}
    assert sets_list({"job": "a"}, {}) == {"job": "a"}


@pytest.mark.parametrize(
    ("text", "name"),
    [('workload = "rl"\n', "job.toml"), ("# mine\n[rl]\nprompts = 1\n", "job.toml"), ("#!/bin/sh\nx\n", "run.sh"),
     ("python3 -m verl.trainer.main_ppo a=1\n", "run.sh"), ("grpo:\n  num_prompts: 3\n", "job.yaml")],
)  # fmt: skip
def test_a_pasted_job_becomes_a_file_of_its_kind(text: str, name: str) -> None:
    assert file_name(text) == name
