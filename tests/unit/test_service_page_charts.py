"""Charts of the page: what is drawn is what the answer says."""

from __future__ import annotations

import asyncio
import json
import re
from typing import cast

import pytest

pytest.importorskip("nicegui")
from windtunnel.predict import predict  # noqa: E402
from windtunnel.service.door import Asked  # noqa: E402
from windtunnel.service.page.asking import Asking, Wanted  # noqa: E402
from windtunnel.service.page.context import LANGUAGES, words_of  # noqa: E402
from windtunnel.service.page.fields import sets_list, sets_of  # noqa: E402
from windtunnel.service.page.pasting import _read  # noqa: E402
from windtunnel.service.page.sections.choose import plan_number, plan_words  # noqa: E402
from windtunnel.service.page.sections.compose import FIRST, FIRST_RUN  # noqa: E402
from windtunnel.service.page.sections.serving import file_name  # noqa: E402
from windtunnel.service.page.sections.trust import are_tables, most_uploaded  # noqa: E402
from windtunnel.service.page.state import Question  # noqa: E402
from windtunnel.service.page.studies import machine_words  # noqa: E402
from windtunnel.spec import load_job  # noqa: E402


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


def test_a_plan_is_said_as_in_the_terminal() -> None:
    plan = {"frame": "h100-ib", "set": ["plan.micro_batch=2", f"plan.stages=[0,{','.join('2' * 14)},1]", "runtime.overlap_tp=true"]}
    assert plan_words(plan) == "h100-ib, micro batch 2, stages [0, 2 x 14, 1], overlap tp true"


def test_a_plan_has_the_error_of_its_step_where_it_is_stated() -> None:
    plan = {"step_time_s": 0.123456, "relative_error": 0.0846, "memory": 3 * 2**29, "mfu": 0.41237}
    shown = [plan_number(plan, key) for key in ("step_time_s", "relative_error", "memory", "mfu", "cost_per_step")]
    assert shown == [0.1235, 8.0, 1.5, 41.24, 0.0]
    assert plan_number({"relative_error": None}, "relative_error") is plan_number({}, "relative_error") is None


def test_the_machine_of_a_job_is_that_which_it_runs_on() -> None:
    """Of the catalogue, as changed, of a model, and none of a pasted job without one; names of files are not opened."""
    assert machine_words(Question("bloom-176b-384")) == "jean-zay · 384 GPUs"
    assert machine_words(Question("bloom-176b-384", {"cluster.gpus": "512"}, on="h100-ib")) == "h100-ib · 512 GPUs"
    assert machine_words(Question("llama3.1-8b", on="a100-ib")) == "a100-ib"
    assert machine_words(Question("run.sh", files={"run.sh": "torchrun"})) == machine_words(Question("/etc/passwd")) == ""


def test_a_first_page_is_of_a_run_of_days() -> None:
    """15 trillion tokens on eight GPUs are years, which looked like a fault."""
    days = predict(load_job(FIRST, [f"{name}={value}" for name, value in FIRST_RUN.items()])).days
    assert days is not None and 1.0 < days < 30.0


def test_files_of_a_request_fit_into_it() -> None:
    for body in (64 << 20, 64_000_000, 1 << 20):
        assert body - 4 < 4 * -(-most_uploaded(body) // 3) <= body + 4
    assert most_uploaded(64 << 20) == 48 << 20


@pytest.mark.parametrize("key", ["compose.upload", "compose.too_large", "trust.upload", "trust.too_large"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_limit_of_uploads_is_stated_by_the_code_and_names_gzip(key: str, language: str) -> None:
    text = words_of(language)[key]
    assert "{size}" in text and re.search("gz", text) and not re.search(r"\d ?[MG]i?B", text)


@pytest.mark.parametrize(("content", "first"), [("run", None), ("job", {"kind": "SpecError"})])
def test_a_paste_that_is_no_job_is_read_without_a_machine(content: str, first: object) -> None:
    """A log has nothing to run on a machine; a job that does not fit one keeps what was said of it."""

    class Reading:
        error: dict[str, str] | None = None

        async def run(self, wanted: Wanted, ignores: object) -> Asked | None:
            self.error = {"kind": "SpecError"} if "on" in wanted.arguments else None
            told = json.dumps({"content": content}).encode()
            return None if self.error else Asked(told, "k", "", 30.0, False, wanted.verb, "application/json", "", {}, "")

    told, error = asyncio.run(_read(cast(Asking, Reading()), {"run.sh": b"torchrun"}, {"on": "h100-ib"}))
    assert (told, error) == ({"content": content}, first)


@pytest.mark.parametrize(("names", "tables"), [("a.csv b.PARQUET", True), ("a.csv.gz", True), ("a.json.gz a.csv", False)])
def test_a_packed_table_is_a_table(names: str, tables: bool) -> None:
    assert are_tables(names.split()) == tables
