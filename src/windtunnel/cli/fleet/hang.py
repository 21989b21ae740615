"""`windtunnel fleet hang RUN`: who holds a job up that does not move."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import print_list
from windtunnel.cli.shared.outputs import Outputs, with_outputs

EVIDENCE = (
    "a watched run, dumps of PyTorch's flight recorder, or a log with lines of NCCL's watchdog, ncclras, CUDA out of memory, "
    "torchrun's table of failures, Xid or other lines of the kernel, of a scheduler, or what torchfrtrace prints"
)


@with_outputs
def command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|URL|FILE...",
            help="A watched run or its collector, flight-recorder dumps, or a log with a job's last words.",
        ),
    ],
    *,
    outputs: Outputs,
) -> None:
    from windtunnel.fleet.api import find_hang
    from windtunnel.fleet.sources import is_url
    from windtunnel.formats.door import list_files, read_files
    from windtunnel.formats.logs.failures.whole import TEXTS, whole_hang
    from windtunnel.runs.fleet.hang_sheet import hang_sheet

    if len(files) == 1 and (is_url(files[0]) or _is_watched_run(Path(files[0]))):
        facts = find_hang(files[0])
    else:
        reading = read_files(files)
        print_list(reading.broken, "could not be read")
        print_list(reading.assumed, "assumed")
        found = reading.facts.get("hang")
        if reading.format in TEXTS:
            logs = [path for given in files for path in list_files(Path(given))]
            found = whole_hang(logs, None if found is None else (reading.format, found))
        if found is None:
            raise SpecError("RUN", f"{reading.format}, without a call that hangs", EVIDENCE)
        facts = found
    outputs.show(hang_sheet(facts), facts)


def _is_watched_run(path: Path) -> bool:
    """Whether a folder holds records of a watched run rather than dumps."""
    from windtunnel.base.errors import FileError
    from windtunnel.fleet.sources import run_folder

    if not path.is_dir():
        return False
    try:
        run_folder(path)
    except FileError:
        return False
    return True
