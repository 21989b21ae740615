"""The process of one question: limits and walls first, then the verb's own code, with its output into files."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import WindtunnelError, explain_missing_module
from windtunnel.cli import GARBAGE
from windtunnel.service.questions import CORES, offered_verbs
from windtunnel.service.store.queue import StoredQuestion, error_table
from windtunnel.service.work.confine import confine

_PARENT_DEATH = 1
WORK, OUT = "work", "out"
"""Folders of a question: what it runs in, with its uploads; and its answer and log."""
_KEPT = ("LANG", "LC_ALL", "TZ", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYDANTIC_DISABLE_PLUGINS")


def run_child(
    question: StoredQuestion, scratch: Path, tell: int, memory: int, seconds: float, file_bytes: int, cores: int, readable:
    Sequence[Path] ) -> None:  # fmt: skip
    """Answers `question` in this process and ends it. `scratch` has the folders WORK and OUT; `tell` is where progress and at last
    the outcome are written, a line of JSON each; memory in bytes above what the process has, `seconds` of wall time.
    """
    code = 1
    try:
        _begin(scratch, tell, memory, seconds, file_bytes)
        _watch(tell)
        confine(scratch, readable)
        told = _answer(question, cores)
        code = 0
    except MemoryError:
        told = error_table("MemoryLimit", f"the question needs more memory than the {memory / 1e9:.3g} GB that it may have.")
    except BaseException as error:
        told = _explain_other(error, file_bytes)
    try:
        _say(tell, {"outcome": told})
    finally:
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def _begin(scratch: Path, tell: int, memory: int, seconds: float, file_bytes: int) -> None:
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL if number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD) else signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDONLY)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for handle, onto in (
        (null, 0),
        (os.open(scratch / OUT / "answer", flags, 0o600), 1),
        (os.open(scratch / OUT / "log", flags, 0o600), 2),
    ):
        os.dup2(handle, onto)
    os.closerange(3, tell)
    os.closerange(tell + 1, 65536)
    for name, stream in (("stdout", 1), ("stderr", 2)):
        setattr(sys, name, open(stream, "w", encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115 to the process's end
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    os.environ.clear()
    os.environ.update(kept, HOME=str(scratch / WORK), TMPDIR=str(scratch / OUT), PATH="/nowhere", NO_COLOR="1")
    os.chdir(scratch / WORK)
    os.umask(0o077)
    mapped = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    _limit(resource.RLIMIT_AS, mapped + memory)
    _limit(resource.RLIMIT_CPU, max(1, round(seconds)) + 1)
    _limit(resource.RLIMIT_FSIZE, file_bytes)
    _limit(resource.RLIMIT_NOFILE, 256)
    _limit(resource.RLIMIT_CORE, 0)
    gc.set_threshold(GARBAGE)


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _watch(tell: int) -> None:
    from windtunnel.cli.shared.common import watchers

    watchers.append(lambda what, share: _say(tell, {"doing": str(what)[:200], "share": None if share is None else float(share)}))


def _say(tell: int, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(tell, data) :]


def _answer(question: StoredQuestion, cores: int) -> dict[str, str] | None:
    """Runs the verb. Returns the error of a user's mistake, or None."""
    from windtunnel.cli import USAGE, run_words, usage_message
    from windtunnel.service.work.outcome import explain, explain_usage

    words = list(question.words)
    sys.argv = question.command.split() if not words else ["windtunnel", *words]
    end = words.index("--") if "--" in words else len(words)
    verb = offered_verbs()[question.verb]
    for name in CORES:  # how many cores, which is the service's matter
        option = verb.option(name)
        if option is not None:
            words = [word for at, word in enumerate(words) if at > end or not word.startswith(f"{option.word}=")]
            words.insert(len(verb.reached_by), f"{option.word}={cores}")
    if question.json:
        words[len(verb.reached_by) : len(verb.reached_by)] = ["--json", "-"]
    try:
        code = run_words(words)
    except USAGE as error:
        return explain_usage(error, usage_message(error))
    except WindtunnelError as error:
        return explain(error)
    sys.stdout.flush()
    return None if code == 0 else error_table("Failed", f"the command ended with exit code {code}; its log says why.")


def _explain_other(error: BaseException, file_bytes: int) -> dict[str, str]:
    """What is told of an error that no verb raises on purpose: never a traceback, which goes to the log of the server alone."""
    if isinstance(error, ModuleNotFoundError):
        missing = explain_missing_module(error)
        return error_table("NotInstalled", str(missing or f"the service has no package {(error.name or '').partition('.')[0]}."))
    if isinstance(error, PermissionError):
        name = Path(str(error.filename)).name if error.filename else ""
        hint, which = "Upload the file in `files`, or name something of the catalogue.", f", not {name!r}" if name else ""
        return error_table("FileError", f"a question may read its uploads and the catalogue alone{which}. {hint}",
                           "files", "a name of an upload or of the catalogue", hint)  # fmt: skip
    if isinstance(error, OSError) and error.errno == 27:
        return error_table("FileLimit", f"the question writes a file of more than {file_bytes / 1e9:.3g} GB.")
    if isinstance(error, OSError) and error.errno in (28, 122):
        return error_table("StoreFull", "the disk of the service is full: nothing was lost; free some of it and ask again.")
    if isinstance(error, RecursionError):
        return error_table("SpecError", "something in the question is nested too deeply.")
    import traceback

    traceback.print_exception(error, file=sys.__stderr__ if sys.stderr is None else sys.stderr)
    return error_table("InternalError", "the question met a fault of windtunnel; the log of the job says where.")
