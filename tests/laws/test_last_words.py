"""Logs of jobs that hang, drawn with what is true: what is said of them is never an all-clear, and names who is late."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.watchdog_logs import Log, draw_log
from windtunnel.formats.logs.failures.watchdog import WORDS, WatchdogLines, facts_of


def _read(log: Log) -> dict[str, Any] | None:
    said = WatchdogLines()
    for line in log.text.splitlines():
        if any(word in line for word in WORDS):
            said.take(line)
    said.settle()
    return dict(facts_of(said)["hang"]) if said.ranks else None


@pytest.mark.parametrize("first", range(0, 600, 50))
def test_a_log_of_a_hang_is_never_an_all_clear(first: int) -> None:
    named = 0
    for seed in range(first, first + 50):
        log = draw_log(random.Random(seed))
        hang = _read(log)
        if hang is None:
            assert not log.names_late, seed
            continue
        assert "no rank waits" not in hang["text"].lower(), seed
        if log.names_late:
            named += 1
            assert set(map(int, hang["culprits"])) == set(log.late), (seed, hang["text"])
        elif log.whole and hang["culprits"] and (log.version != "2.1" or log.group.guid == 0):
            assert set(log.late) & set(map(int, hang["culprits"])), (seed, hang["text"])
    assert named
