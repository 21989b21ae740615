"""Charts of the page: what is drawn is what the answer says."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("nicegui")
from windtunnel.service.page.charts import links, plans  # noqa: E402
from windtunnel.service.page.fields import sets_list, sets_of  # noqa: E402
from windtunnel.service.page.sections.choose_sheet import sheet_rows  # noqa: E402
from windtunnel.service.page.sections.network_flows import read_queues  # noqa: E402
from windtunnel.service.page.sections.network_sweep import match_calls  # noqa: E402
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


def test_a_band_is_the_error_of_the_prediction() -> None:
    rows = [{"size": 1024.0, "busbw_GBs": 100.0, "relative_error": 0.25}, {"size": 4096.0, "busbw_GBs": 200.0}]
    names = {"x": "size", "y": "GB/s", "predicted": "predicted", "measured": "measured"}
    options = links.sweep_lines(rows, [(2048.0, 150.0)], names)
    low, high, line, points = options["series"]
    assert [low["data"][0][1], low["data"][0][1] + high["data"][0][1]] == pytest.approx([80.0, 125.0])
    assert [point["value"] for point in line["data"]] == [[0, 100.0], [2, 200.0]]
    assert points["data"][0]["value"] == [1, 150.0]


def test_measured_calls_meet_predicted_ones_of_their_kind() -> None:
    table = {"op": "all_reduce", "gpus": 16, "rows": [{"size": 1e6, "time_us": 50.0, "algbw_GBs": 20.0, "busbw_GBs": 37.5}]}
    call = {"op": "all_reduce", "ranks": 16, "size": 1e6, "seconds": 40e-6, "in_place": False}
    others = [{**call, "op": "all_gather"}, {**call, "ranks": 8}, {**call, "in_place": True}]
    found = match_calls(table, [call, *others])
    assert len(found) == 1
    assert found[0]["error"] == pytest.approx(0.25)
    assert found[0]["busbw_GBs"] == pytest.approx(1e6 / 40e-6 / 1e9 * 1.875)


@pytest.mark.parametrize("bins", [1, 119, 121, 1000])
def test_a_heat_map_keeps_the_fullest_moment(bins: int) -> None:
    load = [0.0] * bins
    load[-1] = 1.0
    options = links.load_heat({"a link": load}, 1e-6, "time")
    cells = options["series"][0]["data"]
    assert len(cells) <= links.MOST_BINS
    assert cells[-1]["value"][2] == len(options["visualMap"]["pieces"]) - 1


def test_queues_are_those_of_the_longest() -> None:
    rows = [f"{at}e-6,link{n},queue_B,{at * n}" for n in range(12) for at in range(3)]
    text = "\n".join(["time_s,of,quantity,value", *rows, "1e-6,link5,sent_B,9"])
    found = read_queues(text, 4)
    assert list(found) == ["link11", "link10", "link9", "link8"]
    assert found["link11"][-1] == (2e-6, 22.0)
    assert read_queues("time_s,of,quantity,value\n0,a,queue_B,0\n") == {}


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
