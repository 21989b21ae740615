"""Is the cause of a step's difference named, and is its factor found? Runs with one known cause."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.synthetic_runs import graph_of_job, noisy, with_known_factor, with_slow_tasks
from windtunnel.cli import main
from windtunnel.predict import predict
from windtunnel.records.run import Run, Steps
from windtunnel.records.run_file import write_run
from windtunnel.records.trace_graph import TraceGraph
from windtunnel.runs.calibrate import calibrate
from windtunnel.runs.causes import with_factor
from windtunnel.runs.comparison import compare_run
from windtunnel.runs.expected import expected_run
from windtunnel.spec import Job, load_job

SMALL = ["cluster.gpus=8", "plan.dp=none", "plan.global_batch=8", "plan.seq=4096", "model.layers=4", "plan.vpp=1"]


@pytest.fixture(scope="module")
def dense() -> Job:
    return load_job("llama2-70b-64xh100", [*SMALL, "model=llama3.1-8b", "plan.tp=2", "plan.pp=2"])


@pytest.fixture(scope="module")
def experts() -> Job:
    sets = ["cluster.gpus=16", "plan.dp=none", "plan.pp=2", "plan.vpp=1", "plan.global_batch=32", "model.layers=8"]
    return load_job("mixtral-8x7b-64xh100", sets)


@pytest.fixture(scope="module")
def graph(dense: Job) -> TraceGraph:
    return graph_of_job(dense)


@pytest.mark.parametrize(("path", "value"), [("kernels.gemm", 1.2), ("kernels.elementwise", 0.8), ("calls.tp", 2.0), ("host", 3.0)])
def test_a_factor_is_found_and_named_first(path: str, value: float, dense: Job) -> None:
    comparison = compare_run(with_known_factor(dense, path, value, seed=3), dense)
    assert comparison.fit is not None
    found = {factor.path: factor.value for factor in comparison.fit.factors.factors}
    assert comparison.causes[0].key == path
    assert found[path] == pytest.approx(value, rel=0.03)
    assert all(abs(other - 1.0) < 0.03 for name, other in found.items() if name != path)


@pytest.mark.parametrize("path", ["kernels.grouped_gemm", "calls.ep", "calls.dp", "calls.pp"])
def test_axes_with_equal_ranks_are_told_apart(path: str, experts: Job) -> None:
    """ep and dp of a stage are the same eight ranks here."""
    comparison = compare_run(with_known_factor(experts, path, 1.5, seed=1), experts)
    assert comparison.causes[0].key == path and comparison.causes[0].factor == pytest.approx(1.5, rel=0.03)


@pytest.mark.parametrize("rank", [0, 5])
def test_a_slow_rank_is_named_with_its_price(rank: int, dense: Job, graph: TraceGraph) -> None:
    comparison = compare_run(with_slow_tasks(dense, graph, rank=rank, value=1.2), dense)
    first = comparison.causes[0]
    assert (first.key, first.factor) == (f"rank {rank}", pytest.approx(1.2, rel=1e-6))
    assert first.seconds == pytest.approx(comparison.measured_step - comparison.expected_step, rel=0.15)
    assert max(comparison.ranks, key=lambda one: one.kept_waiting).rank == rank


def test_a_slow_group_is_named(dense: Job, graph: TraceGraph) -> None:
    group = next(i for i, ranks in enumerate(graph.groups) if ranks == (2, 3))
    comparison = compare_run(with_slow_tasks(dense, graph, group=group, value=2.0), dense)
    assert comparison.causes[0].key == "group 2-3"


def test_an_unchanged_run_has_no_causes(dense: Job, graph: TraceGraph) -> None:
    comparison = compare_run(with_slow_tasks(dense, graph, rank=0, value=1.0), dense)
    assert comparison.causes == ()
    assert comparison.measured_step == pytest.approx(comparison.expected_step, rel=1e-6)


def test_calibration_is_judged_on_steps_left_out(dense: Job) -> None:
    run = noisy(expected_run(with_factor(with_factor(dense, "kernels.gemm", 1.3), "calls.tp", 1.5)), 8, 0.02, 5)
    result = calibrate([run], dense)
    assert result.steps_fitted == 4 and len(result.after) == 3  # the first step warms up
    assert np.abs(result.before).mean() > 0.1 and np.abs(result.after).mean() < 0.02
    calibration = result.fit.calibration
    assert (calibration.kernels.gemm, calibration.calls.tp) == (pytest.approx(1.3, rel=0.03), pytest.approx(1.5, rel=0.03))
    again = predict(dense.model_copy(update={"calibration": calibration})).step_time_s
    assert again == pytest.approx(float(np.median(run.steps.seconds)), rel=0.02)


def test_a_log_has_steps_and_no_causes(dense: Job) -> None:
    steps = Steps.of(-1, np.arange(5), seconds=[9.0, 1.0, 1.1, 1.2, 1.1])
    comparison = compare_run(Run(steps, source="log"), dense)
    assert comparison.measured_step == pytest.approx(1.1) and comparison.causes == () and comparison.fit is None


def test_the_verbs(dense: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = [word for text in (*SMALL, "model=llama3.1-8b", "plan.tp=2", "plan.pp=2") for word in ("--set", text)]
    write_run(with_known_factor(dense, "kernels.attention", 1.5), tmp_path / "run")
    assert main(["compare", str(tmp_path / "run"), "llama2-70b-64xh100", *sets, "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["causes"][0]["key"] == "kernels.attention"
    calibration = str(tmp_path / "cal.toml")
    assert main(["calibrate", str(tmp_path / "run"), "--job", "llama2-70b-64xh100", *sets, "-o", calibration]) == 0
    assert main(["predict", "llama2-70b-64xh100", *sets, "--calibration", calibration, "--json", "-"]) == 0
    out = capsys.readouterr().out
    step = json.loads(out[out.index("{\n") :])["step_time_s"]
    assert step == pytest.approx(answer["measured_step_s"], rel=0.02)


def test_profiler_traces_of_a_prediction_read_back_as_they_were(dense: Job, tmp_path: Path) -> None:
    from windtunnel.exports.exporters import exporter_of, save
    from windtunnel.formats.door import read_files
    from windtunnel.runs.observed import observe

    save(exporter_of("kineto").export(dense, {}), tmp_path)
    there, here = observe(read_files([tmp_path]).value, dense), observe(expected_run(dense), dense)
    assert there.step == pytest.approx(here.step, rel=1e-9)
    assert set(there.calls) == set(here.calls)
    for name, seconds in here.kernels.items():
        assert there.kernels[name] == pytest.approx(seconds, rel=1e-9)


def test_traces_of_eight_ranks_lead_to_the_late_one(
    dense: Job, graph: TraceGraph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a user has it: eight files of the profiler, a job, one command."""
    from windtunnel.exports.kineto import text_of

    run = with_slow_tasks(dense, graph, rank=5, value=1.25)
    for trace in run.ranks:
        (tmp_path / f"rank-{trace.rank}.json").write_text(text_of(trace, run))
    sets = [word for text in (*SMALL, "model=llama3.1-8b", "plan.tp=2", "plan.pp=2") for word in ("--set", text)]
    assert main(["compare", str(tmp_path), "llama2-70b-64xh100", *sets]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Your step takes" in shown and "1. rank 5 (GPU 5 of node 0) computes 1.25 times as long as its equals" in shown
