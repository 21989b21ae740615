"""Ranks' output on the driver's terminal, and the command line under which a rank is shown."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from windtunnel.fleet.agent.keeper import room_argument
from windtunnel.fleet.driver.node_logs import LONGEST, LogTee


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    made = tmp_path / "logs" / "attempt-0003"
    made.mkdir(parents=True)
    return made


def test_each_line_has_its_rank_and_no_escape(tmp_path: Path, logs: Path) -> None:
    said: list[str] = []
    tee = LogTee(tmp_path, said.append)
    (logs / "rank-000001.log").write_bytes(b"one\n\x1b]0;PWN\x07\x1b[31mtwo\x1b[2J\nhal")
    (logs / "rank-000010.log").write_bytes(b"step 1\rstep 2\r\n\xff\n")
    (logs / "keeper.log").write_text("not a rank\n")
    tee.look(3)
    assert said == ["[rank 1] one", "[rank 1] two", "[rank 10] step 1", "[rank 10] step 2", "[rank 10] \ufffd"]
    with (logs / "rank-000001.log").open("ab") as log:
        log.write(b"f\nlast")
    said.clear()
    tee.look(3)
    assert said == ["[rank 1] half"]
    tee.look(3, ended=True)
    assert said == ["[rank 1] half", "[rank 1] last"]
    tee.look(3, ended=True)
    tee.look(99)
    assert len(said) == 2


def test_a_driver_that_comes_back_shows_what_is_new(tmp_path: Path, logs: Path) -> None:
    said: list[str] = []
    tee = LogTee(tmp_path, said.append)
    (logs / "rank-000000.log").write_text("before\n")
    tee.skip(3)
    with (logs / "rank-000000.log").open("a") as log:
        log.write("after\n")
    tee.look(3)
    assert said == ["[rank 0] after"]


def test_a_long_line_is_cut(tmp_path: Path, logs: Path) -> None:
    said: list[str] = []
    (logs / "rank-000000.log").write_text("x" * 1_000_000 + "\nnext\n")
    LogTee(tmp_path, said.append).look(3)
    assert [len(one) for one in said] == [LONGEST + len("[rank 0] "), len("[rank 0] next")]


PROGRAM = """
import os, sys, time
from windtunnel.fleet.agent.keeper import set_title
set_title(["keeper"], final=False)
if os.fork() == 0:
    set_title(["python", "train.py", "--steps", "12 0", "é"] if len(sys.argv) < 3 else ["python", "x" * 5000])
    print("ready", os.getpid(), flush=True)
    time.sleep(60)
os.wait()
"""


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc")
@pytest.mark.parametrize("long", [False, True])
def test_a_forked_process_shows_the_command_line_that_it_is_given(long: bool) -> None:
    words = [sys.executable, "-c", PROGRAM, *(["long"] if long else []), room_argument()]
    keeper = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={"MARK": "kept"})
    try:
        assert keeper.stdout is not None
        pid = int(keeper.stdout.readline().split()[1])
        shown = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        if long:
            assert shown[0] == b"python" and set(shown[1]) == {ord("x")} and len(shown[1]) > 1000
        else:
            assert shown == [b"python", b"train.py", b"--steps", b"12 0", "é".encode()]
        assert Path(f"/proc/{keeper.pid}/cmdline").read_bytes().rstrip(b"\0") == b"keeper"
        assert b"MARK=kept" in Path(f"/proc/{pid}/environ").read_bytes()
    finally:
        keeper.kill()
        subprocess.run(["kill", "-9", str(pid)], check=False)
        keeper.wait()
        keeper.stdout.close()
        time.sleep(0)
