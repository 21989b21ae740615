"""Published goodput of whole runs: what each row says of us, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import FileError, SpecError
from windtunnel.reality.page.markdown import markdown
from windtunnel.reality.score.goodput import FILE, GoodputRow, goodput_rows, goodput_scores, score
from windtunnel.reality.score.report import Report

SCORES = {one.id: one for one in goodput_scores()}


@pytest.mark.parametrize(
    ("ids", "verdict"),
    [
        (("GP01", "GP02", "GP03", "GP04", "GP06", "GP07", "GP08", "GP09"), "inside"),
        (("GP10", "GP11", "GP12"), "possible"),  # single runs whose restart and step times were not read
        (("GP05",), "outside"),  # measured and projected rates of the same paper differ by 3.6
    ],
)
def test_verdicts(ids: tuple[str, ...], verdict: str) -> None:
    assert {SCORES[one].verdict for one in ids} == {verdict}


def test_every_row_is_judged_here() -> None:
    assert set(SCORES) == {f"GP{number:02d}" for number in range(1, 13)}
    assert all(one.range[0] <= one.predicted <= one.range[1] for one in SCORES.values())


def test_projections_by_hand() -> None:
    """24 h / (2,048 nodes x 6.5e-3) and 24 h / (16,384 x 6.5e-3)."""
    assert SCORES["GP03"].predicted == pytest.approx(24.0 / (2048 * 6.5e-3))
    assert SCORES["GP04"].predicted == pytest.approx(24.0 / (16384 * 6.5e-3))


def test_a_published_figure_outside_the_range_would_be_called_outside() -> None:
    row = next(row for row in goodput_rows() if row.id == "GP09")
    assert score(row.model_copy(update={"published": (50.0, 60.0)})).verdict == "outside"
    assert score(row.model_copy(update={"published": (97.5, 98.0)})).verdict == "possible"


def test_the_page_lists_them() -> None:
    page = markdown(Report((), goodput=tuple(SCORES.values())))
    assert "## Whole runs with failures" in page and page.count("| GP") == len(SCORES)
    assert "Whole runs" not in markdown(Report(()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows = ", "readable TOML"),
        ("[[rows]]\nid = 'x'\n", "published runs"),
        (FILE.read_text() + "\ncolour = 1\n", "published runs"),
    ],
)
def test_bad_files_are_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "goodput.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=said):
        goodput_rows(path)


def test_a_row_without_a_size_says_what_is_missing() -> None:
    facts = {"crash": {"per_job_day": 1.0}}
    row = GoodputRow(id="X", run="x", quantity="ettr_pct", published=(90.0, 95.0), nodes=8, step=1.0, facts=facts, source="nowhere")
    with pytest.raises(SpecError, match="checkpoint.size"):
        score(row)
