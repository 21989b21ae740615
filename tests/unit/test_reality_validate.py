"""Is the judge fair: right arithmetic, nothing scored twice, nothing dropped without a word?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from row_columns import TRAINING

from windtunnel.base.errors import EngineError, FileError, SpecError
from windtunnel.jobs.load import load_described_job
from windtunnel.predict import predict
from windtunnel.predict.prediction import Prediction, StageMemory
from windtunnel.reality.jobs.blanks import choose, memory_alone
from windtunnel.reality.jobs.job import Draft, draft
from windtunnel.reality.page.markdown import markdown
from windtunnel.reality.rows import measurements
from windtunnel.reality.rows.conventions import mfu_pct
from windtunnel.reality.rows.table import TrainingRow, read
from windtunnel.reality.score.power_caps import read_caps
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import Score, summary
from windtunnel.reality.validate import score_training, validate
from windtunnel.spec import Job

GIB = 2.0**30
ROWS: dict[str, TrainingRow] = {row.id: row for row in read(measurements.FOLDER / "training.csv").training}


def stage(number: int, gib: float, fits: bool = True) -> StageMemory:
    return StageMemory(number, *[0.0] * 9, gib * GIB, (gib + 1) * GIB, (gib + 2) * GIB, 80 * GIB, fits)


def answer(job: Job, seconds: float = 2.0, gib: float = 40.0, fits: bool = True) -> Prediction:
    """A prediction of which only the fields that the judge reads mean anything."""
    stages = (stage(0, gib, fits), stage(1, gib - 5))
    return Prediction(job, "closed", seconds, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, {}, (), {}, stages, fits, {}, 0.1, (), (), ())


def test_errors_are_signed_percentages_of_the_measured_value() -> None:
    scores = [Score(str(n), "F", "step_time_s", 2.0, value) for n, value in enumerate((2.2, 1.0, 2.0))]
    scores.append(Score("s", "F", "step_time_s", 2.0, skipped="why"))
    line = summary("F", "step_time_s", scores)
    assert (line.n, line.skipped) == (3, 1)
    assert line.mape_pct == pytest.approx(20.0) and line.median_abs_pct == pytest.approx(10.0)
    assert line.bias_pct == pytest.approx(-40 / 3) and line.max_abs_pct == pytest.approx(50.0)


def test_nothing_scored_has_no_figures() -> None:
    line = summary("F", "time_us", [Score("1", "F", "time_us", skipped="why")])
    assert line.n == 0 and line.mape_pct is None and line.skipped == 1


def test_memory_is_the_fullest_stage_of_the_kind_that_the_row_measured() -> None:
    row = ROWS["T0102"]
    assert row.mem_kind == "reserved"
    scores = {score.quantity: score for score in score_training(row, answer)}
    assert scores["memory_gib"].predicted == pytest.approx(41.0)
    device = {score.quantity: score for score in score_training(replace(row, mem_kind="device"), answer)}
    assert device["memory_gib"].predicted == pytest.approx(42.0)
    blank = {score.quantity: score for score in score_training(replace(row, mem_kind=None), answer)}
    assert blank["memory_gib"].predicted == pytest.approx(41.0)  # what torchtitan's logs print
    assert any("what the framework's logs print" in text for text in blank["memory_gib"].assumptions)


def test_throughput_beside_a_step_time_is_not_scored_again() -> None:
    row = ROWS["T0054"]
    assert row.iter_time_s
    assert [score.quantity for score in score_training(replace(row, mfu_pct=50.0, tokens_s_gpu=1.0), answer)] == ["step_time_s"]


def test_mfu_alone_is_scored_by_its_sources_count() -> None:
    """MegaScale table 3, baseline, 256 GPUs, batch 256: MFU 47.7 % is a step of 14.85 s by 72 L h^2 (1 + s/6h + V/12Lh) a token."""
    row = ROWS["T0079"]
    score = score_training(row, lambda job: answer(job, 14.85))[0]
    assert score.quantity == "mfu_pct" and score.measured == 47.7
    assert score.predicted == pytest.approx(47.7, rel=0.02)
    assert score_training(replace(row, source="elsewhere"), answer)[0].skipped


@pytest.mark.parametrize(
    ("row_id", "tolerance"),
    [("T0063", 0.004), ("T0074", 0.004), ("T0067", 0.009), ("T0075", 0.005), ("T0076", 0.005), ("T0077", 0.005), ("T0078", 0.005)],
)
def test_the_count_gives_megascales_printed_mfu_from_its_printed_times(row_id: str, tolerance: float) -> None:
    """Table 2, with and without the sliding window."""
    row = ROWS[row_id]
    window = 1024 if "sliding_window" in (row.features or "") else None
    assert mfu_pct(row, row.iter_time_s or 0.0, 312e12, window) == pytest.approx(row.mfu_pct, rel=tolerance)


def test_features_switch_one_thing_at_a_time() -> None:
    """MegaScale's ablation begins with Megatron-LM of 2023 and adds up."""
    runtimes = [draft(ROWS[f"T00{n}"]).jobs[0].runtime for n in range(79, 88)]
    assert [r.framework for r in runtimes] == ["megatron-lm"] * 8 + ["megascale"] and runtimes[0] == runtimes[1] == runtimes[2]
    assert [r.overlap_tp for r in runtimes] == [False] * 3 + [True] * 6
    assert [r.overlap_p2p for r in runtimes] == [False] * 4 + [True] * 5
    assert [r.overlap_grad_reduce and r.overlap_param_gather for r in runtimes] == [False] * 5 + [True] * 4
    assert [r.attention_library for r in runtimes] == ["fa1"] * 6 + ["fa2"] * 3
    assert [r.optimizer for r in runtimes] == ["adam"] * 8 + ["lamb"]


