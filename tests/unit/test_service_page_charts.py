"""Charts of the page: what is drawn is what the answer says."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("nicegui")
from windtunnel.service.page.charts import plans  # noqa: E402
from windtunnel.service.page.fields import sets_list, sets_of  # noqa: E402
from windtunnel.service.page.sections.choose_sheet import sheet_rows  # noqa: E402
from windtunnel.service.page.sections.serving_rl import file_name  # noqa: E402

NAMES = {"step_time_s": "step (s)", "memory": "GPU (GB)"}


def plan(seconds: float, **fields: Any) -> dict[str, Any]:
    return {"step_time_s": seconds, "memory": 4e10, "plan": {f"plan.{name}": value for name, value in fields.items()},
            "set": [f"plan.{name}={value}" for name, value in fields.items()]}  # fmt: skip


def test_parallel_axes_are_the_fields_that_differ_with_numbers_in_order() -> None:
    shown = [plan(1.0, tp=16, pp=1, stages=[1, 2]), plan(2.0, tp=2, pp=1, stages=None), plan(3.0, tp=8, pp=1, stages=[2, 1])]
    options = plans.parallel_plans(shown, NAMES, 1)
    axes = {axis["name"]: axis for axis in options["parallelAxis"]}
    assert list(axes) == ["tp", "stages", "step (s)", "GPU (GB)"]
    assert axes["tp"]["data"] == ["2", "8", "16"]
    lines = options["series"][0]["data"]
    assert [line["value"][2] for line in lines] == [3.0, 2.0, 1.0]  # the best is drawn last, on top
    assert all(line["value"][place] in axes[name]["data"] for line in lines for place, name in enumerate(("tp", "stages")))


def test_points_of_the_front_know_their_plans() -> None:
    shown = [plan(1.0, tp=1), plan(2.0, tp=2), plan(3.0, tp=4)]
    others, front = plans.front_scatter(shown, "step_time_s", "memory", NAMES, 1)["series"]
    assert [point["plan"] for point in front["data"]] == [0]
    assert [point["plan"] for point in others["data"]] == [1, 2]
    assert front["data"][0]["value"] == [1.0, 40.0]


def test_a_rate_without_effect_has_no_bar() -> None:
    limits = [{"words": "products", "gain": 0.07, "loss": -0.08}, {"words": "nothing", "gain": 0.0, "loss": -1e-5}]
    options = plans.limit_bars(limits, "saved (%)")
    assert options["yAxis"]["data"] == ["products"]
    assert [series["data"][0]["value"] for series in options["series"]] == pytest.approx([7.0, -8.0])


def test_the_sheet_has_rented_and_bought_machines_in_one_row() -> None:
    one = {"cluster": "h100-ib", "gpus": 8, "model": "llama3-8b", "parameters": 8e9, "tokens": 1e12, "days": 3.0, "loss": None,
           "cost": 10.4,
           "relative_error": 0.1, "ettr": 0.9, "mfu": 0.4, "limits": [], "meets_all": True}  # fmt: skip
    rows = sheet_rows([one], [{**one, "cost": 20.0}, {**one, "gpus": 16, "cost": 30.0}])
    assert [(row["gpus"], row["rent"], row["buy"]) for row in rows] == [(8, 10, 20), (16, None, 30)]


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


def test_options_are_plain_data() -> None:
    options = plans.space_bars({"plan.tp": ["1", "2"], "plan.pp": ["1"]}, "values")
    assert json.loads(json.dumps(options)) == options
    assert options["yAxis"]["data"] == ["plan.tp", "plan.pp"]
