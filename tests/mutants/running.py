"""Runs mutants against collected tests: pytest collects once, and each mutant is put into a fork of that process.

First every test runs once without a mutant, to see which functions it calls and how long it takes. A mutant then runs those tests
only that call its function: those near its room first, within them the short ones first, until one fails.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from .operators import Mutant
from .patch import outermost, put_in, remembering_functions
from .rooms import ROOT, SRC, near, wide

WORK = ROOT / "build" / "mutants"
MOST_SECONDS = 60.0
"""Tests of a mutant, by the time that they take without it, unless asked otherwise: what is left over is not run."""
WATCHED = 300.0
"""CPU seconds for the calls of a file of tests to be written down; its tests behind that are left out."""
TESTED = 60.0
"""The same for one test, which fails then."""
WAITED = 60.0
"""Seconds of a clock for one test: some wait for processes, which see no mutant, or which a fork cannot have."""
MEMORY = 6 << 30
"""Bytes that a test may map beyond what the process has."""


@dataclass
class Calls:
    """What tests do without a mutant: seconds by test, functions `file function` that each calls, tests that fail by themselves."""

    seconds: dict[str, float] = field(default_factory=dict)
    functions: dict[str, list[str]] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)

    def tests_of(self, function: str, first: list[str], most: float) -> list[str]:
        """Tests that call a function: those of files `first` in front, the short ones first, at most `most` seconds of them."""
        rank = {name: at for at, name in enumerate(first)}
        calling = [test for test, called in self.functions.items() if function in called]
        calling.sort(key=lambda test: (test.split("::")[0] not in rank, self.seconds[test]))
        kept, total = [], 0.0
        for test in calling:
            total += self.seconds[test]
            if total > most and kept:
                break
            kept.append(test)
        return kept


class Runner:
    """A pytest plugin that runs `work(runner)` in place of the collected tests."""

    def __init__(self, work: Callable[[Runner], None]) -> None:
        self.work, self.items = work, dict[str, pytest.Item]()

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self) -> None:
        """The examples of `make test`; one that kills a mutant need not be shrunk."""
        from hypothesis import HealthCheck, Phase, settings  # not before pytest has rewritten its plugins

        settings.register_profile(
            "mutants", derandomize=True, deadline=None, max_examples=40, database=None,
            phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck),
        )  # fmt: skip

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        for marker in ("torch", "slurm", "browser"):
            self.items = {name: item for name, item in self.items.items() if item.get_closest_marker(marker) is None}
        self.work(self)
        return True

    def run(self, tests: list[str], after: Callable[[str, float], None] | None = None) -> str:
        """Runs tests in this process until one fails; its name, or nothing. With `after(test, CPU seconds)`, which is told of each
        test, it goes on."""
        reporter = self.session.config.pluginmanager.get_plugin("terminalreporter")
        reporter._tw._file = io.StringIO()  # it writes to a copy of the parent's output
        for at, name in enumerate(tests):
            item = self.items[name]
            following = self.items[tests[at + 1]] if at + 1 < len(tests) else None
            failed, begin = self.session.testsfailed, time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if after is not None:
                after(name, time.process_time() - begin)
            elif self.session.testsfailed > failed:
                return name
        return ""

    def in_forks(self, tasks: Iterable[tuple[str, float, Callable[[], Any]]], jobs: int) -> Iterator[tuple[str, Any]]:
        """Runs tasks (name, CPU seconds allowed, what to do) in forks, `jobs` at a time: name and result of each as it ends.

        The result is None where the fork died or used up its time.
        """
        running: dict[int, tuple[str, float, Path]] = {}
        try:
            yield from self._forks(tasks, jobs, running)
        finally:
            for process in running:
                _end(process)

    def _forks(
        self, tasks: Iterable[tuple[str, float, Callable[[], Any]]], jobs: int, running: dict[int, tuple[str, float, Path]]
    ) -> Iterator[tuple[str, Any]]:
        waiting = iter(tasks)
        following = next(waiting, None)
        while following is not None or running:
            while following is not None and len(running) < jobs:
                name, seconds, do = following
                folder = WORK / "forks" / f"{len(running)}-{time.monotonic_ns()}"
                folder.mkdir(parents=True)
                running[_forked(do, seconds, folder)] = (name, time.monotonic() + 10 * seconds + 60, folder)
                following = next(waiting, None)
            time.sleep(0.02)
            for process, (name, limit, folder) in list(running.items()):
                over = time.monotonic() > limit
                if over:
                    _end(process)
                if os.waitpid(process, 0 if over else os.WNOHANG)[0]:
                    del running[process]
                    _end(process)
                    told = folder / "result.json"
                    yield name, json.loads(told.read_text(encoding="utf-8")) if told.exists() else None
                    shutil.rmtree(folder, ignore_errors=True)


def _forked(do: Callable[[], Any], seconds: float, folder: Path) -> int:
    """A child that does something, with its own session, temporary files and limits; its id."""
    process = os.fork()
    if process:
        return process
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = os.environ["TMPDIR"] = str(folder)
        used = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds) + 1, int(used + seconds) + 5))
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
        result = do()
        _keep(folder, result)
    finally:
        os._exit(0)


def _keep(folder: Path, result: Any) -> None:
    """What `_forks` reads, whole or not at all."""
    (folder / "part").write_text(json.dumps(result), encoding="utf-8")
    os.replace(folder / "part", folder / "result.json")


def _end(process: int) -> None:
    """Ends a child with all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def calls_of(runner: Runner, files: set[str], jobs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Runs the tests of files once, each file in a fork, with every call of the package written down: file and what `Calls` has."""
    tests: dict[str, list[str]] = {file: [] for file in files}
    for name in runner.items:
        if name.split("::")[0] in files:
            tests[name.split("::")[0]].append(name)
    tasks = [(file, WATCHED, _watching(runner, mine)) for file, mine in tests.items()]
    for at, (file, result) in enumerate(runner.in_forks(tasks, jobs)):
        print(f"\r{at + 1} of {len(files)} files of tests: {file[:80]:80}", end="", file=sys.stderr, flush=True)
        yield file, result or {"seconds": {}, "functions": {}, "failing": tests[file]}
    print(file=sys.stderr)


def _watching(runner: Runner, tests: list[str]) -> Callable[[], Any]:
    def watch() -> dict[str, Any]:
        seconds: dict[str, float] = {}
        functions: dict[str, list[str]] = {}
        failing: list[str] = []
        calls = {"seconds": seconds, "functions": functions, "failing": failing}
        seen: set[Any] = set()
        failed = runner.session.testsfailed
        remembering = remembering_functions()

        def called(frame: FrameType, event: str, argument: object) -> None:
            if event == "call":
                seen.add(frame.f_code)

        def too_long(number: int, frame: FrameType | None) -> None:
            raise TimeoutError(f"more than {TESTED:g} s of a processor, or {WAITED:g} s")

        def limit(processor: float, clock: float) -> None:
            signal.setitimer(signal.ITIMER_PROF, processor)
            signal.setitimer(signal.ITIMER_REAL, clock)

        def after(test: str, spent: float) -> None:
            nonlocal failed
            sys.setprofile(None)
            limit(0.0, 0.0)
            if runner.session.testsfailed > failed:
                failing.append(test)
            else:  # threads of the test that still run may add to `seen`
                functions[test] = sorted({name for code in list(seen) if (name := _function(code.co_filename, outermost(code)))})
                seconds[test] = spent
            failed = runner.session.testsfailed
            _keep(Path(os.environ["TMPDIR"]), calls)  # that of the fork: it may run out of time
            seen.clear()
            for one in remembering:  # what the next test would not call because this one has
                one.cache_clear()
            threading.setprofile(called)
            limit(TESTED, WAITED)
            sys.setprofile(called)

        signal.signal(signal.SIGPROF, too_long)
        signal.signal(signal.SIGALRM, too_long)
        limit(TESTED, WAITED)
        sys.setprofile(called)
        runner.run(tests, after)
        sys.setprofile(None)
        limit(0.0, 0.0)
        return calls

    return watch


def _function(file: str, name: str) -> str:
    return f"{Path(file).relative_to(SRC)} {name}" if file.startswith(str(SRC)) else ""


@dataclass(frozen=True)
class Fate:
    """What became of a mutant: killed by a test of its `room` or by a `wide` one, out of `time`, `survived`, or called by no test
    (`unseen`). `tests`: how many ran at most."""

    how: str
    test: str
    tests: int


def fates(
    runner: Runner, calls: Calls, mutants: list[tuple[str, Mutant]], jobs: int, most: float = MOST_SECONDS
) -> Iterator[tuple[str, Mutant, Fate]]:
    """(room, mutant) → what became of each, as it is known; `most`: seconds of tests for one."""
    by_name = {mutant.name + f" #{mutant.at}.{mutant.variant}": (room, mutant) for room, mutant in mutants}
    files = {room: [str(path.relative_to(ROOT)) for path in near(room)] for room in {room for room, _ in mutants}}
    chosen = {key: calls.tests_of(f"{mutant.file} {mutant.function}", files[room], most) for key, (room, mutant) in by_name.items()}
    for key, (room, mutant) in by_name.items():
        if not chosen[key]:
            yield room, mutant, Fate("unseen", "", 0)

    def trying(key: str) -> Callable[[], Any]:
        def attempt() -> str:
            return runner.run(chosen[key]) if put_in(by_name[key][1]) else "not put in"

        return attempt

    tasks = ((key, 20.0 + 3.0 * sum(calls.seconds[test] for test in tests), trying(key)) for key, tests in chosen.items() if tests)
    for key, result in runner.in_forks(tasks, jobs):
        room, mutant = by_name[key]
        own = {test for test in chosen[key] if test.split("::")[0] in files[room]}
        if result == "not put in":
            raise RuntimeError(f"the function of {mutant.name} is nowhere in the process")
        how = "time" if result is None else "survived" if not result else "room" if result in own else "wide"
        yield room, mutant, Fate(how, result or "", len(chosen[key]))


def started(rooms: list[str], work: Callable[[Runner], None]) -> int:
    """Collects the tests of rooms and the wide ones, and does `work` with them."""
    paths = list(dict.fromkeys(str(path.relative_to(ROOT)) for room in rooms for path in near(room)))
    paths += [str(path.relative_to(ROOT)) for path in wide(rooms) if str(path.relative_to(ROOT)) not in paths]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:benchmark", "--tb=no", "--hypothesis-profile=mutants"]
    os.chdir(ROOT)
    return int(pytest.main([*options, *paths], plugins=[Runner(work)]))