def test_a_refusal_is_a_skip_and_a_bug_is_not() -> None:
    def refuses(job: Job) -> Prediction:
        raise EngineError("no progress")

    def broken(job: Job) -> Prediction:
        raise ZeroDivisionError

    assert score_training(ROWS["T0054"], refuses)[0].skipped == "no progress"
    with pytest.raises(ZeroDivisionError):
        score_training(ROWS["T0054"], broken)


def test_a_row_without_a_measurement_is_skipped() -> None:
    bare = replace(ROWS["T0054"], iter_time_s=None, mfu_pct=None, mem_gib=None)
    assert score_training(bare, answer)[0].skipped
    assert score_training(replace(bare, iter_time_s=0.0), answer)[0].skipped


def full(job: Job) -> tuple[float, bool]:
    """Memory by which nothing fits but full recompute, and that least with the smallest micro batch."""
    return 100.0 + job.plan.micro_batch - (job.plan.recompute == "full"), False


def blank_row() -> Draft:
    made = draft(ROWS["T0049"])
    assert isinstance(made, Draft) and set(made.blank) == {"recompute", "micro batch", "virtual stages"}
    return made


def test_blanks_take_the_least_recompute_that_fits_then_the_fastest() -> None:
    asked: list[Job] = []

    def predict(job: Job) -> Prediction:
        asked.append(job)
        return answer(job, 10.0 / job.plan.micro_batch + job.plan.vpp)

    def memory(job: Job) -> tuple[float, bool]:
        return 1.0, job.plan.recompute != "none" and job.plan.micro_batch <= 2

    row = blank_row()
    chosen = choose(row, predict, memory)
    assert isinstance(chosen, tuple)
    prediction, assumptions = chosen
    plan = prediction.job.plan
    assert (plan.recompute, plan.micro_batch, plan.vpp) == ("selective", 2, 1)
    assert "recompute selective, micro batch 2, virtual stages 1" in assumptions[-1]
    assert {job.plan.recompute for job in asked} == {"selective"} and len(asked) < len(row.jobs)


def test_virtual_stages_are_chosen_again_after_the_micro_batch() -> None:
    """With micro batch 2 alone two virtual stages are the fastest: the search has to come back to them."""

    def predict(job: Job) -> Prediction:
        plan = job.plan
        return answer(job, 5.0 + (plan.vpp == 1) if plan.micro_batch == 2 else 10.0 + plan.micro_batch + plan.vpp)

    row = draft(ROWS["T0010"])
    assert isinstance(row, Draft)
    chosen = choose(row, predict, lambda job: (1.0, True))
    assert isinstance(chosen, tuple)
    assert (chosen[0].job.plan.micro_batch, chosen[0].job.plan.vpp) == (2, 2)


