"""`windtunnel fleet hang RUN`: who holds a job up that does not move."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windtunnel.cli.shared.common import Json, print_list, writable, write_json

EXAMPLES = """\b
Examples:
  windtunnel fleet hang out/fleet
  windtunnel fleet hang http://10.0.0.5:8470
  windtunnel fleet hang dumps/nccl_trace_rank_*
"""

STEPS = 20
"""The last steps that are read: a rank of a synchronous job is not further behind."""


def command(
    files: Annotated[
        list[str],
        typer.Argument(metavar="RUN|URL|DUMP...", help="A watched run or its collector, or flight-recorder dumps of PyTorch."),
    ],
    json: Json = None,
) -> None:
    from rich.console import Console

    from windtunnel.cli.fleet.source import aligned_run, is_url
    from windtunnel.fleet.findings.hang import hang_report
    from windtunnel.fleet.findings.liveness import HEARTBEAT, rank_states
    from windtunnel.fleet.stacks import stacks_of
    from windtunnel.formats.door import list_files
    from windtunnel.formats.traces.flight_recorder.reader import read_dumps
    from windtunnel.report.fleet.hang import show_hang

    writable(("--json", json))
    if len(files) == 1 and (is_url(files[0]) or _is_watched_run(Path(files[0]))):
        recorded, _ = aligned_run(files[0], STEPS)
        states, groups = rank_states(recorded.sections, recorded.beats, recorded.now)
        report = hang_report(states, groups, silence=2 * HEARTBEAT)
        facts = report.as_dict()
        facts["stacks"] = stacks_of(list(report.culprits), recorded.pids)
    else:
        dumps = [path for one in files for path in list_files(Path(one))]
        reading = read_dumps(dumps)
        print_list(reading.broken, "could not be read")
        facts = reading.facts["hang"]
    if json is not None:
        write_json(facts, json)
    if json != "-":
        show_hang(facts, Console())


def _is_watched_run(path: Path) -> bool:
    """Whether a folder holds records of a watched run rather than dumps."""
    from windtunnel.base.errors import FileError
    from windtunnel.cli.fleet.source import run_folder

    if not path.is_dir():
        return False
    try:
        run_folder(path)
    except FileError:
        return False
    return True
