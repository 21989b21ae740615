"""Whatever the job, `predict` answers with usable numbers or refuses in words; and equal jobs get equal bytes."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from random_jobs import jobs, tables

from windtunnel.api.json import dumps
from windtunnel.base.errors import WindtunnelError
from windtunnel.predict import Prediction, predict
from windtunnel.spec import Job, load_job


def numbers(value: Any) -> list[float]:
    """Every float inside an answer, job aside."""
    if isinstance(value, float):
        return [value]
    if isinstance(value, dict):
        return [n for v in value.values() for n in numbers(v)]
    if isinstance(value, (tuple, list)):
        return [n for v in value for n in numbers(v)]
    if is_dataclass(value) and not isinstance(value, type):
        return [n for f in fields(value) if f.name not in ("job", "curve") for n in numbers(getattr(value, f.name))]
    return []


def sound(p: Prediction) -> None:
    for name in (
        "step_time_s",
        "tokens_per_s",
        "tokens_per_s_per_gpu",
        "model_tflops_per_gpu",
        "hardware_tflops_per_gpu",
        "mfu",
        "hfu",
        "parameters",
    ):
        assert getattr(p, name) > 0.0, name
    assert all(math.isfinite(n) for n in numbers(p))
    assert p.mfu < 1.0 and p.model_tflops_per_gpu <= p.hardware_tflops_per_gpu * (1 + 1e-9) or p.job.model.window is not None
    assert all(n >= 0.0 for part in (*p.by_stage, p.overlapped, p.provenance) for n in part.values())
    assert all(row.seconds_total >= 0.0 and row.count > 0 for row in p.kernels)
    assert all(s.total > 0.0 for s in p.memory) and len(p.memory) == p.job.plan.pp
    assert all(0.0 <= s.start <= s.end <= p.step_time_s * (1 + 1e-12) for s in p.timeline)


@examples(50)
@given(tables())
def test_any_table_is_answered_or_refused(table: dict[str, Any]) -> None:
    try:
        p = predict(load_job(table))
    except WindtunnelError:
        return
    sound(p)


@examples(30)
@given(jobs())
def test_every_checked_job_is_answered(job: Job) -> None:
    sound(predict(job))


def shuffled(value: Any, draw: Any) -> Any:
    if not isinstance(value, dict):
        return value
    keys = draw(st.permutations(sorted(value)))
    return {key: shuffled(value[key], draw) for key in keys}


@examples(10)
@given(jobs(), st.data())
def test_the_same_job_gives_the_same_bytes(job: Job, data: st.DataObject) -> None:
    table = job.model_dump(mode="json", exclude_none=True)
    table["runtime"]["base"] = "none"
    first = dumps(predict(load_job(table)))
    assert dumps(predict(load_job(table))) == first
    assert dumps(predict(load_job(shuffled(table, data.draw)))) == first
    assert dumps(predict(job)) == first
