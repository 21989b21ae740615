"""A measured step with one thing changed: judged by predictions of the same change, and by hand."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.synthetic_runs import graph_of_job, with_slow_tasks
from windtunnel.base.errors import WindtunnelError
from windtunnel.cli import main
from windtunnel.predict import predict
from windtunnel.records.run import Run
from windtunnel.records.run_file import write_run
from windtunnel.runs.causes import with_factor
from windtunnel.runs.expected import expected_run
from windtunnel.runs.whatif import TracedMachine, what_if
from windtunnel.spec import Job, check, dump_job, load_job
from windtunnel.spec.loading.load import load_cluster, load_gpu

SMALL = ["cluster.gpus=8", "plan.dp=none", "plan.global_batch=8", "plan.seq=4096", "model.layers=4", "plan.vpp=1"]


@pytest.fixture(scope="module")
def dense() -> Job:
    return load_job("llama2-70b-64xh100", [*SMALL, "model=llama3.1-8b", "plan.tp=2", "plan.pp=2"])


@pytest.fixture(scope="module")
def run(dense: Job) -> Run:
    return expected_run(dense)


def test_an_unchanged_graph_gives_the_measured_step(run: Run) -> None:
    (row,) = what_if(run, ["scale:gemm=1"])
    assert row.replayed == pytest.approx(row.measured, rel=1e-9) and row.answer == pytest.approx(row.measured, rel=1e-9)
    assert row.touched == 0


@pytest.mark.parametrize(("name", "factor"), [("gemm", 0.8), ("gemm", 1.25), ("attention", 0.5), ("elementwise", 2.0)])
def test_a_scaled_class_is_what_a_prediction_of_it_says(name: str, factor: float, dense: Job, run: Run) -> None:
    (row,) = what_if(run, [f"scale:{name}={factor}"])
    wanted = predict(with_factor(dense, f"kernels.{name}", factor)).step_time_s
    assert row.answer == pytest.approx(wanted, rel=0.03)
    assert row.touched > 0


def test_without_stragglers_a_slow_rank_costs_nothing(dense: Job) -> None:
    graph = graph_of_job(dense)
    slow = with_slow_tasks(dense, graph, rank=5, value=1.3)
    good = with_slow_tasks(dense, graph, rank=5, value=1.0)
    (row,) = what_if(slow, ["no-stragglers"])
    assert row.measured > 1.05 * good.steps.seconds[0]
    assert row.answer == pytest.approx(good.steps.seconds[0], rel=0.02)


def test_other_machines(run: Run) -> None:
    machine = TracedMachine(load_gpu("h100-sxm-80gb"), load_cluster("h100-ib", ["gpus=8"]))
    rows = what_if(run, ["gpu=h100-sxm-80gb", "gpu=b200-sxm-180gb", "network=h100-ib", "fp8"], machine)
    same, faster, network, fp8 = (row.answer / row.measured for row in rows)
    assert same == pytest.approx(1.0, abs=1e-9) and network == pytest.approx(1.0, abs=1e-9)
    assert 0.4 < faster < 0.7 and 0.5 < fp8 < 0.9
    assert "kernel models" in rows[1].basis_modelled and "scale-up links" in rows[1].basis_measured


MACHINES = {
    "gpu=b200-sxm-180gb": ["cluster.node.gpu=b200-sxm-180gb"],
    "gpu=a100-sxm-80gb": ["cluster.node.gpu=a100-sxm-80gb"],
    "gpu=h200-sxm-141gb": ["cluster.node.gpu=h200-sxm-141gb"],
    "network=b200-ib": ["cluster=b200-ib", "cluster.node.gpu=h100-sxm-80gb"],
    "network=h100-roce": ["cluster=h100-roce"],
    "cluster=b200-ib": ["cluster=b200-ib"],
    "cluster=a100-ib": ["cluster=a100-ib"],
}


@cache
def expected(name: str, *sets: str) -> Run:
    return expected_run(load_job(name, sets))


@pytest.mark.parametrize("change", MACHINES)
@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("llama2-70b-64xh100", ["plan.global_batch=32", "plan.vpp=2", "model.layers=16"]),
        ("llama3-8b-8xh100", []),
        ("mixtral-8x7b-64xh100", ["model.layers=8"]),
    ],
)
def test_another_machine_is_what_a_prediction_on_it_says(name: str, sets: list[str], change: str) -> None:
    job = load_job(name, sets)
    (row,) = what_if(expected(name, *sets), [change], TracedMachine(job=job))
    wanted = predict(load_job(name, [*sets, *MACHINES[change], f"cluster.gpus={job.cluster.gpus}"])).step_time_s
    assert row.answer == pytest.approx(wanted, rel=0.06)


TRUTH = {"kernels.gemm": 1.6, "calls.dp": 1.5}


@pytest.mark.parametrize(("change", "overrides"), [
    ("pp=4", ["plan.pp=4"]), ("pp=1", ["plan.pp=1"]), ("tp=4", ["plan.tp=4"]),
    ("dp=4", ["plan.dp=4", "cluster.gpus=16", "plan.global_batch=16"]),
])  # fmt: skip
def test_another_degree_is_what_the_true_machine_would_show(change: str, overrides: list[str], dense: Job) -> None:
    """The machine is slower in two ways than the model says; the run shows how, and the other plan is judged on that machine."""
    true = dense
    for path, factor in TRUTH.items():
        true = with_factor(true, path, factor)
    run = expected_run(true)
    (row,) = what_if(run, [change], TracedMachine(job=dense))
    table = tomllib.loads(dump_job(true))
    assert row.answer == pytest.approx(predict(check(load_job(table, overrides))).step_time_s, rel=0.03)
    plain = predict(check(load_job(tomllib.loads(dump_job(dense)), overrides))).step_time_s
    assert abs(plain / row.answer - 1.0) > 0.05, "the run was not needed"
    assert "fitted to the run" in row.basis_measured and "global batch" in row.basis_modelled


def test_a_degree_that_cannot_be_is_refused(run: Run, dense: Job) -> None:
    for text, said in (("pp=3", "plan|cluster|gpus"), ("dp=0", "whole number"), ("tp=x", "whole number")):
        with pytest.raises(WindtunnelError, match=said):
            what_if(run, [text], TracedMachine(job=dense))
    with pytest.raises(WindtunnelError, match="--job"):
        what_if(run, ["pp=2"])


@pytest.mark.parametrize(
    "text", ["scale:gem=2", "scale:gemm=fast", "scale:/(/=2", "faster", "gpu=b200-sxm-180gb", "network=h100-ib", "scale:gemm=-1"]
)
def test_a_wrong_change_is_refused(text: str, run: Run) -> None:
    with pytest.raises(WindtunnelError, match=r"--change|--from|--on"):
        what_if(run, [text])


def test_the_verb(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(run, tmp_path / "run")
    assert main(["whatif", str(tmp_path / "run"), "--change", "remove:attention", "--change", "no-host-gaps", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["text"] for row in rows] == ["remove:attention", "no-host-gaps"]
    assert rows[0]["answer"] < rows[0]["measured"]


def test_replay_of_a_run_is_the_measured_step(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(run, tmp_path / "run")
    assert main(["replay", str(tmp_path / "run"), "--on", "h100-ib", "--calls", "trace", "--json", "-"]) == 0
    end = json.loads(capsys.readouterr().out)["end_s"]
    assert end == pytest.approx(float(run.steps.seconds[0]), rel=0.01)
