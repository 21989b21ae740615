"""The machine-readable answer: stable keys, the same bytes for equal predictions, no NaN."""

from __future__ import annotations

import json

import numpy as np
import pytest
from report_fixture import make_prediction

from windtunnel.api.json import SCHEMA, dumps, to_json
from windtunnel.spec import Job

KEYS = [
    "assumptions",
    "breakdown",
    "by_stage",
    "carbon_kg",
    "carbon_kg_per_step",
    "collectives",
    "cost",
    "cost_parts",
    "cost_per_step",
    "critical_path",
    "days",
    "energy_j",
    "energy_j_per_step",
    "energy_parts",
    "error_of_parts",
    "fits",
    "gpu_power_w",
    "hardware_tflops_per_gpu",
    "hfu",
    "init_time_s",
    "job",
    "kernels",
    "longest_s",
    "memory",
    "mfu",
    "model_tflops_per_gpu",
    "network",
    "node_power_w",
    "overlapped",
    "parameters",
    "power_w",
    "profile",
    "provenance",
    "published",
    "relative_error",
    "schema",
    "sources",
    "step_time_s",
    "tokens_per_day",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "traffic",
    "warnings",
]


def test_keys_are_stable() -> None:
    data = to_json(make_prediction())
    assert sorted(data) == KEYS
    assert data["schema"] == SCHEMA
    assert data["step_time_s"] == make_prediction().step_time_s
    assert sum(data["breakdown"].values()) == pytest.approx(data["step_time_s"])
    assert "curve" not in data["memory"][0] and data["memory"][0]["weights"] > 0


def test_detail_adds_the_timeline_and_the_curves() -> None:
    data = to_json(make_prediction(), detail=True)
    assert sorted(data) == sorted([*KEYS, "timeline"])
    assert len(data["timeline"]) == len(make_prediction().timeline)
    assert data["timeline"][0]["category"] == "forward"
    assert data["memory"][0]["curve"][0][0] == 0.0


def test_equal_predictions_give_equal_bytes() -> None:
    first = make_prediction(breakdown={"matmul": 1.0, "host": 0.0}, step_time_s=1.0)
    second = make_prediction(breakdown={"host": -0.0, "matmul": np.float64(1.0)}, step_time_s=1.0)
    assert first == second
    assert dumps(first) == dumps(second)


def test_floats_come_back_exactly() -> None:
    value = 0.1 + 0.2
    assert json.loads(dumps(make_prediction(step_time_s=value)))["step_time_s"] == value


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), np.float64("nan")])
def test_what_json_cannot_say_becomes_null(bad: float) -> None:
    text = dumps(make_prediction(mfu=bad, breakdown={"matmul": bad}))
    assert "NaN" not in text and "Infinity" not in text
    data = json.loads(text)
    assert data["mfu"] is None and data["breakdown"]["matmul"] is None


def test_numpy_scalars_are_numbers() -> None:
    data = json.loads(dumps({"a": np.float32(0.5), "b": np.int64(3), "c": np.array([1, 2]), "d": True, "e": (1, "x")}))
    assert data == {"a": 0.5, "b": 3, "c": [1, 2], "d": True, "e": [1, "x"]}


def test_the_job_comes_back() -> None:
    data = json.loads(dumps(make_prediction()))
    job = make_prediction().job
    assert data["job"]["plan"]["tp"] == job.plan.tp
    assert set(data["job"]) <= set(Job.model_fields)
