"""Passes that calls interrupt are the same as columns of all stages and one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from random_jobs import jobs

from windtunnel.base.errors import PlanError
from windtunnel.engine import Program
from windtunnel.predict.program import lower as lowering
from windtunnel.predict.program.sharding import Replicated
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec import Job, load_job
from windtunnel.workload import build

OPERATORS = ("op_stream", "op_seconds", "op_host", "op_category", "op_comm", "op_sync", "op_wait0", "op_wait1", "op_group")
SEEN: Counter[str] = Counter()


def instances(program: Program) -> list[bytes]:
    """What each instance runs: its template's operators, whatever the template's number."""
    starts = program.template_start
    bodies = [
        b"".join(getattr(program, name)[starts[t] : starts[t + 1]].tobytes() for name in OPERATORS) for t in range(len(starts) - 1)
    ]
    return [bodies[t] if t >= 0 else b"" for t in program.template.tolist()]


def written(job: Job, one_by_one: bool) -> tuple[object, ...] | str:
    """The program of a step and the meaning of its parts."""
    workload = build(job)
    costs = Setting().price(workload)
    with pytest.MonkeyPatch.context() as patch:
        if one_by_one:
            patch.setattr(Replicated, "group_passes", lambda *_: None)
        try:
            builder, stages = lowering.write_stages(workload, costs)
        except PlanError as error:
            return str(error)
    lowered = lowering.finish_program(builder, stages)
    SEEN["calls in columns"] += any(stage.templates.recorded for stage in stages)
    program = lowered.program
    columns = {
        name: (column.tobytes() if isinstance(column, np.ndarray) else column)
        for name, column in vars(program).items()
        if not name.startswith(("op_", "template"))
    }
    parts = [(stage.labels.table().tobytes(), list(stage.calls.items()), stage.collectives) for stage in stages]
    return columns, instances(program), parts


def assert_equal_ways(job: Job) -> None:
    assert written(job, True) == written(job, False)


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(jobs())
def test_columns_are_passes_one_by_one(job: Job) -> None:
    assert_equal_ways(job)


@pytest.mark.parametrize("name", ["mixtral-8x7b-64xh100", "llama2-70b-64xh100"])
def test_columns_of_the_catalogue_are_passes_one_by_one(name: str) -> None:
    before = SEEN["calls in columns"]
    assert_equal_ways(load_job(name))
    assert SEEN["calls in columns"] > before
