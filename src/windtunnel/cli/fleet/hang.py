"""`windtunnel fleet hang RUN`: who holds a job up that does not move."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windtunnel.cli.shared.common import Json, told, writable, write_json

EXAMPLES = """\b
Examples:
  windtunnel fleet hang out/fleet
  windtunnel fleet hang http://10.0.0.5:8470
  windtunnel fleet hang dumps/nccl_trace_rank_*
"""


def command(
    files: Annotated[
        list[str],
        typer.Argument(metavar="RUN|URL|DUMP...", help="A watched run or its collector, or flight-recorder dumps of PyTorch."),
    ],
    json: Json = None,
) -> None:
    from rich.console import Console

    from windtunnel.fleet.api import find_hang
    from windtunnel.fleet.sources import is_url
    from windtunnel.formats.door import list_files
    from windtunnel.formats.traces.flight_recorder.reader import read_dumps
    from windtunnel.report.fleet.hang import show_hang

    writable(("--json", json))
    if len(files) == 1 and (is_url(files[0]) or _watched(Path(files[0]))):
        facts = find_hang(files[0])
    else:
        dumps = [path for one in files for path in list_files(Path(one))]
        reading = read_dumps(dumps)
        told(reading.broken, "could not be read")
        facts = reading.facts["hang"]
    if json is not None:
        write_json(facts, json)
    if json != "-":
        show_hang(facts, Console())


def _watched(path: Path) -> bool:
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
