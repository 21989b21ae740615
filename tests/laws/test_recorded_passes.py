"""Turns are the same as columns of all stages, written by the core, and one by one; so are passes that calls interrupt."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from random_jobs import jobs

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import PlanError
from windtunnel.engine import Program
from windtunnel.predict.category import Task
from windtunnel.predict.program import lower as lowering
from windtunnel.predict.program.pipeline import PipelineTransfers
from windtunnel.predict.program.sharding import Replicated
from windtunnel.predict.program.stage import PASSES, Stage
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec import Job, load_job
from windtunnel.workload import build
from windtunnel.workload.schedules import Action, Pass

OPERATORS = ("op_stream", "op_seconds", "op_host", "op_category", "op_comm", "op_sync", "op_wait0", "op_wait1", "op_group")
SEEN: Counter[str] = Counter()


class OneByOne:
    """Turns that are appended one by one, in place of `PassColumns`."""

    def __init__(
        self, transfers: PipelineTransfers, stages: object, owner: object, actions: Int64s, templates: Int64s, stopped: object
    ) -> None:
        self.transfers, self.templates = transfers, templates.tolist()
        self.actions = [Action(Pass(way), chunk, number, bool(beside)) for way, chunk, number, beside in actions.tolist()]
        self.first = [at for at in range(len(self.actions)) if not at or not self.actions[at - 1].beside_next]

    def append(self, stage: Stage, begin: int, end: int, sent: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        last, moves = -1, self.transfers
        for at in self.first[begin:end]:
            turn = self.actions[at : at + 1 + self.actions[at].beside_next]
            received = tuple(r for action in turn if (r := moves.receive(stage, action)) is not None)
            kind = Task.FORWARD_AND_BACKWARD if len(turn) == 2 else PASSES[turn[0].direction]
            label = int(kind), turn[0].micro_batch, turn[0].chunk
            last = stage.run(self.templates[at], label, received + (sent if moves.waits else ()))
            sent = tuple(s for action in turn if (s := moves.send(stage, action, last)) is not None)
        return last, sent


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
            patch.setattr(Replicated, "record_stopped", lambda *_: None)
            patch.setattr(PipelineTransfers, "columns", lambda *of: OneByOne(*of))
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
