"""The table of `make bench`: speeds of whole commands before and now."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.against.speed import LONG, SHORT, Side, compare, line_of
from windtunnel.base.verbs import verbs_of


def test_a_row_has_medians_their_ratio_and_memory() -> None:
    before, now = Side(Path("a"), [4.0, 2.0, 9.0], 200.0), Side(Path("b"), [2.0, 1.0, 3.0], 50.0)
    assert line_of("predict x", before, now).split() == ["predict", "x", "4.00", "2.00", "2.00", "200", "50"]


def test_a_side_that_fails_has_no_figures() -> None:
    before, now = Side(Path("a"), [4.0], 200.0, "no such option"), Side(Path("b"), [2.0], 50.0)
    assert line_of("predict x", before, now).split() == ["predict", "x", "fails", "2.00", "50"]


def test_it_runs_both_sides() -> None:
    here = Path(sys.executable)
    (row,) = compare(["--version"], here, here, 1)
    assert row.startswith("--version") and "fails" not in row


def test_what_fails_is_seen() -> None:
    side = Side(Path(sys.executable))
    side.run(["--no-such-option"], Path.cwd())
    assert "no-such-option" in side.failed.lower() and side.memory > 1.0


def test_every_command_is_one() -> None:
    assert all(command.split()[0] in {*verbs_of(), "--help"} for command in SHORT + LONG)