def test_blanks_where_nothing_fits_take_the_smallest_and_say_so() -> None:
    chosen = choose(blank_row(), answer, full)
    assert isinstance(chosen, tuple)
    assert chosen[0].job.plan.recompute == "full" and chosen[0].job.plan.micro_batch == 1
    assert "none fits" in chosen[1][-1]


def test_memory_alone_is_what_the_prediction_says() -> None:
    """The choice of recompute must not differ from the `fits` that a reader is shown."""
    made = draft(ROWS["T0056"])
    assert isinstance(made, Draft)
    prediction = predict(made.jobs[0])
    needed, fits = memory_alone(made.jobs[0])
    assert fits is prediction.fits and needed == max(stage.total for stage in prediction.memory)


def test_the_choice_does_not_see_the_measurement() -> None:
    row = ROWS["T0010"]
    first = score_training(row, lambda job: answer(job, 100.0 + job.plan.vpp))[0]
    second = score_training(replace(row, iter_time_s=1.0), lambda job: answer(job, 100.0 + job.plan.vpp))[0]
    assert first.predicted == second.predicted and first.assumptions == second.assumptions


def table(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([",".join((*TRAINING, "verified", "complete")), *rows]) + "\n", encoding="utf-8")
    return path


GOOD = "X{n},{family},megatron,gpt,24,1024,16,4096,1024,64,8,a100-sxm-80gb,8,8,none,1,1,8,none,full,bf16,{time},{verified},y"


def test_report_of_a_file(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        GOOD.format(n=1, family="A", time=2.0, verified="source seen"),
        GOOD.format(n=2, family="A", time=1.0, verified="memory"),
        GOOD.format(n=3, family="B", time="fast", verified="source seen"),
    )
    seen: list[tuple[int, int, str]] = []
    report = validate([path], progress=lambda done, total, row: seen.append((done, total, row)), predict=answer)
    data = report.as_dict()
    assert data["sources"] == [path.name]
    assert [row["id"] for row in data["rows"]] == ["X1", "X2", "X3"]
    assert data["rows"][0]["error_pct"] == pytest.approx(0.0) and "skipped" not in data["rows"][0]
    assert "iter_time_s" in data["rows"][2]["skipped"] and "predicted" not in data["rows"][2]
    families = {(line["family"], line["quantity"]): line for line in data["families"]}
    assert families["A", "step_time_s"]["n"] == 2 and families["B", "step_time_s"]["skipped"] == 1
    recalled_apart = [(line["family"], line["n"]) for line in data["headline"]]
    assert recalled_apart == [("rows, test only", 1)]
    assert seen == [(1, 2, "X1"), (2, 2, "X2")]


def test_family_filter_and_wrong_names(tmp_path: Path) -> None:
    path = table(tmp_path, GOOD.format(n=1, family="A", time=2.0, verified=""), GOOD.format(n=2, family="B", time=2.0, verified=""))
    assert [score.id for score in validate([path], family="B", predict=answer).rows] == ["X2"]
    with pytest.raises(SpecError, match="--family: got 'C'; allowed: A, B"):
        validate([path], family="C", predict=answer)
    with pytest.raises(SpecError, match="--kernels: got 'my.json'; allowed: a table of kernels"):
        validate([path], predict=answer, kernels="my.json")
    with pytest.raises(FileError):
        validate([], predict=answer)
    (tmp_path / "other.csv").write_text("a,b\n", encoding="utf-8")
    with pytest.raises(SpecError, match="missing"):
        validate([tmp_path / "other.csv"], predict=answer)


def test_page_names_the_fitted_families_apart_and_lists_every_reason() -> None:
    report = Report(
        (
            Score("1", "New", "step_time_s", 1.0, 1.5, assumptions=("vocabulary assumed",)),
            Score("2", "Old", "step_time_s", 1.0, 1.01, fitted=True),
            Score("3", "New", "memory_gib", 10.0, skipped="no such kind"),
        )
    )
    page = markdown(report)
    test_only, fitted = page.index("### Test only"), page.index("### Fitted")
    assert test_only < page.index("| New | step time | 1 | 50.0 %") < fitted < page.index("| Old | step time | 1 | 1.0 %")
    assert "no such kind" in page and "vocabulary assumed" in page
    assert markdown(report) == page


