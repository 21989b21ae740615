"""What validations say of published steps, how predictions state their error from it, and how a report quotes it."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest
from report_fixture import make_prediction

from windtunnel.api.prediction_sheet import head_figures
from windtunnel.predict import predict
from windtunnel.predict.prediction import KernelRow, Prediction
from windtunnel.predict.published import FEWEST, PublishedSteps, RunKind, by_kind, kind_of_run, like, stated_error, widening
from windtunnel.predict.sheet.evidence import bias_sentence, evidence_sentence, record_sentence, stated_sentence
from windtunnel.reality.jobs.job import Draft, draft
from windtunnel.reality.page.record import record
from windtunnel.reality.rows import measurements
from windtunnel.reality.rows.table import read
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import Score
from windtunnel.reality.score.stated import published_steps, stated_errors
from windtunnel.reality.validate import score_training
from windtunnel.spec import Job, load_job, load_model
from windtunnel.spec.loading.files import ROOT
from windtunnel.spec.mixer import MIXERS

G = RunKind("G", "s", "dense", "bf16")
ONE = Score("a", "F", "step_time_s", measured=2.0, predicted=1.8, claimed_pct=9.0, kind=G, implied_pct=5.0)
SCORES = (
    ONE,  # -10 %
    replace(ONE, id="b", predicted=2.1),  # +5 %
    replace(ONE, id="c", predicted=2.0, fitted=True),
    replace(ONE, id="d", kind=replace(G, framework="t")),
    replace(ONE, id="e", quantity="memory_gib"),
    replace(ONE, id="g", skipped="no plan"),
    replace(ONE, id="h", kind=replace(G, trained="experts")),
)
LINE = PublishedSteps("G", "s", "dense", "bf16", 8, 2, 7.0, -6.0, 4.0, (3.0, 9.0), 0.5)


def test_steps_are_grouped_by_kind_and_by_wider_kinds_of_three_rows() -> None:
    lines = by_kind(published_steps(SCORES))
    exact = lines[G]
    assert (exact.rows, exact.fitted, exact.mean_pct, exact.bias_pct) == (3, 1, pytest.approx(5.0), pytest.approx(-5.0 / 3))
    assert exact.longer_pct == (pytest.approx(-50 / 21), pytest.approx(50 / 9))  # quartiles of -4.76, 0, 11.1
    assert exact.widen == pytest.approx(1.0)  # two of three within 5 %
    assert lines[RunKind("", "", "dense", "bf16")].rows == 4
    assert RunKind("G", "t", "dense", "bf16") not in lines and not any(kind.trained == "experts" for kind in lines)
    assert FEWEST == 3


def test_the_file_reads_back() -> None:
    entries = tomllib.loads(record(Report(SCORES)))["steps"]
    read_back = by_kind(PublishedSteps(**entry | {"longer_pct": tuple(entry["longer_pct"])}) for entry in entries)
    exact = by_kind(published_steps(SCORES))
    assert read_back.keys() == exact.keys()
    assert all(read_back[kind].widen >= exact[kind].widen for kind in exact)  # rounded up, so that no row falls out


@pytest.mark.parametrize(
    ("errors", "factor"), [((1, 2, 30), 2), ((1, 2, 3, 40), 3), ((4,), 4), (tuple(range(1, 11)), 8), (tuple(range(1, 101)), 71)]
)
def test_seventy_percent_of_rows_lie_inside_a_widened_error_a_little_more_of_few(errors: tuple[int, ...], factor: int) -> None:
    assert widening([(float(error), 1.0) for error in errors]) == factor


def test_rows_of_one_server_count_once() -> None:
    """A hundred rows of four servers: the rank that holds the next server with the chance INSIDE is 70 x 5 / 4 = 88, AT_MOST 80."""
    errors = [(float(error), 1.0) for error in range(1, 101)]
    assert [widening(errors, servers) for servers in (4, 10, 100)] == [80, 77, 71]


def test_other_runs_widen_an_error_and_never_narrow_it() -> None:
    wide = by_kind([LINE, replace(LINE, gpu="", framework="t", widen=3.0), replace(LINE, gpu="", framework="u", widen=0.2)])
    assert stated_error(G, 0.1, wide) == pytest.approx(0.05)
    assert stated_error(replace(G, framework="t"), 0.1, wide) == pytest.approx(0.3)
    assert stated_error(replace(G, framework="u"), 0.1, wide) == 0.1
    assert like(replace(G, trained="experts"), wide) is None
    assert stated_error(replace(G, trained="experts"), 0.1, wide) == 0.1


def test_held_out_errors_are_stated_by_other_families() -> None:
    near = [replace(ONE, id=f"n{i}", family="near", predicted=2.0 + 0.01 * i) for i in range(10)]
    far = [replace(ONE, id=f"f{i}", family="far", predicted=1.0 + 0.01 * i) for i in range(10)]
    (line,) = stated_errors(near + far)
    assert (line.rows, line.inside_pct) == (20, 75.0)
    assert line.held_out_pct == 50.0  # all of the near ones lie inside what the far ones state, and none the other way round
    assert line.said


def test_a_bias_is_told_from_chance() -> None:
    assert LINE.leans
    assert not replace(LINE, bias_pct=-4.0, spread_pct=0.0).leans
    assert not replace(LINE, bias_pct=-6.0, spread_pct=12.0).leans  # twice 12 / sqrt(8) is 8.5


def _job(**changes: Any) -> Job:
    job = load_job("llama3-8b-8xh100")
    node = job.cluster.node.model_copy(update={"gpu": job.cluster.gpu.model_copy(update={"name": changes.get("gpu", "one")})})
    cluster = job.cluster.model_copy(update={"node": node})
    runtime = job.runtime.model_copy(update={"framework": changes.get("framework", "another")})
    return job.model_copy(update={"cluster": cluster, "runtime": runtime})


def _of(published: PublishedSteps | None, **changes: Any) -> Prediction:
    return make_prediction(job=_job(**changes), published=published, step_time_s=10.0)


def test_a_report_quotes_what_is_nearest() -> None:
    exact = _of(LINE, gpu="G", framework="s")
    assert record_sentence(exact).startswith("8 published steps of dense models in bf16 with s on G, 2 of them in the fit")
    assert "about 70 % of runs like it" in stated_sentence(exact)
    elsewhere = replace(LINE, gpu="", fitted=0)
    assert "with s, none like it on one, none in a fit" in record_sentence(_of(elsewhere, framework="s"))
    assert stated_sentence(_of(elsewhere, framework="s")).endswith("as its parts imply.")
    assert "the runs nearest to it" in stated_sentence(_of(replace(elsewhere, widen=1.5), framework="s"))
    assert "in bf16 on G, other frameworks" in record_sentence(_of(replace(LINE, framework=""), gpu="G"))
    assert record_sentence(_of(None)) == "No published step of dense models was compared."


def test_the_bias_stands_beside_the_step_time() -> None:
    said = bias_sentence(_of(LINE, gpu="G", framework="s"))
    assert said == (
        "Published steps of dense models in bf16 with s on G took 3 to 9 % longer (middle half of 8) than predicted. "
        "So expect about 10.6 s."
    )
    assert ("in practice", "about 10.6 s", "warn") in [(one.label, one.words(), one.mood) for one in head_figures(_of(LINE))]
    assert "6 % longer on average" in str(bias_sentence(_of(replace(LINE, longer_pct=(-1.0, 9.0)))))
    assert "3 to 9 % shorter" in str(bias_sentence(_of(replace(LINE, bias_pct=6.0, longer_pct=(-9.0, -3.0)))))
    assert bias_sentence(_of(replace(LINE, bias_pct=1.0))) is None
    assert "in practice" not in [one.label for one in head_figures(_of(None))]


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_mixtures_do_not_quote_the_record_of_dense_models(precision: str) -> None:
    """MLPerf's dense rows stood for mixtures. What is said of longer runs, and of ±, is what their own rows say."""
    sets = [
        "cluster.gpus=256",
        "plan.seq=4096",
        "plan.tp=4",
        "plan.sequence_parallel=true",
        "plan.pp=1",
        "plan.ep=8",
        "plan.global_batch=512",
        "runtime.framework=nemo",
    ]
    answer = predict(load_job({"model": "qwen3-235b-a22b", "cluster": "h100-ib"}, [*sets, f"runtime.precision={precision}"]))
    assert answer.published is not None and answer.published.trained == "experts"
    assert answer.published.leans == ("longer" in str(bias_sentence(answer)))
    assert answer.relative_error >= answer.published.mean_pct / 100.0


