"""What `fleet run` does around a command: a folder of its own for each run, and an end that nothing beside the job holds up."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.fleet.collect.policy import CollectPolicy
from windtunnel.fleet.launch.limits import BesideLimits, ask_within
from windtunnel.fleet.launch.run_folder import LAUNCHES, RunFolder
from windtunnel.fleet.recorded import recorded_of_rings
from windtunnel.fleet.ring import RingWriter
from windtunnel.fleet.rings import ring_path
from windtunnel.fleet.wire.timers import VARIABLE, apply_timers

LONG = 240
"""Seconds for what takes a few on an idle machine."""


def test_an_answer_comes_and_one_that_never_comes_is_given_up() -> None:
    assert ask_within(60.0, lambda: ["a", "b" * 1_000_000]) == ["a", "b" * 1_000_000]
    began = time.monotonic()
    assert ask_within(0.5, lambda: [str(min(range(1 << 60)))]) is None  # a loop in C, which never gives the lock away
    assert ask_within(0.5, lambda: time.sleep(3600) or []) is None
    assert ask_within(60.0, lambda: os.kill(os.getpid(), signal.SIGKILL) or []) is None
    assert ask_within(60.0, lambda: [1 / 0]) is None  # type: ignore[list-item]
    assert time.monotonic() - began < 50
    mine = [Path(f"/proc/{pid}/stat") for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]
    assert not [path for path in mine if path.read_text().rpartition(")")[2].split()[0] == "Z"]


def beside(folder: Path, word: str) -> list[int]:
    """Processes with `word` and the folder in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if str(folder).encode() in line and word.encode() in line.split(b"\0") and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("stopped", [("collect",), ("collect", "windtunnel.fleet.ship", "monitor")], ids=["collector", "all"])
def test_the_exit_status_comes_though_what_is_beside_the_job_never_answers(tmp_path: Path, stopped: tuple[str, ...]) -> None:
    pytest.importorskip("starlette")
    ready = tmp_path / "ready"
    script = f"import pathlib, time\npathlib.Path({str(ready)!r}).touch()\nwhile pathlib.Path({str(ready)!r}).exists(): time.sleep(0.05)\nraise SystemExit(7)"  # noqa: E501
    (tmp_path / "job").mkdir()
    writer = RingWriter(ring_path(tmp_path / "job", 0), "job", 0, 1)  # there is something to ship
    limits = json.dumps({"beside": {"ship_seconds": 2, "collector_seconds": 2, "summary_seconds": 60, "monitor_seconds": 1}})
    child = subprocess.Popen(
        [sys.executable, "-m", "windtunnel", "fleet", "run", "--dir", str(tmp_path), "--run", "job", "--collect", "--",
         sys.executable, "-c", script],
        stderr=subprocess.PIPE, text=True, env={**os.environ, VARIABLE: limits}, start_new_session=True,
    )  # fmt: skip
    try:
        end = time.monotonic() + LONG
        while not ready.exists() or not (tmp_path / "job" / "collected" / "log").is_dir():
            assert time.monotonic() < end and child.poll() is None
            time.sleep(0.05)
        for word in stopped:
            (pid,) = beside(tmp_path, word)
            os.kill(pid, signal.SIGSTOP)
        writer.write(0, 1, time.time_ns(), 1000, 1000)
        ready.unlink()
        began = time.monotonic()
        _, said = child.communicate(timeout=LONG)
        assert child.returncode == 7, said
        assert time.monotonic() - began < 120, said
        assert "killed" in said or "did not take the last records" in said
        assert not any(beside(tmp_path, word) for word in stopped)
    finally:
        writer.close()
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()


