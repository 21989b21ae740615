"""Facts of a source in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.cli import main
from windtunnel.cli.imports import format_fact

LINE = (
    " iteration {step:8d}/  500000 | consumed samples: {samples:12d} | elapsed time per iteration (ms): 1234.5 |"
    " learning rate: 1.0E-04 | global batch size:   256 | lm loss: 9.0E+00 | number of skipped iterations:   0 |"
)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("first", [1, 500_000], "step 1 of 500,000"),
        ("last", [12_000, 500_000], "step 12,000 of 500,000"),
        ("first", (7, None), "step 7"),
        ("gbs", [64, 128], "64, 128"),
        ("lines", 12_345, "12,345"),
    ],
)
def test_facts_of_a_log(key: str, value: object, text: str) -> None:
    assert format_fact(key, {"iteration_lines": 3, key: value}) == text


def test_first_and_last_of_other_sources_are_what_they_are() -> None:
    """The first row of a table, and the day of the first job."""
    assert format_fact("first", {"rows": 2, "first": ["none", "8"]}) == "none, 8"
    assert format_fact("first", {"first": "2026-11-25"}) == "2026-11-25"


def test_a_log_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("\n".join(LINE.format(step=step, samples=256 * step) for step in (1, 2, 3)) + "\n")
    assert main(["import", str(log)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "first step 1 of 500,000" in told and "last step 3 of 500,000" in told
