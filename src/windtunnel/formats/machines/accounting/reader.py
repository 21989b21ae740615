"""Jobs of a cluster by how they ended, how long they ran and what they held; how often a node failed under one.

Which column of a table of jobs is what, from its header, or from the cells where `sacct --noheader` left it out.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.base.files import cells_of
from windtunnel.formats.head import Head, head_of
from windtunnel.formats.machines.accounting.values import NAN, count_of, held_of, outcome_of, seconds_of, time_of
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

MOST = 10_000_000
"""Jobs whose numbers are kept; further ones are counted."""
_WANTED = "a table of jobs: `sacct --parsable2 --format ALL`, LSF's, or a published trace"
_HOUR = 3600.0
_YEAR_9999 = 2.5e11


@dataclass
class _Jobs:
    """Columns of the jobs; NaN where a table does not say."""

    seconds: array[float] = field(default_factory=lambda: array("d"))
    wait: array[float] = field(default_factory=lambda: array("d"))
    gpus: array[float] = field(default_factory=lambda: array("d"))
    nodes: array[float] = field(default_factory=lambda: array("d"))
    first: float = float("inf")
    last: float = 0.0
    states: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    gpu_hours: dict[str, float] = field(default_factory=dict)
    job_steps: int = 0
    bad: int = 0


def recognises(head: Head) -> bool:
    """A header of jobs, or rows that look like those of sacct."""
    return layout_of(head.lines) is not None


def read(files: Sequence[Path], context: Context) -> Reading:
    """Counts of all files' jobs. FileError for files without a job."""
    jobs = _Jobs()
    broken: list[str] = []
    kind = ""
    for path in files:
        layout = layout_of(head_of(path).lines)
        if layout is None:
            broken.append(f"{path}: no table of jobs")
            continue
        kind = kind or layout.kind
        for number, text in enumerate(LogLines(path, context.progress, broken)):
            if number >= layout.header and text.strip() and not text.startswith("#"):
                _take(layout.split(text), layout, jobs)
    count = sum(jobs.outcomes.values())
    if not count:
        raise FileError(str(files[0]), "the header of a table of jobs, without a job", _WANTED)
    if jobs.bad:
        broken.append(f"{jobs.bad} lines with other columns than the header, or without a time")
    facts = _facts(jobs, count)
    built = [f"{count:,} jobs: {', '.join(f'{number:,} {name}' for name, number in jobs.outcomes.most_common())}"]
    if facts.get("node_hours_per_node_failure"):
        built.append(f"a node failed under a job every {facts['node_hours_per_node_failure']:,.0f} node-hours")
    assumed = ("times are of one zone",) if jobs.last else ()
    return Reading(f"jobs ({kind})", Content.SETTINGS, facts, facts, tuple(built), (), assumed, tuple(broken))


def _take(cells: list[str], layout: JobColumns, jobs: _Jobs) -> None:
    if len(cells) != layout.columns:
        jobs.bad += 1
        return
    cell = {key: cells[at] for key, at in layout.at.items()}
    if layout.kind == "sacct" and "." in cell.get("id", ""):
        jobs.job_steps += 1
        return
    submit, start, end = (time_of(cell.get(key, "")) for key in ("submit", "start", "end"))
    seconds = seconds_of(cell.get("seconds", ""))
    if not seconds >= 0 and end >= start:
        seconds = end - start
    state = cell.get("state", "").split(" by ")[0].rstrip("+")
    if "state" not in cell and "exit" in cell:
        state = "DONE" if cell["exit"].split(":")[0].strip() in ("0", "") else "EXIT"
    if not seconds >= 0 and not state and not submit >= 0:
        jobs.bad += 1
        return
    outcome = outcome_of(state) if state else "not stated"
    jobs.states[state or "not stated"] += len(jobs.states) < 100 or state in jobs.states
    jobs.outcomes[outcome] += 1
    for moment in (submit, start, end):
        if moment == moment:
            jobs.first, jobs.last = min(jobs.first, moment), max(jobs.last, moment)
    held = held_of(cell.get("tres", ""))
    gpus, nodes = count_of(cell.get("gpus", "")), count_of(cell.get("nodes", ""))
    gpus = gpus if gpus == gpus else float(held["gres/gpu"]) if "gres/gpu" in held else NAN
    nodes = nodes if nodes == nodes else float(held["node"]) if "node" in held else NAN
    if gpus == gpus and seconds == seconds:
        jobs.gpu_hours[outcome] = jobs.gpu_hours.get(outcome, 0.0) + gpus * seconds / _HOUR
    if len(jobs.seconds) < MOST:
        jobs.seconds.append(seconds)
        jobs.wait.append(start - submit if start >= submit else NAN)
        jobs.gpus.append(gpus)
        jobs.nodes.append(nodes)


def _facts(jobs: _Jobs, count: int) -> dict[str, Any]:
    """Counts and middles by stable keys; what no job states is left out."""
    seconds, wait, gpus, nodes = (np.frombuffer(column, np.float64) for column in (jobs.seconds, jobs.wait, jobs.gpus, jobs.nodes))
    facts: dict[str, Any] = {"jobs": count, "job_steps": jobs.job_steps, "states": dict(jobs.states.most_common())}
    facts["outcomes"] = dict(jobs.outcomes.most_common())
    if jobs.last > 0:
        facts["first"], facts["last"] = _format_moment(jobs.first), _format_moment(jobs.last)
    facts |= _spread("seconds", seconds) | _spread("wait_seconds", wait)
    if np.isfinite(gpus).any():
        facts["gpu_jobs"] = int((gpus > 0).sum())
        facts["most_gpus"] = float(np.nanmax(gpus))
        facts["gpu_hours"] = {name: round(hours, 2) for name, hours in jobs.gpu_hours.items()}
    if np.isfinite(nodes).any():
        facts["multi_node"] = int((nodes > 1).sum())
        facts["most_nodes"] = float(np.nanmax(nodes))
        hours = float(np.nansum(nodes * seconds)) / _HOUR
        facts["node_hours"] = round(hours, 2)
        facts["node_failures"] = jobs.outcomes["node failed"]
        if jobs.outcomes["node failed"]:
            facts["node_hours_per_node_failure"] = round(hours / jobs.outcomes["node failed"], 1)
    return facts


def _spread(name: str, values: Any) -> dict[str, float]:
    known = values[np.isfinite(values)]
    if not len(known):
        return {}
    return {f"median_{name}": float(np.median(known)), f"mean_{name}": float(known.mean()), f"most_{name}": float(known.max())}


def _format_moment(moment: float) -> str | float:
    """A date where the number is one since 1970, else the number: traces count from their own begin."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S") if 5e8 < moment < _YEAR_9999 else moment


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
