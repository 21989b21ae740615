"""Published rows, the support matrix and the charts of watched runs, as the page makes them of answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.base.errors import FileError
from windtunnel.service.page import published
from windtunnel.service.page.charts import accuracy_points, heat_map, incident_line, level_of, pace_line, support_matrix
from windtunnel.service.page.watched.places import check_runs, list_runs

NAMES = {"x": "m", "y": "p", "equal": "equal", "near": "near", "far": "far", "others": "others"}


def row(number: int, **more: object) -> published.PublishedRow:
    facts = {"id": f"R{number}", "family": "f", "quantity": "step_time_s", "measured": 2.0, "predicted": 2.2, "error": 10.0,
             "claimed": 8.0, "fitted": False, "job": "", "gpu": "h100", "model": "llama", "framework": "nemo",
             "precision": "bf16"} | more  # fmt: skip
    return published.PublishedRow(**facts)  # type: ignore[arg-type]


def test_rows_have_what_their_tables_state() -> None:
    report = {"rows": [
        {"id": "T0001", "family": "A", "quantity": "step_time_s", "measured": 1.0, "predicted": 1.1, "error_pct": 10.0, "job": "j"},
        {"id": "T0002", "family": "A", "quantity": "step_time_s", "measured": 1.0, "skipped": "no plan"},
    ]}  # fmt: skip
    (found,) = published.scored_rows(report, published.published_facts())
    assert (found.gpu, found.framework, found.precision, found.model) == ("a100-sxm-80gb", "megatron", "fp16", "gpt")


@pytest.mark.parametrize(
    ("name", "arch", "family"),
    [("llama3-70b", "llama", "llama"), ("GPT-1.7B", "gpt", "gpt"), ("qwen3-30b-a3b", "moe", "qwen (mixture)")],
)
def test_model_families_are_what_names_begin_with(name: str, arch: str, family: str) -> None:
    assert published.model_family({"model": name, "arch": arch}) == family


def test_a_row_opens_the_job_that_was_scored() -> None:
    scored = row(1, id="T0001", job="GPT-1.7B on 32 a100-sxm-80gb: tp 1 pp 1 vpp 1 dp 32 mbs 4 gbs 512 seq 2048 full")
    job = published.job_of_row(scored)
    assert job is not None and isinstance(job[0], dict)
    assert job[0]["plan"]["micro_batch"] == 4
    assert published.job_of_row(row(2, id="none")) is None


def test_a_launch_line_has_a_machine_and_opens_its_job() -> None:
    line = "llama3-8b on 8 gb300-nvl72: tp 1 pp 1 vpp 1 dp 8 mbs 1 gbs 128 seq 8192 none"
    scored = {"id": "C0001", "family": "f", "quantity": "step_time_s", "measured": 2.0, "predicted": 1.0, "error_pct": -50.0}
    report = {"rows": [scored | {"job": line}]}
    (found,) = published.scored_rows(report, published.published_facts())
    assert (found.model, found.gpu) == ("llama", "gb300-nvl72")
    job = published.job_of_row(found)
    assert job is not None and isinstance(job[0], dict) and job[0]["cluster"]["node"]["gpu"]["id"] == "gb300-nvl72"


def test_a_layers_row_opens_its_job_of_the_catalogue() -> None:
    scored = row(1, job="forward of a layer of megatron-22b-8 plan.recompute=none plan.tp=8")
    assert published.job_of_row(scored) == ("megatron-22b-8", {"plan.recompute": "none", "plan.tp": "8"})


def test_accuracy_counts_both_bands() -> None:
    found = published.accuracy_of([row(1, error=-5.0), row(2, error=15.0), row(3, error=40.0)])
    assert found is not None
    assert (found.count, found.typical, found.most) == (3, 15.0, 40.0)
    assert (round(found.near, 3), round(found.far, 3)) == (0.333, 0.667)
    assert published.accuracy_of([]) is None


def test_points_are_told_apart_by_colour_and_shape() -> None:
    rows = [row(number, gpu=f"g{number % 9}") for number in range(60)]
    options = accuracy_points(rows, "gpu", NAMES, lambda one: one.id)
    points = [one for one in options["series"] if one["type"] == "scatter"]
    assert len(points) == 7 and sum(len(one["data"]) for one in points) == 60
    assert len({one["symbol"] for one in points}) == 7 and len({one["itemStyle"]["color"] for one in points}) == 7
    lines = [one for one in options["series"] if one["type"] == "line"]
    for line in lines:
        (x0, y0), (x1, y1) = line["data"]
        assert y0 / x0 == pytest.approx(y1 / x1)
    assert {round(one["data"][0][1] / one["data"][0][0], 3) for one in lines} == {1.0, 1.1, 0.9, 1.2, 0.8}


def test_the_matrix_has_a_cell_for_each_combination_and_escapes_names() -> None:
    cells = published.support_cells([row(1), row(2, error=-30.0), row(3, gpu="<b>", framework="x")])
    assert [(cell.gpu, cell.accuracy.count) for cell in cells] == [("<b>", 1), ("h100", 2)]
    drawn = support_matrix(
        cells, lambda cell: "/ui/trust?a=1&b=2", {"gpu": "GPU", "precision": "p", "rows": "rows", "caption": "c"}
    )
    assert "<b>" not in drawn and "&lt;b&gt;" in drawn and "20.0 %" in drawn and "a=1&amp;b=2" in drawn
    assert [level_of(error) for error in (4.0, -6.0, 12.0, -40.0)] == [0, 1, 2, 3]


def test_the_heat_map_leaves_out_what_is_not_known() -> None:
    heat = {"lines": ["0 · a", "1 · a"], "layers": {"own work": [[0.0, None], [31.0, -2.0]]}, "per_line": 1}
    names = {"x": "step", "of": "rank", "shorter": "s", "longer": "l"}
    data = heat_map(heat, "own work", [0, 1], names)["series"][0]["data"]
    assert [one["value"] for one in data] == [[0, 0, 0.0], [0, 1, 30.0], [1, 1, -2.0]]
    assert data[1]["name"] == "rank 1 · a, step 0: +31.0 %"
    assert len(pace_line([0, 1, 2], [1.0, None, 2.0], {"x": "step", "y": "s"})["series"][0]["data"]) == 2
    shown = incident_line(7200.0, [{"number": 1, "what": "hang", "node": "n", "from_s": 3600.0, "down_s": 9.0}],
                          {"x": "h", "y": "s", "down": "down"})  # fmt: skip
    assert shown["series"][0]["data"][0]["value"] == [1.0, 9.0] and shown["xAxis"]["max"] == 2.0


def test_runs_are_those_below_the_named_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "incidents.jsonl").write_text(json.dumps({}))
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    named = check_runs([str(tmp_path), "http://10.0.0.5:8470"])
    assert [place.name for place in list_runs(named)][0] == "10.0.0.5:8470"
    assert {place.name for place in list_runs(named)[1:]} == {f"{tmp_path.name}/one", f"{tmp_path.name}/two"}
    assert list_runs(check_runs([str(tmp_path / "one")]))[0].name == "one"
    with pytest.raises(FileError, match="--runs"):
        check_runs([str(tmp_path / "missing")])
