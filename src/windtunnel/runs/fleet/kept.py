"""A run that was kept alive, as its folder tells it: incidents, and what the ranks wrote of their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, Nothing, SpecError
from windtunnel.fleet.recorded import recorded_of_rings
from windtunnel.goodput.measured import FleetRun
from windtunnel.records.checkpoint_events import CheckpointEvent, read_rank_events
from windtunnel.records.incidents import FILE, Incident, read_incidents, replayed_seconds
from windtunnel.records.sections import Section, Sections

PLAN = "driver/plan.json"
"""What the driver writes when a job begins."""
_STEPS_HINT = "Type --step SECONDS, and --interval SECONDS of training between checkpoints."


@dataclass(frozen=True)
class RingFacts:
    """What the rings of a run tell; None where they do not."""

    step: float | None = None
    """Seconds of the middle step."""
    last: float | None = None
    """Unix seconds of the last record."""
    apart: float | None = None
    """Steps between two saves, the middle one."""
    saves: tuple[float, ...] = ()
    """Seconds for which saves held training up."""


def is_kept(folder: str | Path) -> bool:
    """Whether this is the folder of a run with an incident log."""
    return (Path(folder) / FILE).is_file()


def fleet_run(
    folder: str | Path, nodes: int = 1, step: float | None = None, interval: float | None = None, spares: int = 0
) -> FleetRun:
    """The run of a folder. Seconds of a `step` and of the `interval` between checkpoints come from the ranks' saves, the step of a
    run without saves from its rings, where they are not given. It lasts from its first known moment to its last. SpecError where
    nothing tells a step's time, FileError for lines that are no events."""
    incidents, ranks = read_incidents(folder), [one for one in read_rank_events(Path(folder)) if one]
    if not incidents and not any(one.event != "began" for rank in ranks for one in rank):
        got = "no incident and no checkpoint" if Path(folder).is_dir() else "no folder"
        raise FileError(str(folder), got, f"a run's folder with {FILE}", "`windtunnel fleet run --nodes N` writes it.")
    saves = [_saves(rank) for rank in ranks]
    counted = max(saves, key=lambda rank: sum(one.blocking_seconds or 0.0 for one in rank), default=[])
    between = [
        pair for rank in saves for pair in pairwise(rank) if pair[1].step > pair[0].step and not _had_incident(pair, incidents)
    ]
    paces = [(late.unix - early.unix - (late.blocking_seconds or 0.0)) / (late.step - early.step) for early, late in between]
    rings = _read_rings(Path(folder)) if not paces else RingFacts()
    step = step if step is not None else median(paces) if paces else rings.step
    if step is None or step <= 0.0:
        raise SpecError("step", step if step is not None else Nothing(), "seconds of a step above zero", _STEPS_HINT)
    apart = median(late.step - early.step for early, late in between) if between else rings.apart
    began, ended = _span(Path(folder), incidents, ranks, saves, step, rings.last)
    blocked = tuple(one.blocking_seconds or 0.0 for one in counted)
    return FleetRun(
        incidents=incidents,
        began=began,
        ended=ended,
        nodes=nodes,
        step=step,
        interval=interval if interval is not None or apart is None else apart * step,
        saves=blocked or rings.saves,
        flush=_flush(ranks),
        spares=spares,
        went_on=_went_on(incidents, ranks),
    )


def _saves(rank: Sequence[CheckpointEvent]) -> list[CheckpointEvent]:
    return [one for one in rank if one.event == "save"]


def _had_incident(pair: tuple[CheckpointEvent, CheckpointEvent], incidents: Sequence[Incident]) -> bool:
    """Whether an incident came between two saves."""
    return any(pair[0].unix < one.ended and one.began < pair[1].unix for one in incidents)


def _went_on(incidents: Sequence[Incident], ranks: Sequence[Sequence[CheckpointEvent]]) -> dict[int, str]:
    """Incident -> what the ranks said of the first load after it, by the lowest rank that said something."""
    told: dict[int, str] = {}
    ends = [one.began for one in incidents[1:]] + [float("inf")]
    for incident, end in zip(incidents, ends, strict=False):
        after = [one for rank in ranks for one in rank if incident.seen < one.unix < end]
        loads = [one for one in after if one.event == "load"]
        began = next((one for one in after if one.event == "began"), None)
        if began is not None and not loads:
            told[incident.number] = "began again at step 0" + (f": {began.why}" if began.why else "")
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


def _read_rings(folder: Path) -> RingFacts:
    """What the rings tell of steps, and of saves that a script makes itself, such as by `torch.save`."""
    try:
        sections = recorded_of_rings(folder).sections
    except FileError:
        return RingFacts()
    steps = sections.seconds[sections.section == Section.STEP]
    steps = steps[np.isfinite(steps)]
    if not len(steps):
        return RingFacts()
    last = sections.zero + float(np.nanmax(sections.begin + np.nan_to_num(sections.seconds)))
    at, seconds = _ring_saves(sections)
    apart = float(np.median(np.diff(at))) if len(at) > 1 else None
    return RingFacts(float(np.median(steps)), last, apart, tuple(float(one) for one in seconds))


def _ring_saves(sections: Sections) -> tuple[Int64s, Floats]:
    """Steps in which the rank that saved most often made saves, and their seconds, [saves]; files of one step are one save."""
    saved = (sections.section == Section.CHECKPOINT) & np.isfinite(sections.seconds)
    if not saved.any():
        return np.zeros(0, np.int64), np.zeros(0)
    ranks, counts = np.unique(sections.rank[saved], return_counts=True)
    saved &= sections.rank == ranks[np.argmax(counts)]
    at, where = np.unique(sections.step[saved], return_inverse=True)
    return at.astype(np.int64), np.bincount(where, weights=sections.seconds[saved]).astype(np.float64)


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
