"""Does a fit find what it should, leave what does not matter, and write only its own numbers?"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from windtunnel.base.errors import FileError
from windtunnel.calibrate.search import GRIDS, search
from windtunnel.compute import training
from windtunnel.compute.training import TrainingFactor, training_factor
from windtunnel.predict import predict
from windtunnel.reality import fit, measurements
from windtunnel.reality.bars import BARS, NO_BAR, Bar, measure, of_scores
from windtunnel.reality.markdown import markdown
from windtunnel.reality.report import Report
from windtunnel.reality.rows import TrainingRow, read
from windtunnel.reality.scores import Score
from windtunnel.spec.catalog import ROOT

ROWS: dict[str, TrainingRow] = {row.id: row for path in measurements.tables() for row in read(path).training}


def test_search_finds_a_valley_and_leaves_what_does_not_matter() -> None:
    found = search({"matmul": 1.0, "memory": 1.1}, lambda v: 100.0 * abs(v["matmul"] - 1.2))
    assert found["matmul"] == pytest.approx(1.2) and found["memory"] == 1.1


def test_search_does_not_move_for_less_than_its_gain() -> None:
    start = {"throttle": 0.5}
    assert search(start, lambda v: 0.09 * abs(v["throttle"] - 1.0)) == start
    assert search(start, lambda v: 3.0 * abs(v["throttle"] - 1.0))["throttle"] == 1.0


def test_search_follows_a_valley_across_fields() -> None:
    def error(values: dict[str, float]) -> float:
        return 50.0 * abs(values["matmul"] - 1.1) + 20.0 * abs(values["matmul"] + values["attention"] - 2.5)

    found = search({"matmul": 1.0, "attention": 1.0}, error)
    assert found["matmul"] == pytest.approx(1.1) and found["attention"] == pytest.approx(1.4)


def test_every_constant_has_a_grid_of_few_digits() -> None:
    assert set(GRIDS) == {*fit.HOST_FIELDS, *fit.FACTOR_FIELDS}
    assert all(list(grid) == sorted(set(grid)) and len(grid) < 60 for grid in GRIDS.values())


def test_factors_of_a_trial_change_its_predictions_alone() -> None:
    job = fit.samples_of([ROWS["T0054"]], fit.Recipe(("A100-Megatron-Selene",)))[0][1]
    plain = predict(job).step_time_s
    assert fit.factor_seconds(job, {"ampere": TrainingFactor(matmul=2.0)}) > 1.3 * plain
    assert fit.factor_seconds(job, training.factors()) == predict(job).step_time_s == plain


def test_host_costs_change_a_launch_bound_step() -> None:
    """V0683: 1024 wide, 8 GPUs, micro batch 1: nothing but launches."""
    job = fit.samples_of([ROWS["V0683"]], fit.HOST)[0][1]
    slow = fit.host_seconds(job, {"launch": 10 * job.runtime.host.launch})
    assert slow > 2.0 * fit.host_seconds(job, {})
    assert fit.host_seconds(job, {}) == predict(job).step_time_s


def test_samples_are_spread_and_limited() -> None:
    taken = fit.samples_of(list(ROWS.values()), fit.Recipe(("A100-vTrain-node",), rows=5))
    assert len(taken) == 5 and len({job.name for _, job, _ in taken}) == 5
    with pytest.raises(FileError, match="MosaicML"):
        fit.samples_of([ROWS["T0054"]], fit.Recipe(("A100-Megatron-Selene", "MosaicML-H100")))
    assert not fit.FACTORS["ampere"].takes(ROWS["T0021"])  # fully sharded


def test_recipes_are_the_families_that_the_catalogue_says_were_fitted() -> None:
    fitted = {name for name, quantity in measurements.fitted_families() if quantity == "step_time_s"}
    assert fitted == {*fit.HOST.families, *(name for recipe in fit.FACTORS.values() for name in recipe.families), *fit.BY_HAND}
    for architecture, recipe in fit.FACTORS.items():
        assert training.factors()[architecture].fitted_on == recipe.families


def test_written_factors_are_read_back(tmp_path: Path) -> None:
    text = training.FILE.read_text(encoding="utf-8")
    table = {"ampere": TrainingFactor(0.5, 1.25, 1.0, 1.1, ("A", "B")), "hopper": training_factor("hopper")}
    data = tomllib.loads(fit.written_factors(text, table))
    assert data["ampere"] == {"throttle": 0.5, "matmul": 1.25, "attention": 1.0, "memory": 1.1, "fitted_on": ["A", "B"]}
    assert tomllib.loads(fit.written_factors(text, training.factors())) == tomllib.loads(text)


def test_written_host_changes_only_its_section() -> None:
    text = (ROOT / "frameworks" / f"{fit.HOST_FRAMEWORK}.toml").read_text(encoding="utf-8")
    new = fit.written_host(text, {"launch": 7e-6, "step": 4e-3})
    before, after = tomllib.loads(text), tomllib.loads(new)
    assert (after["host"].pop("launch"), after["host"].pop("step")) == ("7us", "4ms")
    assert before["host"].pop("launch") and before["host"].pop("step") and before == after
    with pytest.raises(FileError):
        fit.written_host("version = 1\n", {"launch": 7e-6})


def score(row: str, predicted: float, quantity: str = "step_time_s") -> Score:
    return Score(row, "F", quantity, 100.0, predicted)


def test_a_bar_holds_or_does_not() -> None:
    rows = [ROWS["T0054"], ROWS["T0055"]]
    bars = (
        Bar("both", "step_time_s", lambda row: True, mean=5.0),
        Bar("median", "step_time_s", lambda row: True, median=1.0),
        Bar("none", "step_time_s", lambda row: row.id == "nowhere"),
        Bar("free", "step_time_s", lambda row: True),
    )
    lines = measure(rows, lambda row: [score(row.id, 108.0 if row.id == "T0054" else 101.0)], bars)
    assert [(line.bar.name, line.holds) for line in lines] == [("both", True), ("median", False), ("free", True)]
    assert lines[0].found.mape_pct == pytest.approx(4.5) and lines[0].wanted == "mean ≤ 5 %" and lines[2].wanted == NO_BAR


def test_a_bar_on_the_share_counts_skipped_rows() -> None:
    rows = [ROWS["T0054"], ROWS["T0055"]]
    skips = lambda row: [Score(row.id, "F", "step_time_s", 1.0, skipped="why") if row.id == "T0055" else score(row.id, 100.0)]  # noqa: E731
    assert not measure(rows, skips, (Bar("share", "step_time_s", lambda row: True, median=10.0, share=0.9),))[0].holds


def test_each_row_is_scored_once_for_all_bars() -> None:
    asked: list[str] = []

    def once(row: TrainingRow) -> list[Score]:
        asked.append(row.id)
        return [score(row.id, 100.0)]

    assert len(measure([ROWS["T0054"], ROWS["T0001"]], once)) >= 3
    assert sorted(asked) == ["T0001", "T0054"]


def test_every_bar_has_rows_and_the_page_shows_them_first() -> None:
    rows = list(ROWS.values())
    assert all(any(bar.pick(row) for row in rows) for bar in BARS)
    lines = tuple(of_scores([ROWS["T0054"]], [score("T0054", 120.0)]))
    page = markdown(Report((score("T0054", 120.0),), bars=lines))
    assert page.index("## Bars") < page.index("## In short")
    assert "mean ≤ 3.5 % | **no** |" in page
