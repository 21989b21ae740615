"""A Python process that is kept: it answers one request after another, so that what it imports is imported once.

`ran` runs code in a fork of it, which has what `preload` names and nothing else; `windtunnel` runs a command line in the process
itself, as the installed command does.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any

Ended = subprocess.CompletedProcess[str]


class KeptPython:
    """Started with the block, ended with it. `environment`: its variables, those of this process if None."""

    def __init__(self, preload: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *preload], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ran(self, code: str, *arguments: str) -> Ended:
        """`python -c code arguments`, in a fork."""
        return self._ask(code=code, arguments=arguments)

    def windtunnel(self, *words: str) -> Ended:
        """`windtunnel words`, in the process itself."""
        return self._ask(words=words)

    def _ask(self, **asked: Any) -> Ended:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        status, out, err = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess([], status, out, err)

    def __enter__(self) -> KeptPython:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def _serve() -> None:
    sys.path[0] = ""  # as of `python -c`, not the folder of this file
    for name in sys.argv[1:]:
        import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed past the answers belongs to none of them
    for line in sys.stdin:
        asked = json.loads(line)
        answer = _forked(asked["code"], asked["arguments"]) if "code" in asked else _called(asked["words"])
        print(json.dumps(answer), file=answers, flush=True)


def _forked(code: str, arguments: list[str]) -> tuple[int, str, str]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if not pid:
            _child(code, arguments, out.fileno(), err.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        return status, out.read(), err.read()


def _child(code: str, arguments: list[str], out: int, err: int) -> None:
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.argv[:] = ["-c", *arguments]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _called(words: list[str]) -> tuple[int, str, str]:
    from windtunnel.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    return status, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    _serve()
