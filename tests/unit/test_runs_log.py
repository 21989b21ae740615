"""A run of which only a log is there beside its job: what the log says itself, and which suspects would explain it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from windtunnel.cli import main
from windtunnel.predict import predict
from windtunnel.records.run import Run, Steps
from windtunnel.runs import suspects
from windtunnel.runs.comparison import RunComparison, compare_run
from windtunnel.runs.comparison_sheet import recording_hint
from windtunnel.runs.log_facts import log_facts
from windtunnel.runs.suspects import suspected_causes
from windtunnel.spec import Job, load_job, names

PREDICTED = cache(predict)
FEW_STAGES = "plan.vpp=2"
"""A job of 20 virtual stages takes twice as long to predict, and shows no more here."""
DENSE = load_job("llama2-70b-64xh100", [FEW_STAGES])
MIXTURE = load_job(
    {"model": "qwen3-30b-a3b", "cluster": "h100-ib", "runtime": {"framework": "megatron-core"}},
    [
        *("cluster.gpus=32", "plan.tp=1", "plan.pp=1", "plan.ep=8", "plan.micro_batch=1", "plan.global_batch=256", "plan.seq=4096"),
        *("plan.sharding=zero1", "runtime.overlap_grad_reduce=true", "runtime.overlap_param_gather=true"),
        "cluster.node.host_speed=50",
    ],
)


@pytest.fixture(autouse=True)
def _each_suspect_predicted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests ask for the same suspects of two jobs, again and again."""
    monkeypatch.setattr(suspects, "predict", PREDICTED)


def _run(seconds: list[float] | np.ndarray, facts: dict[str, int] | None = None, **columns: object) -> Run:
    return Run(Steps.of(-1, range(1, len(seconds) + 1), seconds=seconds, **columns), (), facts or {})


def _compare(job: Job, times: float, **columns: object) -> RunComparison:
    step = predict(job).step_time_s
    return compare_run(_run([times * step] * 20, **columns), job)


@pytest.mark.parametrize(
    ("job", "change", "words"),
    [
        (DENSE, "plan.recompute=full", "whole layers are recomputed"),
        (DENSE, "cluster.node.scale_up.bandwidth=64GB/s per GPU each way", "over PCIe"),
        (DENSE, "unequal.slow=[{nodes=[3],factor=1.15}]", "one node computes"),
        (MIXTURE, "runtime.moe_imbalance=1.4", "the busiest rank of experts has"),
        (MIXTURE, "cluster.node.nic.count=4", "half of the NICs"),
        (MIXTURE, "runtime.overlap_param_gather=false", "parameters are gathered before"),
    ],
)
def test_what_slows_a_run_is_among_its_suspects(job: Job, change: str, words: str) -> None:
    """The measured step is that of the job with the suspect in it."""
    measured = predict(_with(job, change)).step_time_s
    expected = predict(job).step_time_s
    causes = suspected_causes(job, measured, expected)
    (found,) = [cause for cause in causes if words in cause.words]
    assert found.share == pytest.approx(1.0, abs=0.3)
    assert causes.index(found) < 8


def _with(job: Job, change: str) -> Job:
    import tomllib

    from windtunnel.spec import dump_job

    return load_job(tomllib.loads(dump_job(job)), [change])


@pytest.mark.parametrize("job", [DENSE, MIXTURE], ids=["dense", "mixture"])
def test_every_suspect_is_what_the_prediction_says_with_it(job: Job) -> None:
    expected = predict(job).step_time_s
    causes = suspected_causes(job, 1.2 * expected, expected)
    assert len(causes) >= 5
    for cause in causes:
        again = predict(_with_all(job, cause.sets)).step_time_s
        assert again - expected == pytest.approx(cause.seconds, rel=1e-9)
        assert cause.test and "{" not in cause.words


def _with_all(job: Job, changes: tuple[str, ...]) -> Job:
    for change in changes:
        job = _with(job, change)
    return job


def test_a_faster_run_has_no_suspects() -> None:
    assert _compare(DENSE, 0.9).suspects == ()


def test_regular_peaks_are_told_from_irregular_ones() -> None:
    seconds = np.full(120, 8.0)
    seconds[19::20] = 17.0
    peaks = log_facts(_run(seconds), predict(DENSE)).peaks
    assert peaks is not None and (peaks.count, peaks.every, peaks.seconds) == (6, 20, 9.0)
    assert peaks.share == pytest.approx(54.0 / seconds[2:].sum())
    seconds = np.full(120, 8.0)
    seconds[[7, 30, 31, 80, 111]] = 12.0
    peaks = log_facts(_run(seconds), predict(DENSE)).peaks
    assert peaks is not None and (peaks.count, peaks.every) == (5, 0)
    assert log_facts(_run(np.full(120, 8.0)), predict(DENSE)).peaks is None
    assert log_facts(_run(np.tile([8.0, 12.0], 20)), predict(DENSE)).peaks is None  # every second step is no peak


def test_warm_up_is_no_peak_and_drift_is_seen() -> None:
    seconds = np.concatenate([[60.0, 20.0], np.linspace(8.0, 9.0, 80)])
    facts = log_facts(_run(seconds), predict(DENSE))
    assert facts.peaks is None and facts.drift == pytest.approx(1.1, abs=0.03)


def test_a_log_that_contradicts_its_job_is_said() -> None:
    facts = log_facts(_run([8.0] * 20, {"world_size": 32, "tensor_model_parallel_size": DENSE.plan.tp}), predict(DENSE))
    assert facts.contradictions == (("world_size", "32", "64"),)


def test_logged_figures_stand_beside_expected_ones() -> None:
    prediction = predict(DENSE)
    flops = prediction.model_tflops_per_gpu * prediction.step_time_s
    run = _run([8.0] * 20, tflops=[flops / 8.0] * 20, memory=[60e9] * 20, tokens=[2**19] * 20)
    facts = log_facts(run, prediction)
    assert facts.flops == pytest.approx(1.0)
    assert (facts.memory, facts.tokens) == (60e9, 2**19)
    assert facts.expected_memory == max(stage.allocated for stage in prediction.memory)


LINE = (
    " iteration {step:8d}/ 500000 | consumed samples: {samples} | elapsed time per iteration (ms): {ms:.1f} | "
    "throughput per GPU (TFLOP/s/GPU): {tflops:.1f} | global batch size:   128 | lm loss: 2.1E+00 |\n"
)


@pytest.mark.parametrize(("times", "said"), [(1.02, "is inside, and may be the prediction's"), (1.5, "times that")])
def test_the_terminal_says_what_a_log_can(times: float, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    step = predict(DENSE).step_time_s
    path = tmp_path / "run.log"
    lines = [LINE.format(step=n, samples=128 * n, ms=1e3 * step * (times + (n % 20 == 0)), tflops=100.0) for n in range(1, 101)]
    path.write_text("  world_size ..................... 64\n" + "".join(lines), encoding="utf-8")
    assert main(["compare", str(path), "llama2-70b-64xh100", "--set", FEW_STAGES]) == 0
    text = " ".join(capfd.readouterr().out.split())
    for words in (said, "Every 20 steps a step takes", "By its own TFLOP/s", "Suspects", "To test it:", "record traces"):
        assert words in text, words


@pytest.mark.parametrize("framework", names("frameworks"))
def test_every_framework_can_record_traces(framework: str) -> None:
    assert "profil" in recording_hint(framework)
