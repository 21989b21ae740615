"""What an alarm takes of hanging ranks: asked by a file, answered by the rank, bounded, without secrets."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from windtunnel.base.text import is_secret, redact
from windtunnel.fleet import dumps
from windtunnel.fleet.dumps import MOST_EPISODES, DumpTaker, script_frame
from windtunnel.fleet.findings.hang import HangReport
from windtunnel.fleet.watch import answers
from windtunnel.fleet.watch.answers import DumpAnswers

REPORT = HangReport({1: "has not begun all_reduce"}, {0: {1: "all_reduce"}, 2: {1: "all_reduce"}}, (), (), (), "rank 1: …")


def answer(run: Path, ranks: tuple[int, ...], ended: threading.Event) -> None:
    answering = [DumpAnswers(run, rank) for rank in ranks]
    while not ended.wait(0.01):
        for rank in answering:
            rank.look()


def test_ranks_to_blame_and_one_that_waits_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LOOK", 0.0)
    monkeypatch.setattr(answers, "flight_record", lambda: b"recorded")
    monkeypatch.setattr(dumps, "ANSWER_SECONDS", 60.0)
    ended = threading.Event()
    rank = threading.Thread(target=answer, args=(tmp_path, (0, 1, 2), ended))
    rank.start()
    try:
        lines = DumpTaker(tmp_path).take(REPORT, {0: 1, 1: 2, 2: 3}).splitlines()
    finally:
        ended.set()
        rank.join()
    assert lines[0].startswith("rank 1 stands at ") and lines[1].startswith("stacks and dumps of the flight recorder: ")
    assert sorted(path.name for path in (tmp_path / "dumps").iterdir()) == [
        "1-rank0.flight", "1-rank0.stacks", "1-rank1.flight", "1-rank1.stacks",
    ]  # fmt: skip
    text = (tmp_path / "dumps" / "1-rank1.stacks").read_text()
    assert text.startswith("Thread MainThread\n") and "answer" not in text.split("Thread MainThread")[0]
    assert (tmp_path / "dumps" / "1-rank1.stacks").stat().st_mode & 0o077 == 0


def test_ranks_that_do_not_answer_hold_nothing_up_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumps, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(dumps, "stacks_of", lambda ranks, pids: {"1": 'File "/a/train.py", line 3, in load token=abcdefghij\n'})
    taker = DumpTaker(tmp_path)
    assert taker.take(REPORT, {1: 2}).splitlines()[0] == "rank 1 stands at train.py:3 in load"
    assert "abcdefghij" not in (tmp_path / "dumps" / "1-rank1.stacks").read_text()
    assert not list((tmp_path / "dumps").glob("*.ask"))
    assert taker.take(REPORT, {}) == ""  # ranks of another machine
    assert all(taker.take(REPORT, {1: 2}) for _ in range(MOST_EPISODES - 1)) and taker.take(REPORT, {1: 2}) == ""


def test_a_folder_that_is_gone_leaves_the_alarm_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumps, "ANSWER_SECONDS", 0.05)
    (tmp_path / "dumps").write_text("a file")
    assert DumpTaker(tmp_path).take(REPORT, {1: 2}) == ""


def test_a_flight_record_is_that_of_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "torch.distributed", joined)
    monkeypatch.setitem(
        sys.modules, "torch._C._distributed_c10d", SimpleNamespace(_dump_nccl_trace=lambda includeStackTraces: b"a")
    )
    assert answers.flight_record() == b"a"
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", SimpleNamespace(_dump_fr_trace=lambda: b"a"))
    assert answers.flight_record() == b""
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(is_initialized=lambda: False))
    assert answers.flight_record() == b""


def test_the_frame_of_the_script() -> None:
    frames = [
        ("/job/train.py", 9, "main"),
        ("/usr/lib/python3.11/threading.py", 3, "wait"),
        ("/v/site-packages/torch/a.py", 3, "b"),
    ]
    first = "".join(f'  File "{path}", line {line}, in {name}\n    code()\n' for path, line, name in frames)
    stacks = f'Thread MainThread\n{first}\nThread x\n  File "/job/other.py", line 1, in y\n'
    assert script_frame(stacks) == "train.py:9 in main"
    assert script_frame("") == ""


@pytest.mark.parametrize(
    "name, value, secret",
    [
        ("HF_TOKEN", "a", True), ("DB_PASSPHRASE", "a", True), ("SIGNING_KEY", "a", True), ("SLACK_WEBHOOK_URL", "a", True),
        ("SESSION_COOKIE", "a", True), ("ARGS", "--api-key abcdef", True), ("PROXY", "http://me:pw@host", True),
        ("CERT", "-----BEGIN CERTIFICATE-----", True), ("STEPS", "600", False), ("KEYBOARD", "de", False), ("MONKEY", "a", False),
    ],
)  # fmt: skip
def test_names_and_forms_of_secrets(name: str, value: str, secret: bool) -> None:
    assert is_secret(name, value) is secret


@pytest.mark.parametrize(
    "text", ["passphrase=horse battery", "Cookie: abcdef123", "--alarm-webhook https://h/x", "private_key='abcdefg'",
             "-----BEGIN RSA " "PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----"],
)  # fmt: skip
def test_the_words_of_names_are_those_of_texts(text: str) -> None:
    shown = redact(text)
    assert "[redacted]" in shown and not any(part in shown for part in ("horse", "abcdef", "h/x", "MIIE"))
