"""Does a fit find what it should, leave what does not matter, and write only its own numbers?"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import FileError
from windtunnel.calibrate import training as fit
from windtunnel.calibrate.recipes import TrainingRecipe, fits
from windtunnel.calibrate.record import FitRecord, compare_errors
from windtunnel.calibrate.training import GRIDS, search
from windtunnel.compute import training
from windtunnel.compute.training import TrainingFactor, training_factor
from windtunnel.predict import predict
from windtunnel.reality.page.markdown import markdown
from windtunnel.reality.rows import measurements
from windtunnel.reality.rows.table import TrainingRow, read
from windtunnel.reality.score.bars import NO_BAR, Bar, bars, measure, of_scores
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import Score
from windtunnel.spec.loading.files import ROOT

ROWS: dict[str, TrainingRow] = {row.id: row for path in measurements.tables() for row in read(path).training}


def test_search_finds_a_valley_and_leaves_what_does_not_matter() -> None:
    found = search({"launch": 6e-6, "step": 8e-3}, lambda v: 1e7 * abs(v["launch"] - 12e-6))
    assert found["launch"] == pytest.approx(12e-6) and found["step"] == 8e-3


def test_search_does_not_move_for_less_than_its_gain() -> None:
    start = {"step": 5e-3}
    assert search(start, lambda v: 9.0 * abs(v["step"] - 10e-3)) == start
    assert search(start, lambda v: 300.0 * abs(v["step"] - 10e-3))["step"] == pytest.approx(10e-3)


def test_search_follows_a_valley_across_fields() -> None:
    def error(values: dict[str, float]) -> float:
        step, micro_batch = 1e3 * values["step"], 4e3 * values["micro_batch"]
        return 50.0 * abs(step - 4.0) + 20.0 * abs(step + micro_batch - 7.0)

    found = search({"step": 2e-3, "micro_batch": 0.0}, error)
    assert found["step"] == pytest.approx(4e-3) and found["micro_batch"] == pytest.approx(0.75e-3)


def test_every_host_cost_has_a_grid_of_few_digits() -> None:
    assert set(GRIDS) == set(fit.HOST_FIELDS)
    assert all(list(grid) == sorted(set(grid)) and len(grid) < 60 for grid in GRIDS.values())


def test_factors_are_found_again_where_they_made_the_times() -> None:
    """Two families of steps that are sums of products, bytes and throttling in other shares, timed with known factors."""
    draw = np.random.default_rng(0)
    shares = {f"job {n}": draw.dirichlet((4.0, 2.0, 1.0)) for n in range(24)}
    truth = {"throttle": 0.5, "matmul": 1.1, "memory": 1.2}

    def seconds(values: dict[str, float]):
        return lambda name: float(shares[name] @ (values["matmul"], values["memory"], values["throttle"]))

    samples = [("A" if n % 3 else "B", name, seconds(truth)(name), name) for n, name in enumerate(shares)]
    found = fit.solve_factors(samples, seconds)  # type: ignore[arg-type]
    assert found == pytest.approx(truth, abs=0.05)
    late = [(family, name, 3.0 * time, row) for family, name, time, row in samples]
    assert all(low <= fit.solve_factors(late, seconds)[name] <= high for name, (low, _, high) in fit.BOUNDS.items())  # type: ignore[arg-type]


def test_host_costs_change_a_launch_bound_step() -> None:
    """V0683: 1024 wide, 8 GPUs, micro batch 1: nothing but launches."""
    job = fit.samples_of([ROWS["V0683"]], fits().host)[0][1]
    slow = predict(fit.with_host(job, {"launch": 10 * job.runtime.host.launch})).step_time_s
    assert slow > 2.0 * predict(job).step_time_s
    assert predict(fit.with_host(job, {})).step_time_s == predict(job).step_time_s


def test_samples_are_spread_and_limited() -> None:
    taken = fit.samples_of(list(ROWS.values()), TrainingRecipe(families=("A100-vTrain-node",), rows=5))
    assert len(taken) == 5 and len({row for *_, row in taken}) == 5
    with pytest.raises(FileError, match="MosaicML"):
        fit.samples_of([ROWS["T0054"]], TrainingRecipe(families=("A100-Megatron-Selene", "MosaicML-H100")))
    assert not fits().training["ampere"].takes(ROWS["T0021"])  # fully sharded


def test_recipes_are_the_families_that_the_catalogue_says_were_fitted() -> None:
    fitted = {name for name, quantity in measurements.fitted_families() if quantity == "step_time_s"}
    recipes = (fits().host, *fits().training.values(), *fits().by_hand)
    assert fitted == {name for recipe in recipes for name in recipe.families}
    for architecture, recipe in fits().training.items():
        assert training.factors()[architecture].fitted_on == recipe.families
    timed = {name for name, quantity in measurements.fitted_families() if quantity == "time_us"}
    assert {name for stage in fits().collectives for name in stage.families} <= timed


def test_a_record_says_what_was_fitted_on_what(tmp_path: Path) -> None:
    families = compare_errors({"F": [10.0, -20.0]}, {"F": [5.0, -5.0]})
    record = FitRecord("x", "windtunnel fit host", {"launch": (6e-6, 7e-6)}, families, ("T1", "T2"))
    record.write(tmp_path / "records" / "x.json")
    data = json.loads((tmp_path / "records" / "x.json").read_text(encoding="utf-8"))
    assert data["constants"] == {"launch": {"before": 6e-6, "after": 7e-6}} and data["rows"] == ["T1", "T2"]
    assert data["families"][0]["mean_before"] == 15.0 and data["families"][0]["bias_after"] == 0.0
    assert any("15.00 ->  5.00" in line for line in record.lines())


def test_written_factors_are_read_back(tmp_path: Path) -> None:
    text = training.FILE.read_text(encoding="utf-8")
    table = {"ampere": TrainingFactor(0.5, 1.25, 1.0, 1.1, ("A", "B")), "hopper": training_factor("hopper")}
    data = tomllib.loads(fit.written_factors(text, table))
    assert data["ampere"] == {"throttle": 0.5, "matmul": 1.25, "attention": 1.0, "memory": 1.1, "fitted_on": ["A", "B"]}
    assert tomllib.loads(fit.written_factors(text, training.factors())) == tomllib.loads(text)


def test_written_host_changes_only_its_section() -> None:
    text = (ROOT / "frameworks" / f"{fits().host.framework}.toml").read_text(encoding="utf-8")
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
    wanted = (
        Bar("both", "step_time_s", lambda row: True, mean=5.0),
        Bar("median", "step_time_s", lambda row: True, median=1.0),
        Bar("none", "step_time_s", lambda row: row.id == "nowhere"),
        Bar("free", "step_time_s", lambda row: True),
    )
    lines = measure(rows, lambda row: [score(row.id, 108.0 if row.id == "T0054" else 101.0)], wanted)
    assert [(line.bar.name, line.holds) for line in lines] == [("both", True), ("median", False), ("free", True)]
    assert lines[0].found.mape_pct == pytest.approx(4.5) and lines[0].target_text == "mean ≤ 5 %" and lines[2].target_text == NO_BAR


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
    assert all(any(bar.pick(row) for row in rows) for bar in bars())
    meta = score("T0054", 120.0)
    lines = tuple(of_scores([ROWS["T0054"]], [meta]))
    page = markdown(Report((meta,), bars=lines))
    assert page.index("## Bars") < page.index("## In short")
    assert "median ≤ 8 %, ≥ 97 % predicted | **no** |" in page
