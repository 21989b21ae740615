"""Unwatched but alive: what fails in the monitor, its folder or a driver's disk costs records, never the job."""

from __future__ import annotations

import ast
import io
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windtunnel.fleet import event_log, fence
from windtunnel.fleet.driver.incident_log import IncidentLog
from windtunnel.fleet.driver.plan import FILE, JobState, keep_environment, restore_environment
from windtunnel.fleet.driver.serve import _last_alive
from windtunnel.fleet.fence import Fence
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.launch.sidecars import COLLECTED
from windtunnel.fleet.monitor import DiskWatch
from windtunnel.fleet.sources import run_folder
from windtunnel.fleet.wire.secrets import runtime_folder
from windtunnel.records.incidents import Incident

FLEET = Path(fence.__file__).parent


def add(one: int, other: int) -> int:
    if other < 0:
        raise ValueError("the script's own")
    return one + other


def fails_before(original: Any) -> Any:
    return lambda *args: original(*args) if 1 // 0 else None


def fails_behind(original: Any) -> Any:
    def call(*args: int) -> int:
        original(*args)
        raise RuntimeError("ours")

    return call


def fails_while_it_is_left(original: Any) -> Any:
    def call(*args: int) -> int:
        try:
            return int(original(*args))
        finally:
            raise KeyError("ours")

    return call


