"""Shared by verbs: options, output, and a progress sign after a second.

Options as typer reads them: parameters with their help. Shell completion: names of the catalogue, fields of a job. `windtunnel
--install-completion` sets it up.

A progress bar for work that takes over a second, and a Ctrl-C handler that keeps partial results.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from windtunnel.base import options as shared
from windtunnel.base.errors import FileError
from windtunnel.base.options import StatedOption, state_option

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.status import Status


def jobs(incomplete: str) -> list[str]:
    """Jobs, then models of the catalogue."""
    from windtunnel.spec import names

    return [name for name in (*names("jobs"), *names("models")) if name.startswith(incomplete)]


def machines(incomplete: str) -> list[str]:
    """Clusters, then jobs of the catalogue."""
    from windtunnel.spec import names

    return [name for name in (*names("clusters"), *names("jobs")) if name.startswith(incomplete)]


def fidelities(incomplete: str) -> list[str]:
    """The levels of network fidelity."""
    from windtunnel.base.fidelity import FIDELITIES

    return [name for name in FIDELITIES if name.startswith(incomplete)]


def models(incomplete: str) -> list[str]:
    """Models of the catalogue."""
    from windtunnel.spec import names

    return [name for name in names("models") if name.startswith(incomplete)]


def fields(incomplete: str) -> list[str]:
    """Fields of a job, such as `plan.tp=`."""
    from windtunnel.spec import Job
    from windtunnel.spec.loading.explain import paths

    return [f"{path}=" for path in paths(Job) if path.startswith(incomplete)]


TYPES: dict[str, Any] = {"text": str, "whole": int, "number": float, "flag": bool}


def annotation_of(one: StatedOption) -> Any:
    """What typer reads of a parameter that is this option."""
    offers = globals()[one.offers] if one.offers else None
    given: dict[str, Any] = {"help": one.help, "autocompletion": offers, "hidden": one.hidden}
    given |= {"metavar": one.metavar} if one.metavar else {}
    kind: Any = str if one.commas or (one.reads and not one.many) else TYPES[one.kind]
    if kind is str and one.many and not one.commas:
        kind = list[str]
    elif kind in (int, float):
        given |= {name: kind(value) for name, value in (("min", one.least), ("max", one.most)) if value is not None}
    if kind is not bool and (one.allowed or not one.is_required):
        kind = kind | None
    words = [word for word in (one.word, one.short) if word]
    return Annotated[kind, typer.Option(*words, **given) if words else typer.Argument(**given)]


def stated_alone(kind: str, name: str, option: Any) -> Any:
    """The same for an option that is no field of a class: `kind` and `name` as of one."""
    option.name, option.type = name, kind
    return annotation_of(state_option(option))


if TYPE_CHECKING:
    Sets = list[str] | None
    On = str | None
    Json = str | None
    Source = ModelFile = Megatron = None
    Quiet = bool
else:
    Sets = stated_alone("Sequence[str]", "sets", shared.sets())
    Source = stated_alone("str", "job", shared.source())
    On = stated_alone("str", "on", shared.on())
    ModelFile = stated_alone("str", "model", shared.model())
    Megatron = stated_alone("str", "megatron", shared.megatron())
    Json = stated_alone("str", "json", shared.json())
    Quiet = stated_alone("bool", "quiet", shared.quiet())


def fault_sets(faults: Sequence[str] | None, key: str) -> list[str]:
    """The `--set` that states these faults of the fabric at `key`."""
    return [f"{key}={json.dumps(list(faults))}"] if faults else []


Modes = Annotated[str, typer.Option("--modes", metavar="NAME,...", help="eager, compile, cuda_graph.")]
Device = Annotated[str, typer.Option("--device", help="auto, cuda, cuda:1, rocm or cpu.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Threads of a CPU.")]


def names_of(given: Any) -> list[str]:
    """Names of a command line, of an option for which Python takes objects too."""
    return [str(name) for name in given]


def write(text: str, path: str, option: str) -> None:
    """`text` into the file `path`, or to standard output for `-`; FileError if that fails."""
    if path == "-":
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return
    try:
        Path(path).write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(option, path, "a file that can be written", f"{reason}.") from error


def write_json(data: Any, path: str) -> None:
    """`data` as `report.json_text` writes it, for `--json`."""
    from windtunnel.base.json_text import json_text

    write(json_text(data), path, "--json")


def writable(*targets: tuple[str, str | None]) -> None:
    """FileError for the first (option, path) that names a directory or lies in none, before any work is done."""
    for option, path in targets:
        if path is None or path == "-":
            continue
        try:
            parent_missing, folder = not Path(path).absolute().parent.is_dir(), Path(path).is_dir()
        except (OSError, ValueError) as error:
            raise FileError(option, path, "a file that can be written", f"{error}.") from error
        if folder:
            raise FileError(option, path, "a file that can be written", "It is a directory.")
        if parent_missing:
            raise FileError(option, path, "a file that can be written", f"There is no directory {str(Path(path).parent)!r}.")


def notes() -> Console:
    """Console on standard error, for messages beside the result."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def is_terminal() -> bool:
    """Whether standard error may be a terminal, asked without rich: it is one, or the environment says that it counts as one."""
    forced = any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))
    try:
        return forced or sys.stderr.isatty()
    except ValueError:  # it is closed
        return False