def test_a_used_name_gets_a_new_folder_and_the_earlier_records_stay(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    assert RunFolder(folder).moved is None
    RingWriter(ring_path(folder, 3), "job", 3, 4).close()
    assert RunFolder(folder).moved is None  # another `fleet run` of the same job: this process lives
    claimed = RunFolder(folder)
    claimed.end()
    again = RunFolder(folder)
    assert again.moved == tmp_path / "job.1" and not list(folder.glob("*.ring"))
    assert [path.name for path in again.moved.glob("*.ring")] == ["rank-000003.ring"]
    again.end()
    assert RunFolder(folder).moved == tmp_path / "job.2"


def mark(folder: Path, **told: object) -> None:
    (folder / LAUNCHES).mkdir(parents=True, exist_ok=True)
    value = {"host": "elsewhere", "pid": 1, "started": "1", "job": "", "ended": False, **told}
    (folder / LAUNCHES / f"{value['host']}-{value['pid']}.json").write_text(json.dumps(value))


HERE = socket.gethostname()
MARKS = {
    "another node of this start": ([{}], "", False),
    "all have ended": ([{"ended": True}, {"host": "b", "ended": True}], "", True),
    "this machine's was killed": ([{}, {"host": HERE, "pid": 1 << 22, "started": "5"}], "", True),
    "its pid is another process now": ([{"host": HERE, "pid": os.getpid(), "started": "5"}], "", True),
    "another job of the scheduler": ([{"job": "17.0."}], "18", True),
    "the same job of the scheduler": ([{"job": "18.."}], "18", False),
    "damaged": ([{"host": HERE, "pid": "x", "started": None}], "", True),
}


@pytest.mark.parametrize("what", MARKS)
def test_which_folder_is_of_an_earlier_run(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    marks, job, moved = MARKS[what]
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID"):
        monkeypatch.delenv(name, raising=False)
    if job:
        monkeypatch.setenv("SLURM_JOB_ID", job)
    for one in marks:
        mark(tmp_path / "job", **one)
    assert (RunFolder(tmp_path / "job").moved is not None) == moved


def test_a_folder_without_marks_is_moved_if_nobody_writes_there(tmp_path: Path) -> None:
    writer = RingWriter(ring_path(tmp_path / "job", 0), "job", 0, 1)
    assert RunFolder(tmp_path / "job").moved is None
    writer.close()
    (tmp_path / "old" / "collected" / "log").mkdir(parents=True)
    assert RunFolder(tmp_path / "old").moved == tmp_path / "old.1"
    (tmp_path / "empty").mkdir()
    assert RunFolder(tmp_path / "empty").moved is None


def test_the_folder_is_the_owner_s_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        RunFolder(tmp_path / "job")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "job", *(tmp_path / "job").rglob("*")]}
    assert set(modes.values()) == {0o700, 0o600} and modes["job"] == modes[LAUNCHES] == 0o700


def test_rings_of_an_earlier_run_in_the_folder_are_not_read(tmp_path: Path) -> None:
    for rank in range(3):
        writer = RingWriter(ring_path(tmp_path, rank), "first", rank, 3)
        writer.close()
    time.sleep(0.01)
    for rank in range(2):
        RingWriter(ring_path(tmp_path, rank), "second", rank, 2).close()
    found = recorded_of_rings(tmp_path)
    assert (found.run, found.world, sorted(found.beats)) == ("second", 2, [0, 1])


def test_timers_come_from_the_environment_and_wrong_ones_are_told() -> None:
    told = {VARIABLE: '{"collect": {"segment_seconds": 1.2, "questions": 3}, "beside": {"ship_seconds": 1}}'}
    policy = apply_timers(CollectPolicy(), "collect", told)
    assert (policy.segment_seconds, policy.questions) == (1.2, 3) and isinstance(policy.questions, int)
    assert apply_timers(BesideLimits(), "beside", told).ship_seconds == 1.0
    assert apply_timers(CollectPolicy(), "collect", {}) == CollectPolicy()
    for wrong in ('{"collect": {"segment_second": 1}}', "[]", "{", '{"collect": {"segment_seconds": "x"}}', '{"collect": 3}'):
        with pytest.raises(SpecError, match=VARIABLE):
            apply_timers(CollectPolicy(), "collect", {VARIABLE: wrong})