@pytest.mark.parametrize("make", [fails_before, fails_behind, fails_while_it_is_left])
def test_a_fault_ends_the_watching_and_the_function_does_what_it_did(
    make: Callable[[Any], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    calls, told = [], []

    def original(*args: int) -> int:
        calls.append(args)
        return add(*args)

    own = Fence(on_fault=told.append)
    wrapped = own.wrap(original, make)
    assert wrapped(1, 2) == 3 and wrapped(3, 4) == 7 and calls == [(1, 2), (3, 4)]  # once each
    assert not own.intact and len(told) == 1
    assert capsys.readouterr().err.count("windtunnel fleet: this rank is not watched any more: ") == 1
    other = Fence().wrap(original, make)
    with pytest.raises(ValueError, match="the script's own"):
        other(1, -2)


def test_what_the_script_raises_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    own = Fence()
    with pytest.raises(ValueError, match="the script's own"):
        own.wrap(add, lambda original: lambda *args: original(*args))(1, -1)
    assert own.intact and capsys.readouterr().err == ""


def test_an_exception_of_a_signal_s_handler_is_not_swallowed() -> None:
    """Launchers end their ranks by exceptions from handlers, which may come while our code runs."""

    class EndedBySignal(Exception):
        pass

    def handler(number: int, frame: object) -> None:
        raise EndedBySignal

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        own = Fence()
        interrupted = own.wrap(add, lambda original: lambda *args: signal.raise_signal(signal.SIGUSR1))
        for entry in (interrupted, own.hook(lambda *args: signal.raise_signal(signal.SIGUSR1))):
            with pytest.raises(EndedBySignal):
                entry(1, 2)
        assert own.intact
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_closed_standard_error_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    own = Fence(on_fault=lambda why: 1 // 0)
    assert own.hook(lambda: 1 // 0, otherwise=5)() == 5


OUTSIDE = {
    "api.py register_at_fork", "session.py register", "session.py Thread", "steps.py register_forward_pre_hook",
    "steps.py register_forward_hook", "steps.py register_optimizer_step_pre_hook", "steps.py register_optimizer_step_post_hook",
    "resume.py register_optimizer_step_post_hook", "api.py register_optimizer_step_pre_hook", "calls.py add_done_callback",
}  # fmt: skip
"""Where others are handed functions of the monitor besides `Patches.wrap`: each must be made by a fence."""


def test_every_entry_point_is_made_by_a_fence() -> None:
    """What is handed to PyTorch or Python is `Fence.hook(…)`, `Fence.wrap(…)`, or an attribute that was made so."""
    found, wrong = set(), []
    for path in sorted((FLEET / "watch").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        made = {
            ast.unparse(target) for node in ast.walk(tree) if isinstance(node, ast.Assign) and is_fenced(node.value)
            for target in node.targets
        } | {
            ast.unparse(part) for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
            and all(is_fenced(value) for value in node.value.elts) and isinstance(node.targets[0], ast.Tuple)
            for part in node.targets[0].elts
        }  # fmt: skip
        for node in ast.walk(tree):
            name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
            if name.startswith(("register", "add_done_callback")) or name == "Thread":
                found.add(f"{path.name} {name}")
                given = [*node.args, *(word.value for word in node.keywords if word.arg in ("target", "after_in_child"))]
                given = [part.args[1] if ast.unparse(part).startswith("partial(self._completed") else part for part in given[:1]]
                if not any(is_fenced(part) or ast.unparse(part) in made or ast.unparse(part) == "mark" for part in given):
                    wrong.append(f"{path.name}:{node.lineno} {name}")
            if isinstance(node, ast.Call) and name == "setattr" and path.name != "patches.py":
                wrong.append(f"{path.name}:{node.lineno} setattr")
    assert wrong == [] and found == OUTSIDE


def is_fenced(node: ast.expr) -> bool:
    called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return called in ("hook", "fence.hook", "self._around") or called.endswith((".fence.hook", ").hook", "fence.wrap"))


def test_a_full_disk_costs_an_event_and_an_incident_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("WINDTUNNEL_FLEET_DIR", str(blocked))
    monkeypatch.setenv("WINDTUNNEL_FLEET_RUN", "job")
    monkeypatch.setattr(event_log, "_lost", set())
    for step in range(3):
        event_log.append_event(0, "commit", step)
    assert capsys.readouterr().err.count("what this rank saves and loads is not recorded") == 1
    log = IncidentLog(blocked / "none", "job", JobState())
    for number in range(3):
        log._append(Incident(number, "job", 1.0, 1.0, "crash"))
    assert capsys.readouterr().err.count("its incidents are not kept") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("unbuffered, lossy, code", [("", True, 0), ("1", True, 0), ("", False, 120), ("1", False, 1)])
def test_output_that_a_full_disk_has_no_room_for_is_lost(unbuffered: str, lossy: bool, code: int) -> None:
    lose = "fence._is_file = lambda stream: True; fence.lose_output_on_full_disk(); " if lossy else ""
    script = f"from windtunnel.fleet import fence; {lose}print('a line', end=''); print('another')"
    variables = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        assert subprocess.run([sys.executable, "-c", script], stdout=full, stderr=full, env=variables).returncode == code


def test_a_folder_that_somebody_else_has_taken_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    usual = tmp_path / f"windtunnel-{os.getuid()}"
    assert runtime_folder(make=False) == usual and not usual.exists()
    (tmp_path / "x").mkdir()
    usual.symlink_to(tmp_path / "x")  # as a folder of somebody else: the name is taken
    own = runtime_folder()
    assert own != usual and stat.S_IMODE(own.stat().st_mode) == 0o700 and own.name.startswith(usual.name + "-")
    assert runtime_folder() == runtime_folder(make=False) == own
    (tmp_path / f"{usual.name}-000").mkdir(mode=0o755)  # of anybody: not private
    assert runtime_folder() == own
    session = tmp_path / "session"
    session.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    assert runtime_folder() == session / "windtunnel"


def test_a_driver_that_takes_over_has_the_variables_of_the_job(tmp_path: Path) -> None:
    started = {"STEPS": "600", "API_KEY": "abc", "URL": "https://me:pass@there", "GONE": "1", "SSH_TTY": "a", "SAME": "s"}
    keep_environment(tmp_path, started)
    text = (tmp_path / FILE).read_text()
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert "abc" not in text and "pass" not in text and "SSH_TTY" not in text and '"600"' in text
    here = {"STEPS": "120", "API_KEY": "abc", "URL": "https://me:other@there", "SSH_TTY": "b", "SAME": "s", "MORE": "2"}
    lines = restore_environment(tmp_path, here)
    assert here == {
        "STEPS": "600", "API_KEY": "abc", "URL": "https://me:other@there", "SSH_TTY": "b", "SAME": "s", "GONE": "1"
    }  # fmt: skip
    assert [line.rpartition(": ")[2] for line in lines] == ["STEPS", "GONE", "MORE", "URL"]
    assert not any("600" in line or "other" in line for line in lines)
    assert restore_environment(tmp_path / "none", here) == []
    assert restore_environment(tmp_path, here) == [lines[-1]]


def test_files_that_are_deleted_while_a_folder_is_read_end_neither_a_driver_nor_a_reader(tmp_path: Path) -> None:
    """SQLite's log beside the database, a collector's segment that it replaces: listed, and gone when it is looked at."""
    (tmp_path / "driver.db").write_text("")
    os.utime(tmp_path / "driver.db", (7.0, 7.0))
    run = tmp_path / "job"
    (run / COLLECTED / "log").mkdir(parents=True)
    for gone in (tmp_path / "driver.db-wal", tmp_path / "another", run / COLLECTED / "log" / "segment-0.wtlog"):
        gone.symlink_to(tmp_path / "none")
    assert _last_alive(tmp_path) == 7.0
    (run / "rank-000000.ring").write_text("")
    assert run_folder(tmp_path) == run_folder(run) == run


def test_a_disk_that_is_nearly_full_is_told_once_and_when_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [1 << 20]

    def disk(folder: Path) -> Any:
        return SimpleNamespace(f_bavail=left[0], f_frsize=1 << 12, f_blocks=1 << 20)

    monkeypatch.setattr("os.statvfs", disk)
    watch = DiskWatch(tmp_path)
    assert watch.look(1.0) == []
    left[0] = 50 << 10  # 200 MiB of 4 GiB
    (alarm,) = watch.look(2.0)
    assert alarm.verdict is Verdict.DISK and not alarm.cleared and str(tmp_path) in alarm.text and "are left" in alarm.text
    assert watch.look(3.0) == []
    left[0] = 1 << 19
    assert [(over.cleared, over.seconds) for over in watch.look(4.0)] == [(True, 4.0)] and watch.look(5.0) == []
