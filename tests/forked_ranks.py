"""Ranks of a script, forked from one process that has imported torch once.

The script calls `serve(doors)`: lines of JSON on its stdin ask for ranks, their ends are told on its stdout.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

Said = list[list[dict[str, Any]]]
"""[rank][line] what the ranks of a job said."""


@dataclass(frozen=True)
class ForkedJob:
    """The ranks of one start: their process ids, and the file that each writes lines of JSON into."""

    pids: list[int]
    files: list[Path]

    def said(self) -> Said:
        """What each rank has said so far, whole lines only."""
        lines = [file.read_text().splitlines(keepends=True) if file.exists() else [] for file in self.files]
        return [[json.loads(line) for line in one if line.startswith("{") and line.endswith("\n")] for one in lines]


class RankForge:
    """A script that serves. `started` forks its ranks, `ended` waits for them, `killed` ends them with -9."""

    def __init__(self, script: Path, folder: Path) -> None:
        self._folder, self._jobs = folder, 0
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def started(self, what: str, world: int, arguments: list[Any], options: Mapping[str, Any]) -> ForkedJob:
        """Forks `world` ranks that call `what`."""
        from windtunnel.fleet.wire.sockets import free_port

        self._jobs += 1
        files = [self._folder / f"job-{self._jobs}-{rank}" for rank in range(world)]
        told = self._ask(
            what=what, port=free_port(), files=[str(file) for file in files], arguments=arguments, options=dict(options)
        )
        return ForkedJob(told["pids"], files)

    def ran(self, what: str, world: int, *arguments: Any, code: int = 0, **options: Any) -> Said:
        """What each rank of a job said, once all have ended with the exit code."""
        job = self.started(what, world, list(arguments), options)
        assert self.ended(job) == [code] * world
        return job.said()

    def ended(self, job: ForkedJob, seconds: float = 120.0) -> list[int]:
        """The exit codes of a job, negative for a signal; what still runs after `seconds` is killed."""
        codes: list[int] = self._ask(wait=job.pids, seconds=seconds)["codes"]
        return codes

    def killed(self, job: ForkedJob) -> None:
        """Ends all ranks of a job with -9."""
        for pid in job.pids:
            os.kill(pid, signal.SIGKILL)
        self.ended(job)

    def close(self) -> None:
        """Ends the script and whatever it has forked."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _ask(self, **what: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told


@functools.cache
def forge_of(script: Path) -> RankForge:
    """The one process of this script, which ends with the tests."""
    folder = tempfile.TemporaryDirectory()
    forge = RankForge(script, Path(folder.name))
    atexit.register(lambda: (forge.close(), folder.cleanup()))
    return forge


def agreed_digests(said: Said, at: int = 0) -> dict[str, str]:
    """Digests of all parameters by name, in line `at` of what each rank said; ranks that have the same parameter agree."""
    told: dict[str, str] = {}
    for rank in said:
        for name, digest in rank[at]["digests"].items():
            assert told.setdefault(name, digest) == digest
    return told


def serve(doors: Mapping[str, Callable[..., None]]) -> None:
    """Forks ranks that call one of `doors` until stdin ends; those that are left are killed."""
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, all modules of torch
    left: dict[int, int | None] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            answer: dict[str, Any] = {"codes": [_code(left, pid, time.monotonic() + asked["seconds"]) for pid in asked["wait"]]}
        else:
            pids = [_forked(doors[asked["what"]], asked, rank) for rank in range(len(asked["files"]))]
            left.update(dict.fromkeys(pids))
            answer = {"pids": pids}
        print(json.dumps(answer), flush=True)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _forked(door: Callable[..., None], asked: dict[str, Any], rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    output = os.open(asked["files"][rank], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(len(asked["files"])), MASTER_PORT=str(asked["port"]))
    leave_after(lambda: door(*asked["arguments"], **asked["options"]))


def leave_after(run: Callable[[], None]) -> NoReturn:
    """Ends this forked process with what `run` comes to: 0, or 1 and its traceback; nothing of the parent's is cleaned up."""
    code = 1
    try:
        run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _code(left: dict[int, int | None], pid: int, until: float) -> int:
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            left.pop(pid)
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
