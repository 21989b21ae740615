"""What `fleet run` does around a command: a folder of its own for each run, and an end that nothing beside the job holds up."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.fleet.collect.policy import CollectPolicy
from windtunnel.fleet.launch.command import LAUNCHES, RunFolder, run_command
from windtunnel.fleet.launch.prepared_answer import PreparedAnswer
from windtunnel.fleet.launch.sidecars import BesideLimits, Sidecars
from windtunnel.fleet.recorded import recorded_of_rings
from windtunnel.fleet.ring import RingWriter
from windtunnel.fleet.rings import has_all_ranks, ring_path
from windtunnel.fleet.sources import read_ended_run
from windtunnel.fleet.wire.timers import VARIABLE, apply_timers

LONG = 240
"""Seconds for what takes a few on an idle machine."""


def answer(question: Callable[[Mapping[str, Any]], list[str]], seconds: float, *prepare: Callable[[], object]) -> list[str]:
    prepared = PreparedAnswer(prepare, question)
    try:
        prepared.ask({"word": "b"})
        return prepared.take(seconds)
    finally:
        prepared.close()


def test_an_answer_comes_and_one_that_never_comes_is_given_up() -> None:
    assert answer(lambda told: ["a", str(told["word"]) * 1_000_000], 60.0) == ["a", "b" * 1_000_000]
    began = time.monotonic()
    for never in (
        lambda told: [str(min(range(1 << 60)))],
        lambda told: time.sleep(3600) or [],
    ):  # the first never gives the lock away
        with pytest.raises(TimeoutError):
            answer(never, 0.5)
    for dead in (lambda told: os.kill(os.getpid(), signal.SIGKILL) or [], lambda told: [str(1 / 0)]):
        with pytest.raises(EOFError):
            answer(dead, 60.0)
    with pytest.raises(TimeoutError):
        answer(lambda told: [], 0.5, lambda: time.sleep(3600))
    assert answer(lambda told: ["a"], 60.0, lambda: 1 / 0, list) == ["a"]
    assert time.monotonic() - began < 50
    mine = [Path(f"/proc/{pid}/stat") for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]
    assert not [path for path in mine if path.read_text().rpartition(")")[2].split()[0] == "Z"]


def test_what_an_answer_needs_is_prepared_before_the_question_and_at_a_low_priority(tmp_path: Path) -> None:
    ready, nice = tmp_path / "ready", os.getpriority(os.PRIO_PROCESS, 0)
    known: list[int] = []

    def prepare() -> None:
        known.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        ready.touch()

    prepared = PreparedAnswer([prepare], lambda told: [f"{known[0]} {os.getpriority(os.PRIO_PROCESS, threading.get_native_id())}"])
    try:
        end = time.monotonic() + LONG
        while not ready.exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        prepared.ask({})
        assert prepared.take(LONG) == [f"{min(19, max(nice, 10))} {nice}"]
    finally:
        prepared.close()


def test_what_is_not_prepared_when_the_question_comes_is_prepared_then(tmp_path: Path) -> None:
    """By the thread that answers, not at a low priority: a job that ends early on a busy machine."""
    begun, asked, did = tmp_path / "begun", tmp_path / "asked", list[tuple[int, bool]]()

    def part(number: int) -> None:
        did.append((number, threading.current_thread() is threading.main_thread()))
        begun.touch()
        while not asked.exists():
            time.sleep(0.01)

    prepared = PreparedAnswer([lambda: part(1), lambda: part(2), lambda: part(3)], lambda told: [str(did)])
    try:
        end = time.monotonic() + LONG
        while not begun.exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        prepared.ask({})
        time.sleep(0.5)
        asked.touch()
        found = prepared.take(LONG)[0]
    finally:
        prepared.close()
    assert [number for number, _ in eval(found)] == [1, 2, 3] and eval(found)[-1] == (3, True)


def test_a_process_that_prepares_an_answer_ends_with_its_caller(tmp_path: Path) -> None:
    script = """
