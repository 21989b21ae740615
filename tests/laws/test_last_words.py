"""Logs of jobs that hang, drawn with what is true: what is said of them is never an all-clear, and names who is late; also where
other programs have written into them.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.last_words import MORE_WORDS, OTHER_WORDS
from tests.watchdog_logs import Log, draw_log
from windtunnel.base.errors import WindtunnelError
from windtunnel.formats.door import read_files
from windtunnel.formats.logs.failures.watchdog import WORDS, WatchdogLines, facts_of
from windtunnel.formats.logs.failures.whole import TEXTS, whole_hang


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


def asked(path: Path) -> dict[str, Any] | None:
    """What `fleet hang` has of a log; None where it refuses."""
    try:
        reading = read_files([str(path)])
        found = reading.facts.get("hang")
        return whole_hang([path], None if found is None else (reading.format, found)) if reading.format in TEXTS else found
    except WindtunnelError:
        return None


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_a_log_with_words_of_several_programs_is_never_an_all_clear(first: int, tmp_path: Path) -> None:
    """Words of up to five programs, in any order, around those of a watchdog or a training loop; a third of the logs is damaged."""
    for seed in range(first, first + 20):
        draw = random.Random(seed)
        drawn = draw.sample([*OTHER_WORDS, *MORE_WORDS], draw.randrange(1, 6))
        log = draw_log(draw) if draw.random() < 0.5 else None
        parts = [*(words.rstrip("\n") + "\n" for words, _ in drawn), *([log.text] if log else ["step 17 loss 2.31\n" * 8])]
        draw.shuffle(parts)
        text, whole = "".join(parts), draw.random() < 0.67
        if not whole:
            begin, end = sorted(draw.sample(range(len(text)), 2))
            text = text[:begin] + text[end:]
        path = tmp_path / f"{seed}.log"
        path.write_text(text, encoding="utf-8")
        hang = asked(path)
        assert hang is not None or not whole, seed
        if hang is None:
            continue
        assert "no rank waits" not in hang["text"].lower(), seed
        for words, said in drawn if whole else []:
            assert said in hang["text"], (seed, words, hang["text"])
        if whole and log is not None and log.names_late:
            assert set(log.late) <= set(map(int, hang["culprits"])), (seed, hang["text"])
