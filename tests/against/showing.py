"""Runs commands with the windtunnel that this Python has, and keeps what they write; run by both sides, by public names only.

    python showing.py COMMANDS.json OUT INPUTS [--jobs J] [--cold]

COMMANDS.json: `[[name, line], …]`; a line is the words after `windtunnel`, or Python after `python:`. `NAME=value` in front of it
goes into its environment; COPY=FOLDER copies a folder of inputs, for a command that changes it. OUT gets a folder a command with
`command`, `stdout`, `stderr`, `status`, and the files that it wrote into its working folder, where `in` is INPUTS.
"""

from __future__ import annotations

import argparse
import importlib
import io
import itertools
import json
import os
import pkgutil
import re
import shlex
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

SECONDS = 300
"""A command that takes longer is ended; on an idle machine none takes 20."""
YEAR_2100 = 4_102_444_800
"""Unix seconds, after all that the inputs were written at."""


def warm() -> None:
    """All modules of windtunnel, so that no command pays for its imports."""
    import windtunnel

    for module in pkgutil.walk_packages(windtunnel.__path__, "windtunnel.", onerror=lambda name: None):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except (ImportError, OSError):  # of an extra that is not installed
                continue


def still_clocks() -> None:
    """Clocks of this process that are the same in every run: each look is 1/64 s after the last one. Outputs say how long a search
    took and how old a checkpoint is."""

    def ticking(start: int) -> Callable[[], float]:
        looks = itertools.count(64 * start)
        return lambda: next(looks) / 64

    for name in ("perf_counter", "process_time", "monotonic"):
        setattr(time, name, ticking(1000))
    unix = ticking(YEAR_2100)
    time.time = unix
    time.time_ns = lambda: int(unix() * 1000000000.0)


def shown(line: str) -> int:
    """The exit status of a line, run in this process."""
    if line.startswith("python:"):
        import windtunnel as wt

        exec(compile(line.removeprefix("python:").strip(), "python", "exec"), {"wt": wt, "__name__": "face"})
        return 0
    from windtunnel.cli import main

    words = shlex.split(line)
    for word in [word for word in words if word.startswith("COPY=")]:
        words.remove(word)
        shutil.copytree(word.removeprefix("COPY="), Path(word).name)
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        os.environ[name] = value
        if name == "PYTHONIOENCODING" and isinstance(sys.stdout, io.TextIOWrapper):  # it was opened before
            sys.stdout.reconfigure(encoding=value)
    sys.argv = ["windtunnel", *words]
    return main(words)


def start(line: str, folder: Path, inputs: Path) -> int:
    """A process of its own with the line, in `folder`; returns its id."""
    folder.mkdir(parents=True)
    (folder / "in").symlink_to(inputs)
    sys.stdout.flush()
    if child := os.fork():
        return child
    code = 70
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        still_clocks()
        code = shown(line)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException as error:  # noqa: BLE001 - the last line of its traceback, without lines of source that may move
        sys.stderr.write("crashed: " + "".join(traceback.format_exception_only(error)))
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def finish(line: str, folder: Path, status: str, hidden: dict[str, str]) -> None:
    """Writes the command and its status beside its output, in which `hidden` strings are replaced."""
    (folder / "in").unlink()
    (folder / "command").write_text(line + "\n", encoding="utf-8")
    (folder / "status").write_text(status + "\n", encoding="utf-8")
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        data = path.read_bytes()
        for text, instead in hidden.items():
            data = data.replace(text.encode(), instead.encode())
        path.write_bytes(data)


def main() -> int:
    """0 when every command has ended, however."""
    parser = argparse.ArgumentParser()
    parser.add_argument("commands", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cold", action="store_true", help="import nothing before the commands do: for few of them")
    arguments = parser.parse_args()
    out, inputs = arguments.out.resolve(), arguments.inputs.resolve()
    import windtunnel

    source = str(Path(windtunnel.__file__).resolve().parent)
    print(f"windtunnel of {source}", file=sys.stderr)
    if not arguments.cold:
        warm()
    # All that is taken out of an output, beside clocks (`still_clocks`): where it ran, and the version.
    hidden = {source: "<windtunnel>", str(inputs): "<inputs>", str(out): "<out>", windtunnel.__version__: "<version>"}
    todo: list[tuple[str, str]] = json.loads(arguments.commands.read_text(encoding="utf-8"))[::-1]
    running: dict[int, tuple[str, str, float]] = {}
    took: list[tuple[float, str]] = []
    while todo or running:
        while todo and len(running) < arguments.jobs:
            name, line = todo.pop()
            shutil.rmtree(out / name, ignore_errors=True)
            running[start(line, out / name, inputs)] = (name, line, time.monotonic())
        child, state, _ = os.wait4(-1, os.WNOHANG)
        if not child:
            for late, (_, _, since) in running.items():
                if time.monotonic() - since > SECONDS:
                    os.killpg(late, signal.SIGKILL)
            time.sleep(0.005)
            continue
        name, line, since = running.pop(child)
        took.append((time.monotonic() - since, f"{name}: {line}"))
        status = str(os.waitstatus_to_exitcode(state)) if time.monotonic() - since <= SECONDS else "not ended in its time"
        finish(line, out / name, status, hidden)
    for seconds, line in sorted(took, reverse=True)[:8]:
        print(f"{seconds:6.1f} s  {line[:140]}", file=sys.stderr)
    print(f"{len(took)} commands, {sum(seconds for seconds, _ in took):.0f} s of one process", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