def print_list(lines: Sequence[str], title: str, most: int = 12) -> None:
    """A short list on standard error; nothing for an empty one."""
    if lines:
        console = notes()
        console.print(f"{title}:", style="bold", markup=False)
        for line in lines[:most]:
            console.print(f"  {line}", markup=False)
        if len(lines) > most:
            console.print(f"  and {len(lines) - most} more", markup=False)


@contextmanager
def show_spinner(what: str) -> Iterator[None]:
    """A spinner on standard error once the work has taken a second, if standard error is a terminal."""
    if not is_terminal():
        yield
        return
    shown: list[Status] = []

    def begin() -> None:
        console = notes()
        if console.is_terminal:  # rich knows more reasons for none, such as TTY_COMPATIBLE=0
            shown.append(console.status(what))
            shown[0].start()

    timer = threading.Timer(1.0, begin)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        for status in shown:
            status.stop()


_BETWEEN = 0.1  # seconds

watchers: list[Callable[[str, float | None], None]] = []
"""Called with what is done and its finished share (None: not known), where another program shows the progress of a command."""


def tell_watchers(what: str) -> Callable[[float], None]:
    """The report of a share to `watchers`, at most ten times a second; the first one is told at once."""
    following = time.monotonic()

    def report(share: float) -> None:
        nonlocal following
        if time.monotonic() >= following:
            following = time.monotonic() + _BETWEEN
            for watcher in watchers:
                watcher(what, share)

    for watcher in watchers:
        watcher(what, None)
    return report


@contextmanager
def bar(what: str) -> Iterator[Callable[[float], None]]:
    """Yields a function that takes the finished share.

    The bar is drawn on standard error if that is a terminal, from the first report after a second on.
    """
    if watchers:
        yield tell_watchers(what)
        return
    if not is_terminal():
        yield _no_report
        return
    shown: Progress | None = None
    following = time.monotonic() + 1.0

    def report(share: float) -> None:
        nonlocal following, shown
        if time.monotonic() <= following:
            return
        following = time.monotonic() + _BETWEEN
        shown = shown or _progress(what)
        if shown.console.is_terminal:
            shown.start()
            shown.update(shown.task_ids[0], completed=share)

    try:
        yield report
    finally:
        if shown is not None and shown.live.is_started:
            shown.stop()


def _no_report(share: float) -> None:
    """The report of a share where no terminal shows it."""


def _progress(what: str) -> Progress:
    """The bar; rich is imported here, so that work of less than a second does not pay for it."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    shown = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=notes(), transient=True)
    shown.add_task(what, total=1.0)
    return shown


@contextmanager
def stoppable(what: str) -> Iterator[Callable[[float], bool]]:
    """Yields a bar's function that also returns whether to stop.

    The first Ctrl-C asks the work to stop at its next report; the second one ends it at once.
    """
    stop_requested = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop_requested.is_set():
            raise KeyboardInterrupt
        stop_requested.set()

    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, ask) if here else None
    try:
        with bar(what) as shown:

            def report(share: float) -> bool:
                shown(share)
                return stop_requested.is_set()

            yield report
    finally:
        if here:
            signal.signal(signal.SIGINT, before)
