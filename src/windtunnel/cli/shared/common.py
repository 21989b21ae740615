"""Shared by verbs: options, output, and a progress sign after a second."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from windtunnel.base.errors import FileError
from windtunnel.cli.shared import complete

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a field, such as plan.tp=4 of a job; repeatable.", autocompletion=complete.fields
    ),
]
Source = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="A job or a model of the catalogue, a job file, a config.json, or Megatron-LM flags.",
        autocompletion=complete.jobs,
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="JOB|CLUSTER|PROFILE",
        help="A cluster: the machine of a model or a job. A job: its machine, plan and runtime. A profile's .parquet: its device.",
        autocompletion=complete.machines,
    ),
]
ModelFile = Annotated[
    str | None, typer.Option("--model", metavar="CONFIG.JSON", help="Take the model from a Hugging Face config.json.")
]
Megatron = Annotated[
    str | None, typer.Option("--megatron", metavar="FLAGS", help="Take model, plan and runtime from Megatron-LM flags.")
]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE|-", help="Write JSON; - prints only that.")]
Network = Annotated[
    str, typer.Option("--network", help="Network fidelity: closed, flow or packet.", autocompletion=complete.fidelities)
]
Fault = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="PATTERN:EFFECT",
        help="flow, packet: n0.nic0--leaf*:down=10ms,up=11ms, leaf0.3--spine*:slow=0.5; packet: leaf0.3:loss=1e-5; repeatable.",
    ),
]
Beside = Annotated[
    list[str] | None,
    typer.Option(
        "--beside",
        metavar="'JOB [KEY=VALUE]...'",
        help="flow, packet: a job that runs on the same fabric at the same time, with changes of its fields; repeatable.",
    ),
]
Background = Annotated[
    list[str] | None,
    typer.Option(
        "--background",
        metavar="FLOWS[@PERIOD]",
        help="flow, packet: flows between the fabric's GPUs under the step, a CSV file or a pattern as of `flows`; repeatable.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the hashes that choose among equal-cost paths.")]
PacketThreads = Annotated[
    int, typer.Option("--threads", min=1, max=1024, help="packet: threads; the result is the same for any number.")
]


def fault_sets(faults: Sequence[str] | None, key: str) -> list[str]:
    """The `--set` that states these faults of the fabric at `key`."""
    return [f"{key}={json.dumps(list(faults))}"] if faults else []


Modes = Annotated[str, typer.Option("--modes", metavar="NAME,...", help="eager, compile, cuda_graph.")]
Device = Annotated[str, typer.Option("--device", help="auto, cuda, cuda:1, rocm or cpu.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Threads of a CPU.")]
Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="ID|FILE", help="GPU of kernel tables: a catalogue name, or a GPU's TOML file.")
]
Dtype = Annotated[str | None, typer.Option("--dtype", help="Number format of kernel tables that do not state it, such as bf16.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no report.")]


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