def _kernel(provenance: str, seconds: float) -> KernelRow:
    return KernelRow("a", "m", "gemm", "forward", "", 1, seconds, seconds, 0.1, provenance, 0.1)


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        ({"transferred": 1.0}, "No kernel of {gpu} was measured: 100 % of its computation is carried over from other GPUs."),
        (
            {"transferred": 3.0, "assumed": 1.0},
            "No kernel of {gpu} was measured: 75 % of its computation is carried over from other GPUs and "
            "25 % of its computation is assumed.",
        ),
        ({"modelled": 1.0}, "No kernel of this job was measured: curves that were fitted to kernels of {gpu} answer."),
        (
            {"modelled": 3.0, "assumed": 1.0},
            "No kernel of this job was measured: curves that were fitted to kernels of {gpu} answer for 75 % of its computation; "
            "25 % of its computation is assumed.",
        ),
    ],
)
def test_what_kernels_rest_on_is_not_told_by_calls(kernels: dict[str, float], said: str) -> None:
    """Nine tenths of this step are calls, which count as modelled; no kernel of the GPU was fitted for that."""
    rows = tuple(_kernel(name, seconds) for name, seconds in kernels.items())
    prediction = make_prediction(kernels=rows, provenance={"modelled": 0.9, "transferred": 0.1})
    assert evidence_sentence(prediction).startswith(said.format(gpu=prediction.job.cluster.gpu.name))