def test_fitted_file_is_read_strictly(tmp_path: Path) -> None:
    for text in ("step_time_s = 3", "step_time_s = [1]", "", "x"):
        (tmp_path / "fitted.toml").write_text(text, encoding="utf-8")
        with pytest.raises(FileError):
            measurements.fitted_families(tmp_path / "fitted.toml")


def test_fitted_is_by_family_and_quantity() -> None:
    fitted = measurements.fitted_families()
    assert ("A100-JeanZay-BLOOM", "memory_gib") in fitted and ("A100-JeanZay-BLOOM", "step_time_s") in fitted  # SIMT
    assert ("H100-Meta", "mfu_pct") in measurements.families_in_view() - fitted
    scores = {score.quantity: score for score in score_training(ROWS["T0101"], answer, fitted)}
    assert scores["memory_gib"].fitted and not scores["step_time_s"].fitted


def test_every_fitted_family_has_rows_in_the_catalogue() -> None:
    known = {name for path in measurements.tables() for name in read(path).families}
    known |= {row.family for row in read_caps(measurements.POWER_CAPS.read_text(encoding="utf-8"))[0]}
    kernels = {name for name, _ in measurements.fitted_families() if "-kernels-" in name or ", " in name}
    assert {name for name, _ in measurements.fitted_families()} - kernels <= known


COMMANDS = """id,family,command,on,tokens_s_gpu,iter_time_s,verified
a,mine,python run_script.py -mr llama3_8b -g gb200 -c bf16 -ng 8,gb200-nvl72,20000,,source seen
b,mine,python run_script.py -mr llama3_8b -g gb200 -c bf16 -ng 8,gb200-nvl72,,2.5,memory
c,mine,python run_script.py -mr llama3_8b -g gb200 -c bf16 -ng 8,gb200-nvl72,,,source seen
d,mine,python run_script.py -mr llama3_8b -g gb200 -c int3 -ng 8,gb200-nvl72,20000,,source seen
e,mine,python run_script.py -mr llama3_8b -g gb200 -c bf16 -ng 8,,20000,,source seen
"""


def test_launch_lines_are_scored_as_a_user_predicts_them(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(COMMANDS, encoding="utf-8")
    (tmp_path / "launch.sh").write_text(COMMANDS.splitlines()[1].split(",")[2] + "\n", encoding="utf-8")
    predicted = predict(load_described_job(str(tmp_path / "launch.sh"), None, "gb200-nvl72").job)
    plan = predicted.job.plan
    scores = {score.id: score for score in validate([tmp_path / "mine.csv"]).rows}
    assert scores["a"].predicted == scores["b"].predicted == predicted.step_time_s
    assert scores["a"].measured == plan.global_batch * plan.seq / (20000 * 8) and scores["b"].measured == 2.5
    assert scores["a"].source_seen and not scores["b"].source_seen and scores["a"].claimed_pct == 100.0 * predicted.relative_error
    assert "tokens_s_gpu or iter_time_s" in str(scores["c"].skipped)
    assert "int3" in str(scores["d"].skipped) and str(tmp_path) not in str(scores["d"].skipped)
    assert scores["e"].skipped is not None  # no machine


def test_launch_lines_under_other_names_of_columns(tmp_path: Path) -> None:
    lines = [
        "command,on,tokens_per_second_per_gpu",
        *("llama3-8b-8xh100,,9000", "", "no command,h100-ib,abc", "llama3-8b-8xh100,,abc"),
    ]
    (tmp_path / "mine.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    first, second, third = validate([tmp_path / "mine.csv"]).rows
    assert first.family == "mine" and first.id == "line 2" and first.measured == pytest.approx(first.predicted, rel=0.5)
    assert second.id == "line 4" and "no command" in str(second.skipped) and "tokens_s_gpu" in str(third.skipped)
    (tmp_path / "long.csv").write_text(f"command,on,tokens_s_gpu\n{'x' * 200_000},h100-ib,1\n", encoding="utf-8")
    with pytest.raises(SpecError, match="a CSV table of launch lines"):
        validate([tmp_path / "long.csv"])
    (tmp_path / "less.csv").write_text("command,gpu\nx,y\n", encoding="utf-8")
    with pytest.raises(SpecError, match="by their launch lines: command, on"):
        validate([tmp_path / "less.csv"])
