"""Seconds of a prediction from a loaded job to the answer, for the 12 288-GPU job and for its growth with GPUs. Asserts no time."""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.engine import run
from windtunnel.predict import predict
from windtunnel.predict.price.costs import price
from windtunnel.predict.program.lower import lower
from windtunnel.spec import Job, check, load_job
from windtunnel.workload import build

NAME = "megascale-175b-12288"


def sized(gpus: int) -> Job:
    """The job on `gpus` GPUs with the same tp, pp and micro batches."""
    dp = gpus // 64
    return check(load_job(NAME, [f"cluster.gpus={gpus}", f"plan.dp={dp}", f"plan.global_batch={dp * 32}"]))


def test_predict_12288(benchmark: Any) -> None:
    job = load_job(NAME)
    assert benchmark(predict, job).step_time_s > 0


@pytest.mark.parametrize("gpus", [1024, 8192, 131072])
def test_predict_by_gpus(benchmark: Any, gpus: int) -> None:
    job = sized(gpus)
    benchmark.extra_info["operators"] = run(lower(build(job), price(build(job))).program).ops
    assert benchmark(predict, job).step_time_s > 0


def test_parts_load(benchmark: Any) -> None:
    assert benchmark(load_job, NAME).cluster.gpus == 12288


def test_parts_build(benchmark: Any) -> None:
    assert len(benchmark(build, load_job(NAME)).ops) > 50


def test_parts_price(benchmark: Any) -> None:
    workload = build(load_job(NAME))
    assert len(benchmark(price, workload).seconds) == len(workload.ops)


def test_parts_lower(benchmark: Any) -> None:
    workload = build(load_job(NAME))
    costs = price(workload)
    assert benchmark(lower, workload, costs).program.ranks == 8


def test_parts_engine(benchmark: Any) -> None:
    workload = build(load_job(NAME))
    program = lower(workload, price(workload)).program
    assert benchmark(run, program).makespan > 0