@pytest.mark.parametrize("gpu", ["l40s", "mi250x", "gaudi2"])
def test_no_gpu_without_fitted_kernels_is_said_to_have_them(gpu: str) -> None:
    job = load_job("llama3-8b-8xh100", [f"cluster.node.gpu={gpu}", "plan.tp=8", "plan.micro_batch=1"])
    assert "was measured: " in evidence_sentence(predict(job)) and "fitted to kernels" not in evidence_sentence(predict(job))


def test_the_catalogues_record_is_what_validation_finds() -> None:
    entries = tomllib.loads((ROOT / "accuracy.toml").read_text(encoding="utf-8"))["steps"]
    listed = by_kind(PublishedSteps(**entry | {"longer_pct": tuple(entry["longer_pct"])}) for entry in entries)
    rows = read(measurements.FOLDER / "training.csv").training
    scores = [score for row in rows if row.family == "H100-torchtitan" for score in score_training(row)]
    for found in published_steps(scores):
        if found.gpu and found.framework:
            said = listed[RunKind(found.gpu, found.framework, found.trained, found.precision)]
            assert (said.rows, said.fitted) == (found.rows, 0)
            assert said.mean_pct == pytest.approx(found.mean_pct, abs=0.051)
            assert said.widen == pytest.approx(found.widen, abs=1.1e-4)


def test_kinds_of_jobs() -> None:
    assert kind_of_run(load_job("llama3-8b-8xh100")).trained == "dense"
    assert kind_of_run(load_job("llama3-8b-8xh100", ["model.lora.rank=16"])).trained == "adapters"


def test_sorts_of_layers_of_published_steps() -> None:
    """Mixers that are said to have published steps are those of the catalogue's rows; other layers narrow no error."""
    rows = {row.model: row for row in read(measurements.FOLDER / "training.csv").training}
    jobs = [drafted.jobs[0] for row in rows.values() if isinstance(drafted := draft(row), Draft)]
    assert {kind.mixer for job in jobs for kind in job.model.kinds} == {name for name, mixer in MIXERS.items() if mixer.published}
    assert stated_error(replace(G, known_layers=False), 0.1, by_kind([LINE])) == 0.1
    hybrid = load_job("llama3-8b-8xh100").model_copy(update={"model": load_model("qwen3-next-80b-a3b")})
    assert not kind_of_run(hybrid).known_layers
