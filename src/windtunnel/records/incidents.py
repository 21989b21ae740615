"""The incident log of a job: one JSON line for every fault, in `incidents.jsonl` of the run's folder, and the ETTR that it gives.

Who keeps a job alive appends a line when an incident is over, or is as far as it will get. A later line with the number of an
earlier one replaces it, so that an incident may be written while it is open and again when it has ended.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from windtunnel.base.dataclasses import asdict, dataclass, field
from windtunnel.base.errors import FileError, SpecError

FILE = "incidents.jsonl"

Class = Literal[
    "crash",
    "hang",
    "agent-lost",
    "node-lost",
    "slow",
    "traffic-gone",
    "link",
    "nan",
    "oom",
    "segfault",
    "cuda",
    "nccl",
    "data",
    "early-exit",
    "storage",
    "checkpoint",
    "gpu",
    "planned",
]
Action = Literal["retry", "rejoin", "replace", "shrink", "stop", "none"]
Outcome = Literal["recovered", "stopped", "ignored", "open"]


@dataclass(frozen=True)
class IncidentSeconds:
    """Where an incident's seconds went, None where it is not known."""

    detect: float | None = None
    """From the fault until it was seen."""
    diagnose: float | None = None
    """For self-tests and the decision."""
    wait: float | None = None
    """Waiting for a node."""
    start: float | None = None
    """From the order to start until all ranks have their group."""
    load: float | None = None
    """Reading the checkpoint."""
    replay: float | None = None
    """Doing the lost steps again, where it was measured."""

    @property
    def down(self) -> float:
        """Seconds in which nothing trained: all but `replay`."""
        return math.fsum(each for name, each in asdict(self).items() if each is not None and name != "replay")


@dataclass(frozen=True)
class Incident:
    """One fault and what was done about it."""

    number: int
    job: str
    began: float
    """Seconds since 1970, as well as it is known."""
    seen: float
    """Seconds since 1970 when it was detected."""
    what: Class
    """Class of the fault."""
    node: str | None = None
    """The node, as far as it is known."""
    ranks: tuple[int, ...] = ()
    """The ranks, as far as they are known."""
    evidence: str = ""
    """What was seen, as text."""
    action: Action = "none"
    attempt: int = 0
    """Which restart of the job this was."""
    seconds: IncidentSeconds = field(default_factory=IncidentSeconds)
    from_step: int | None = None
    """The step from which training went on."""
    lost_steps: int | None = None
    """Number of steps that were done before and had to be done again."""
    outcome: Outcome = "open"

    @property
    def is_replay_unknown(self) -> bool:
        """Whether steps may have been repeated and nothing tells how many: the job was started again, and what it loaded is not
        known."""
        restarted = self.action in ("retry", "rejoin", "replace", "shrink") and self.outcome != "open"
        return restarted and self.lost_steps is None and self.seconds.replay is None

    @property
    def ended(self) -> float:
        """Seconds since 1970 when training went on, before the lost steps were done again."""
        return self.began + self.seconds.down


def append_incident(path: str | Path, incident: Incident) -> None:
    """Adds the incident's line to the file, in one write that is on disk when this returns. FileError if it cannot be."""
    line = msgspec.json.encode(incident) + b"\n"
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            end = os.fstat(handle).st_size
            torn = end > 0 and os.pread(handle, 1, end - 1) != b"\n"
            os.write(handle, b"\n" + line if torn else line)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise FileError(str(path), error.strerror or str(error), "a file that can be appended to") from error


def read_incidents(path: str | Path) -> tuple[Incident, ...]:
    """The incidents of a run, by number; `path` is the file or the run's folder. None where there is no file.

    A line without its end, as a killed writer leaves it, is left out. FileError for any other line that is no incident.
    """
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    try:
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise FileError(str(file), error.strerror or str(error), "a readable incident log") from error
    found: dict[int, Incident] = {}
    for at, line in enumerate(lines, start=1):
        read = _read(line, file, at)
        if read is not None:
            found[read.number] = read
    return tuple(found[number] for number in sorted(found))


def _read(line: bytes, file: Path, at: int) -> Incident | None:
    """The incident of a line; None for an empty one, or one that is torn (no JSON object: its writer died)."""
    try:
        value = msgspec.json.decode(line) if line.strip() else None
    except msgspec.DecodeError:
        return None
    if not isinstance(value, dict):
        return None
    try:
        return incident_of(value)
    except SpecError as error:
        raise FileError(str(file), f"line {at}: {error}"[:200], "lines that windtunnel wrote as incidents") from error


def incident_of(value: Mapping[str, Any]) -> Incident:
    """An `Incident` from its JSON object. SpecError for a field that lacks, has another type or a class that is unknown;
    fields that are not known are left out."""
    try:
        return msgspec.convert(value, Incident)
    except msgspec.ValidationError as error:
        raise SpecError("incident", value, "an object with the fields of records.incidents.Incident", f"{error}.") from error


def ettr(incidents: Iterable[Incident], began: float, ended: float, step: float, blocked: float = 0.0) -> float:
    """Effective training time ratio of a run from `began` to `ended` (seconds since 1970): productive time over wall time.

    Productive is what is left of the wall time without the incidents' detect, diagnose, wait, start and load, without `blocked`
    (seconds in which saves of checkpoints held training up) and without the work that was done twice: `replay` where it was
    measured, else `lost_steps` times `step` (seconds of a step). Replayed steps are lost once: it is either their first or their
    second time. Where two incidents are down at the same time, the time counts once. SpecError where `ended` is not after `began`.
    """
    wall = ended - began
    if not (math.isfinite(wall) and wall > 0.0):
        raise SpecError("ended", ended, f"a time after {began}")
    every = list(incidents)
    lost = _covered_seconds([(max(one.began, began), min(one.ended, ended)) for one in every])
    return max(0.0, wall - lost - sum(replayed_seconds(one, step) for one in every) - blocked) / wall


def replayed_seconds(incident: Incident, step: float) -> float:
    """Seconds of work of an incident that is done twice; `step`: seconds of a step."""
    if incident.seconds.replay is not None:
        return incident.seconds.replay
    return (incident.lost_steps or 0) * step


def _covered_seconds(spans: list[tuple[float, float]]) -> float:
    """Length of the union of intervals."""
    total, reached = 0.0, -math.inf
    for start, end in sorted(spans):
        if end > max(start, reached):
            total += end - max(start, reached)
            reached = end
    return total
