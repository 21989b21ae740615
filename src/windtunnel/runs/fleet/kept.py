"""A run that was kept alive, as its folder tells it: incidents, and what the ranks wrote of their checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from windtunnel.base.errors import FileError, Nothing, SpecError
from windtunnel.fleet.recorded import recorded_of_rings
from windtunnel.goodput.measured import FleetRun
from windtunnel.records.incidents import FILE, Incident, read_incidents, replayed_seconds
from windtunnel.records.sections import Section

EVENTS = "checkpoints-*.jsonl"
PLAN = "driver/plan.json"
"""What the driver writes when a job begins."""
_STEPS_HINT = "Type --step SECONDS, and --interval SECONDS of training between checkpoints."


@dataclass(frozen=True)
class CheckpointEvent:
    """A line that a rank wrote: a load, a save, its commit, or one that failed. `unix`: when it ended. `source` of a load: storage,
    memory or neighbour; `why` a save failed, or which steps a load passed over."""

    event: str
    step: int
    unix: float
    blocking_seconds: float | None = None
    seconds: float | None = None
    source: str = ""
    why: str = ""


def is_kept(folder: str | Path) -> bool:
    """Whether this is the folder of a run with an incident log."""
    return (Path(folder) / FILE).is_file()


def fleet_run(
    folder: str | Path, nodes: int = 1, step: float | None = None, interval: float | None = None, spares: int = 0
) -> FleetRun:
    """The run of a folder. Seconds of a `step` and of the `interval` between checkpoints come from the ranks' saves, the step of a
    run without saves from its rings, where they are not given. It lasts from its first known moment to its last. SpecError where
    nothing tells a step's time, FileError for lines that are no events."""
    incidents, ranks = read_incidents(folder), [one for one in _ranks(Path(folder)) if one]
    if not incidents and not ranks:
        got = "no incident and no checkpoint" if Path(folder).is_dir() else "no folder"
        raise FileError(str(folder), got, f"a run's folder with {FILE}", "`windtunnel fleet run --nodes N` writes it.")
    saves = [_saves(rank) for rank in ranks]
    counted = max(saves, key=lambda rank: sum(one.blocking_seconds or 0.0 for one in rank), default=[])
    between = [pair for rank in saves for pair in pairwise(rank) if pair[1].step > pair[0].step and not _struck(pair, incidents)]
    paces = [(late.unix - early.unix - (late.blocking_seconds or 0.0)) / (late.step - early.step) for early, late in between]
    ringed, last = _ringed(Path(folder)) if step is None and not paces else (None, None)
    step = step if step is not None else median(paces) if paces else ringed
    if step is None or step <= 0.0:
        raise SpecError("step", step if step is not None else Nothing(), "seconds of a step above zero", _STEPS_HINT)
    apart = median(late.step - early.step for early, late in between) if between else 1
    began, ended = _span(Path(folder), incidents, ranks, saves, step, last)
    return FleetRun(
        incidents=incidents,
        began=began,
        ended=ended,
        nodes=nodes,
        step=step,
        interval=interval if interval is not None else apart * step,
        saves=tuple(one.blocking_seconds or 0.0 for one in counted),
        flush=_flush(ranks),
        spares=spares,
        went_on=_went_on(incidents, ranks),
    )


def _ranks(folder: Path) -> Iterator[list[CheckpointEvent]]:
    """Events of each rank, in the order in which they were written; a torn last line is left out."""
    for file in sorted(folder.glob(EVENTS)):
        lines = file.read_bytes().split(b"\n")
        events = []
        for at, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                events.append(msgspec.json.decode(line, type=CheckpointEvent))
            except (msgspec.ValidationError, msgspec.DecodeError) as error:
                if at == len(lines):
                    continue
                raise FileError(str(file), f"line {at}: {error}"[:200], "events of checkpoints") from error
        yield events


def _saves(rank: Sequence[CheckpointEvent]) -> list[CheckpointEvent]:
    return [one for one in rank if one.event == "save"]


def _struck(pair: tuple[CheckpointEvent, CheckpointEvent], incidents: Sequence[Incident]) -> bool:
    """Whether an incident came between two saves."""
    return any(pair[0].unix < one.ended and one.began < pair[1].unix for one in incidents)


def _went_on(incidents: Sequence[Incident], ranks: Sequence[Sequence[CheckpointEvent]]) -> dict[int, str]:
    """Incident -> what the ranks said of the first load after it, by the lowest rank that said something."""
    told: dict[int, str] = {}
    ends = [one.began for one in incidents[1:]] + [float("inf")]
    for incident, end in zip(incidents, ends, strict=False):
        loads = [one for rank in ranks for one in rank if one.event == "load" and incident.seen < one.unix < end]
        if loads:
            first = next((one for one in loads if one.why), loads[0])
            source = f", read from {first.source}" if first.source else ""
            told[incident.number] = f"went on from step {first.step:,}{source}" + (f"; {first.why}" if first.why else "")
    return told


def _flush(ranks: Sequence[Sequence[CheckpointEvent]]) -> float:
    """Seconds from a save to its commit, the middle one."""
    waits = []
    for rank in ranks:
        saved: dict[int, float] = {}
        for one in rank:
            if one.event == "save":
                saved[one.step] = one.unix
            elif one.event == "commit" and one.step in saved:
                waits.append(max(0.0, one.unix - saved.pop(one.step)))
    return median(waits) if waits else 0.0


def _ringed(folder: Path) -> tuple[float | None, float | None]:
    """Seconds of the middle step in the rings, and unix seconds of their last record; None where there are none."""
    try:
        sections = recorded_of_rings(folder).sections
    except FileError:
        return None, None
    steps = sections.seconds[sections.section == Section.STEP]
    steps = steps[np.isfinite(steps)]
    if not len(steps):
        return None, None
    return float(np.median(steps)), sections.zero + float(np.nanmax(sections.begin + np.nan_to_num(sections.seconds)))


def _span(
    folder: Path,
    incidents: Sequence[Incident],
    ranks: Sequence[Sequence[CheckpointEvent]],
    saves: Sequence[Sequence[CheckpointEvent]],
    step: float,
    last: float | None,
) -> tuple[float, float]:
    """From the driver's plan, or from the first step that a save tells of, to the last event, in seconds since 1970. What incidents
    before that save cost is known."""
    begins = [one.began for one in incidents]
    if (plan := folder / PLAN).is_file():
        begins.append(plan.stat().st_mtime)
    for rank in saves:
        if rank:
            first = rank[0]
            cost = sum(one.seconds.down + replayed_seconds(one, step) for one in incidents if one.began < first.unix)
            begins.append(first.unix - (first.blocking_seconds or 0.0) - first.step * step - cost)
    ends = [one.ended for one in incidents] + [rank[-1].unix for rank in ranks] + ([last] if last is not None else [])
    return min(begins), max(ends)
