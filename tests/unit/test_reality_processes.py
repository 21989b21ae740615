"""Rows scored by several processes give the report of one, and their errors."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from windtunnel.base.errors import FileError, PlanError, SpecError, UnknownName
from windtunnel.base.json_text import json_text
from windtunnel.base.processes import ordered_map
from windtunnel.reality.rows import measurements
from windtunnel.reality.validate import validate


def test_several_processes_give_the_report_of_one() -> None:
    tables = [measurements.POWER_CAPS, measurements.ENERGY, measurements.tables()[-1]]
    alone, together = (validate(tables, "H100-NeMo", processes=count) for count in (1, 3))
    assert alone.rows and json_text(alone.as_dict()) == json_text(together.as_dict())


def test_rows_are_reported_in_order() -> None:
    seen: list[list[str]] = []
    for count in (1, 2):
        seen.append([])
        validate(measurements.tables()[-1:], "H100-NeMo", lambda done, total, row: seen[-1].append(f"{done} {total} {row}"),
                 processes=count)  # fmt: skip
    assert seen[0] == seen[1] and len(seen[0]) > 3


def test_an_error_of_a_table_is_that_of_one_process(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("no,such,columns\n1,2,3\n", encoding="utf-8")
    told = []
    for count in (1, 2):
        with pytest.raises(SpecError) as raised:
            validate([wrong], processes=count)
        told.append(str(raised.value))
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "error",
    [SpecError("a.b", 3, "four", "Write 4."), FileError("--x", "y", "a file"), UnknownName("op", "al", ["all"]),
     PlanError("plan.tp", 3, "a divisor of 8", "Write 4.")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_errors_travel_between_processes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


_SEEN = 0


def _begin(number: int) -> None:
    global _SEEN
    _SEEN = number


def _add(number: int) -> int:
    return _SEEN + number


@pytest.mark.parametrize("count", [1, 2])
def test_a_map_keeps_order_and_begins_each_process(count: int) -> None:
    with ordered_map(count, _begin, 7) as over:
        assert list(over(_add, range(20), at_once=3)) == list(range(7, 27))
