"""Waiting is the time in which a rank waits: never twice at once, never while it computes, never longer than its step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kineto_files import call, kernel, trace, written
from test_kineto_reader import run_of

from windtunnel.records.run import Run
from windtunnel.runs.breakdown import Waits, waits_of
from windtunnel.runs.comparison import compare_run
from windtunnel.runs.expected import expected_run
from windtunnel.runs.report import report_of
from windtunnel.spec import Job, load_job
from windtunnel.traces.matching import match_calls


def _waits(folder: Path, first: list[object], second: list[object]) -> Waits:
    for rank, events in enumerate((first, second)):
        written(folder / f"r{rank}.json", trace(events, rank))
    run = run_of(folder / "r0.json", folder / "r1.json")
    return waits_of(run, match_calls(run))


def test_two_calls_that_wait_at_once_are_one_wait(tmp_path: Path) -> None:
    """Rank 0 posts calls at 10 and 20 us; rank 1 comes at 100 to the one, at 110 to the other: 100 us, not 90 + 90."""
    first = [*call("allreduce", 1, 10, 95, 1, [0, 1], 256), *call("allgather", 2, 20, 95, 2, [0, 1], 256)]
    second = [*call("allreduce", 90, 100, 5, 1, [0, 1], 256), *call("allgather", 91, 110, 5, 2, [0, 1], 256)]
    waits = _waits(tmp_path, first, second)
    assert waits.ranks[0].waited == pytest.approx(100e-6, abs=1e-9) == waits.ranks[1].kept_waiting
    assert list(waits.ranks[1].calls.values()) == pytest.approx([90e-6, 10e-6], abs=1e-9)


def test_a_rank_that_computes_does_not_wait(tmp_path: Path) -> None:
    """Of the 90 us a kernel fills those from 30 to 80."""
    first = [*call("allreduce", 1, 10, 95, 1, [0, 1], 256), *kernel("ampere_bf16_gemm", 25, 30, 50, 2)]
    second = [*call("allreduce", 90, 100, 5, 1, [0, 1], 256)]
    assert _waits(tmp_path, first, second).ranks[0].waited == pytest.approx(40e-6, abs=1e-9)


JOBS = {
    "llama2-70b-64xh100": ("plan.global_batch=32",),
    "gpt3-175b-64": ("plan.global_batch=32", "model.layers=24", "runtime.overlap_p2p=true"),
    "mixtral-8x7b-64xh100": ("plan.global_batch=64", "model.layers=8"),
    "llama3-8b-8xh100": (),
}


def _as_a_file_has_it(run: Run) -> Run:
    """Bytes are whole numbers in every format of a trace."""
    ranks = tuple(replace(one, events=replace(one.events, bytes=np.floor(one.events.bytes + 0.5))) for one in run.ranks)
    return replace(run, ranks=ranks)


@pytest.fixture(params=JOBS, scope="module")
def job(request: pytest.FixtureRequest) -> Job:
    return load_job(request.param, JOBS[request.param])


def test_no_rank_of_a_predicted_step_waits_longer_than_the_step(job: Job) -> None:
    report = report_of(expected_run(job))
    step = max(one.seconds for one in report.steps)
    exposed = {one.rank: one.exposed for one in report.steps}
    for wait in report.waits.ranks:
        assert 0.0 <= wait.waited <= exposed[wait.rank] * (1 + 1e-9) <= step
    assert report.waits.matrix.sum() == pytest.approx(sum(wait.kept_waiting for wait in report.waits.ranks))


def test_a_run_is_no_different_from_its_own_job(job: Job) -> None:
    found = compare_run(_as_a_file_has_it(expected_run(job)), job)
    assert found.measured_step == pytest.approx(found.expected_step, rel=1e-9) and not found.causes
    for part in found.parts:
        assert part.measured == pytest.approx(part.expected, rel=1e-9, abs=1e-9), part.name
    for call_ in found.calls:
        assert call_.measured_count == call_.expected_count, call_
        assert call_.measured_each == pytest.approx(call_.expected_each, rel=1e-9), call_
    assert len({(one.comm, one.axis, one.bytes) for one in found.calls}) == len(found.calls)