import os, sys, time
from windtunnel.fleet.launch.prepared_answer import PreparedAnswer
prepared = PreparedAnswer([], list)
print(prepared._child, os.getsid(prepared._child) if time.sleep(1) is None else 0, flush=True)
time.sleep(3600)
"""
    caller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert caller.stdout is not None
        pid, session = map(int, caller.stdout.readline().split())
        assert session == pid  # Ctrl-C of a terminal does not reach it
    finally:
        caller.kill()
        caller.communicate()
    end = time.monotonic() + LONG
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < end
        time.sleep(0.05)


def acting(then: str) -> subprocess.Popen[str]:
    """A process that does this, in Python, once it is asked to end, and then ends."""
    script = (
        "import pathlib, signal, sys, time\n"
        "def wait(path):\n    while not pathlib.Path(path).exists(): time.sleep(0.02)\n"
        f"def act(*_):\n    {then}\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, act)\nprint(flush=True)\nwhile True: time.sleep(0.05)"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    return child


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_what_is_beside_a_job_ends_at_once_and_the_records_are_read_meanwhile(tmp_path: Path, host: str) -> None:
    """Of one node before the shipper has ended; of several when it has, before the collector has."""
    limits = BesideLimits(monitor_seconds=60, ship_seconds=60, collector_seconds=60, others_seconds=0)
    agents = Sidecars(tmp_path, (host, 0), url="http://127.0.0.1:9", limits=limits)
    asked, told, alone = tmp_path / "asked", tmp_path / "told", host == "127.0.0.1"
    agents._processes = {
        "monitor": acting(f"wait({str(asked)!r})"),
        "shipper": acting(f"pathlib.Path({str(asked)!r}).touch(); {f'wait({str(told)!r})' if alone else ''}"),
        "collector": acting(f"wait({str(told)!r})"),
    }
    running: list[list[str]] = []

    def tell() -> None:
        running.append([name for name, child in agents._processes.items() if child.poll() is None])
        told.touch()

    agents.on_complete = tell
    agents.__exit__(None, None, None)
    assert [child.returncode for child in agents._processes.values()] == [0, 0, 0] and agents.given_up == []
    assert running == [["shipper", "collector"] if alone else ["collector"]]


def test_a_run_whose_ranks_are_all_here_is_read_from_their_rings(tmp_path: Path) -> None:
    assert not has_all_ranks(tmp_path) and not has_all_ranks(tmp_path / "none")
    (tmp_path / "rank-000001.ring").write_bytes(b"damaged")
    assert not has_all_ranks(tmp_path)
    writers = [RingWriter(ring_path(tmp_path, 0), "job", 0, 2)]
    assert not has_all_ranks(tmp_path)
    writers.append(RingWriter(ring_path(tmp_path, 1), "job", 1, 2))
    (tmp_path / "collected" / "log").mkdir(parents=True)
    (tmp_path / "collected" / "log" / "segment-0.wtlog").write_bytes(b"not looked at")
    for writer in writers:
        for step in range(4):
            writer.write(0, step, time.time_ns(), 1000, 1000)
        writer.close()
    assert has_all_ranks(tmp_path)
    found = read_ended_run(tmp_path, 2, 100)
    assert sorted(found.beats) == [0, 1] and set(found.sections.step.tolist()) == {0, 1, 2, 3}


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


def test_what_is_killed_beside_a_job_is_told_once_while_the_job_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    agents = Sidecars(tmp_path)
    agents._processes = {name: acting("pass") for name in ("monitor", "shipper", "collector")}
    pids = [str(agents._processes[name].pid) for name in ("monitor", "shipper")]
    script = (
        "import os, sys, time\nos.kill(int(sys.argv[1]), 9)\nos.kill(int(sys.argv[2]), 15)\ntime.sleep(1)\n"
        "print('goes on', file=sys.stderr, flush=True)\nraise SystemExit(7)"
    )

    def tell_and_fail() -> None:
        agents.tell_what_ended()
        raise RuntimeError("no fault beside a command ends it")

    assert run_command([sys.executable, "-c", script, *pids], os.environ, tell_and_fail) == 7
    agents.__exit__(None, None, None)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2 and said[1] == "goes on", said
    assert said[0].startswith("windtunnel fleet: the monitor beside the job has ended (killed by SIGKILL): no alarm is raised")


def test_a_folder_that_the_command_deletes_is_told_as_such(tmp_path: Path) -> None:
    script = f"import shutil\nshutil.rmtree({str(tmp_path / 'job')!r})\nraise SystemExit(7)"
    ran = subprocess.run(
        [sys.executable, "-m", "windtunnel", "fleet", "run", "--dir", str(tmp_path), "--run", "job", "--", sys.executable, "-c",
         script],
        stderr=subprocess.PIPE, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert ran.returncode == 7 and "was deleted while the command ran; it ended with exit status 7" in ran.stderr, ran.stderr
    assert "nothing was recorded" not in ran.stderr


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
        assert "no summary" not in said and "1 rank on 1 machine" in said, said  # what the ring has, whoever took it or not
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
