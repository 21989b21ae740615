"""What validations say of published steps, and how a report quotes it."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
from report_fixture import make_prediction

from windtunnel.reality.page.record import record, steps
from windtunnel.reality.rows import measurements
from windtunnel.reality.rows.table import read
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import Score
from windtunnel.reality.validate import score_training
from windtunnel.report.words.published import FEWEST, PublishedSteps, pool_steps, record_sentence
from windtunnel.spec import load_job
from windtunnel.spec.loading.catalog import ROOT

ONE = Score("a", "F", "step_time_s", measured=2.0, predicted=1.8, claimed_pct=9.0, gpu="G", software="s")
SCORES = (
    ONE,  # -10 %, outside
    replace(ONE, id="b", predicted=2.1),  # +5 %, inside
    replace(ONE, id="c", predicted=2.0, fitted=True),
    replace(ONE, id="d", software="t"),
    replace(ONE, id="e", quantity="memory_gib"),
    replace(ONE, id="f", source_seen=False),
    replace(ONE, id="g", skipped="no plan"),
)


def test_steps_are_grouped_by_gpu_framework_and_fit() -> None:
    assert steps(Report(SCORES)) == (
        PublishedSteps("G", "s", False, 2, pytest.approx(7.5), pytest.approx(-2.5), 50.0),
        PublishedSteps("G", "s", True, 1, 0.0, 0.0, 100.0),
        PublishedSteps("G", "t", False, 1, pytest.approx(10.0), pytest.approx(-10.0), 0.0),
    )


def test_the_file_reads_back() -> None:
    read_back = [PublishedSteps(**entry) for entry in tomllib.loads(record(Report(SCORES)))["steps"]]
    assert read_back == [
        PublishedSteps("G", "s", False, 2, 7.5, -2.5, 50),
        PublishedSteps("G", "s", True, 1, 0.0, 0.0, 100),
        PublishedSteps("G", "t", False, 1, 10.0, -10.0, 0),
    ]


def test_pooled_rows_weigh_alike_and_those_of_no_fit_come_first() -> None:
    few = PublishedSteps("G", "s", False, FEWEST - 1, 4.0, 4.0, 100.0)
    more = PublishedSteps("G", "t", False, 2 * (FEWEST - 1), 1.0, -2.0, 40.0)
    fitted = PublishedSteps("G", "s", True, 50, 3.0, 0.0, 70.0)
    assert pool_steps([few]) is None
    assert pool_steps([few, fitted]) == fitted
    assert pool_steps([few, more, fitted]) == PublishedSteps("G", "s", False, 3 * (FEWEST - 1), 2.0, 0.0, pytest.approx(60.0))


def test_a_report_quotes_what_is_nearest() -> None:
    def said(gpu: str, framework: str) -> str:
        job = load_job("llama3-8b-8xh100")
        node = job.cluster.node.model_copy(update={"gpu": job.cluster.gpu.model_copy(update={"name": gpu})})
        cluster = job.cluster.model_copy(update={"node": node})
        runtime = job.runtime.model_copy(update={"framework": framework})
        return record_sentence(make_prediction(job=job.model_copy(update={"cluster": cluster, "runtime": runtime})))

    assert " published steps of NVIDIA A100 SXM4 40 GB with fsdp (test only): mean error" in said("NVIDIA A100 SXM4 40 GB", "fsdp")
    assert " published steps of other GPUs with torchtitan (test only): " in said("another", "torchtitan")
    assert " published steps of NVIDIA A100 SXM4 40 GB with other frameworks (" in said("NVIDIA A100 SXM4 40 GB", "another")
    assert said("one", "another") == "No published step time of one or with another was compared."


def test_the_catalogues_record_is_what_validation_finds() -> None:
    listed = [PublishedSteps(**entry) for entry in tomllib.loads((ROOT / "accuracy.toml").read_text(encoding="utf-8"))["steps"]]
    rows = read(measurements.FOLDER / "training.csv").training
    scores = [score for row in rows if row.family == "H100-torchtitan" for score in score_training(row)]
    (found,) = steps(Report(tuple(scores)))
    (said,) = (each for each in listed if (each.gpu, each.framework) == (found.gpu, found.framework))
    assert (said.rows, said.fitted) == (found.rows, False)
    assert said.mean_pct == pytest.approx(found.mean_pct, abs=0.051)
    assert said.bias_pct == pytest.approx(found.bias_pct, abs=0.051)
