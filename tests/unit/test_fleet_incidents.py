"""The incident log: what is written is read, what is torn is left out, and ETTR by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from windtunnel.base.errors import FileError, SpecError
from windtunnel.records.incidents import (
    FILE,
    Incident,
    IncidentSeconds,
    append_incident,
    ettr,
    incident_of,
    read_incidents,
    replayed_seconds,
)

CRASH = Incident(
    number=1,
    job="tutorial",
    began=1000.0,
    seen=1000.5,
    what="crash",
    node="n1",
    ranks=(2, 3),
    evidence="rank 2 ended with signal 9",
    action="replace",
    attempt=1,
    seconds=IncidentSeconds(0.5, 1.0, 0.0, 3.0, 0.5, None),
    from_step=40,
    lost_steps=7,
    outcome="recovered",
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    second = replace(CRASH, number=2, what="hang", seconds=IncidentSeconds(), lost_steps=None, node=None)
    append_incident(tmp_path / "run" / FILE, CRASH)
    append_incident(tmp_path / "run" / FILE, second)
    assert read_incidents(tmp_path / "run") == (CRASH, second)
    assert read_incidents(tmp_path / "run" / FILE) == (CRASH, second)


def test_no_log_is_no_incident(tmp_path: Path) -> None:
    assert read_incidents(tmp_path) == ()


def test_a_later_line_of_a_number_replaces_the_earlier(tmp_path: Path) -> None:
    append_incident(tmp_path / FILE, replace(CRASH, outcome="open", seconds=IncidentSeconds()))
    append_incident(tmp_path / FILE, CRASH)
    assert read_incidents(tmp_path) == (CRASH,)


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.95])
def test_a_torn_line_is_left_out_and_the_next_one_is_whole(tmp_path: Path, kept: float) -> None:
    append_incident(tmp_path / FILE, CRASH)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole + whole[: int(len(whole) * kept)])
    assert read_incidents(tmp_path) == (CRASH,)
    after = replace(CRASH, number=3)
    append_incident(tmp_path / FILE, after)
    assert read_incidents(tmp_path) == (CRASH, after)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"what": "gremlin"}, "gremlin"),
        ({"began": "now"}, "`float`, got `str`"),
        ({"ranks": [1.5]}, "`int`, got `float`"),
        ({"seconds": [1]}, "an object"),
        ({"number": True}, "`int`, got `bool`"),
    ],
)
def test_a_line_that_is_no_incident_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        incident_of({**asdict(CRASH), **change})


def test_a_wrong_line_names_its_file(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"number": 1}\n')
    with pytest.raises(FileError, match="line 1"):
        read_incidents(tmp_path)


def test_a_field_of_a_later_version_is_left_out() -> None:
    assert incident_of({**asdict(CRASH), "colour": "red"}) == CRASH


def test_ettr_by_hand() -> None:
    """100 s, 5 s down, 7 steps of 2 s done twice, 3 s of saves: 100 - 5 - 14 - 3."""
    assert CRASH.seconds.down == 5.0
    assert replayed_seconds(CRASH, 2.0) == 14.0
    assert ettr([CRASH], 980.0, 1080.0, 2.0, blocked=3.0) == pytest.approx(0.78)


def test_measured_replay_goes_before_counted_steps() -> None:
    slower = replace(CRASH, seconds=replace(CRASH.seconds, replay=20.0))
    assert ettr([slower], 980.0, 1080.0, 2.0) == pytest.approx(0.75)


def test_time_that_two_incidents_are_down_counts_once() -> None:
    second = replace(CRASH, number=2, began=1003.0, lost_steps=0)  # down until 1008, the first until 1005
    assert ettr([CRASH, second], 980.0, 1080.0, 2.0) == pytest.approx((100 - 8 - 14) / 100)


def test_a_run_that_ends_before_it_began_is_refused() -> None:
    with pytest.raises(SpecError, match="a time after"):
        ettr([], 10.0, 10.0, 1.0)
