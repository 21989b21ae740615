"""Which column of a table of jobs is what, from its header, or from the cells where `sacct --noheader` left it out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windtunnel.base.text_files import cells_of
from windtunnel.formats.machines.accounting.values import outcome_of, seconds_of, time_of

_SPELLINGS = {
    "id": ("jobid", "jobidraw", "job", "id", "jobname", "name"),
    "state": ("state", "status", "podphase", "jobstatus", "finalstatus"),
    "exit": ("exitstatus", "exitcode"),
    "submit": ("submit", "submittime", "submittedtime", "creationtime", "arrivaltime", "arrival", "timestamp"),
    "start": ("start", "starttime", "scheduledtime", "begin"),
    "end": ("end", "endtime", "finishtime", "deletiontime", "finish"),
    "seconds": ("elapsed", "elapsedraw", "duration", "runtime", "durationsec"),
    "gpus": ("gpunum", "numgpus", "numgpu", "gpus", "ngpus", "allocgpus", "scalefactor"),
    "nodes": ("nodenum", "nnodes", "numhosts", "allocnodes", "nodes"),
    "tres": ("alloctres", "tres", "reqtres"),
}
"""Names of columns without signs and in small letters: sacct(1), LSF, Philly, Helios, Acme, PAI, Sia."""
_GAVEL = re.compile(r"[^\t]+ \(batch size \d+\)\t[^\t]+\t\S+\t[01]\t\d+\t[\d.]+\t\d+")
_DASHES = re.compile(r"-+(?:\s+-+)+\s*")
_SAMPLE = 40


@dataclass(frozen=True)
class JobColumns:
    """How to split a line, and where its cells are. `header`: lines before the first job."""

    kind: str
    split: Callable[[str], list[str]]
    at: dict[str, int]
    header: int
    columns: int


def layout_of(lines: Sequence[str]) -> JobColumns | None:
    """The layout of a table's first lines; None where they are no table of jobs."""
    rows = [(number, line) for number, line in enumerate(lines[:_SAMPLE]) if line.strip() and not line.startswith("#")]
    if not rows:
        return None
    (number, first), *rest = rows
    if _GAVEL.fullmatch(first):
        return JobColumns("gavel", _tabs, {"id": 0, "submit": 5, "gpus": 6}, number, 7)
    if rest and _DASHES.fullmatch(rest[0][1]):
        return _columns_by_width(first, rest[0])
    for sign, split in (("|", _pipes), ("\t", _tabs), (",", cells_of)):
        if first.count(sign) >= 2:
            cells = split(first)
            at = _columns_by_name(cells)
            if at is not None:
                kind = "sacct" if sign == "|" else "jobs"
                return JobColumns(kind, split, at, number + 1, len(cells))
            if sign == "|":
                return _columns_by_content([split(line) for _, line in rows], number)
    return None


def _columns_by_name(cells: Sequence[str]) -> dict[str, int] | None:
    """Columns of a header that tells jobs: how one ended or when it came, and how long it took."""
    plain = [re.sub(r"[^a-z]", "", cell.lower().split("%")[0]) for cell in cells]
    at = {key: min(found) for key, names in _SPELLINGS.items() if (found := [plain.index(name) for name in names if name in plain])}
    ends = "seconds" in at or {"start", "end"} <= at.keys()
    return at if ends and ({"state", "exit", "submit"} & at.keys()) else None


def _columns_by_content(rows: list[list[str]], header: int) -> JobColumns | None:
    """Columns by what their cells look like: a state, times of which the last three are submit, start and end, an elapsed time."""
    width = len(rows[0])
    rows = [row for row in rows if len(row) == width]
    if width < 5:
        return None

    def columns(test: Callable[[str], bool]) -> list[int]:
        return [at for at in range(width) if all(test(row[at]) for row in rows)]

    states = columns(lambda cell: outcome_of(cell) != "other")
    times = columns(lambda cell: "T" in cell and (time_of(cell) == time_of(cell) or cell == "Unknown"))
    lengths = columns(lambda cell: re.fullmatch(r"(?:\d+-)?\d\d:\d\d:\d\d", cell) is not None)
    if not states or len(times) < 2 or not lengths or any(seconds_of(row[lengths[0]]) < 0 for row in rows):
        return None
    at = {"id": 0, "state": states[0], "start": times[-2], "end": times[-1], "seconds": lengths[0]}
    if len(times) > 2:
        at["submit"] = times[0]
    tres = columns(lambda cell: not cell or "node=" in cell)
    if tres:
        at["tres"] = tres[-1]
    return JobColumns("sacct", _pipes, at, header, width)


def _columns_by_width(first: str, dashes: tuple[int, str]) -> JobColumns | None:
    """sacct's own columns, as wide as the dashes below their names."""
    number, line = dashes
    spans = [(match.start(), match.end()) for match in re.finditer(r"-+", line)]

    def split(text: str) -> list[str]:
        return [text[begin:end].strip() for begin, end in spans]

    at = _columns_by_name(split(first))
    return JobColumns("sacct", split, at, number + 1, len(spans)) if at is not None else None


def _pipes(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _tabs(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("\t")]
