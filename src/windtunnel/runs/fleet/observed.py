"""What the sections of a watched run show, in the terms of a prediction: own time by rank and step, transfers by kind of call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.findings.slow_ranks import WARM_UP, slow_ranks
from windtunnel.fleet.findings.steps import WORK, StepTable, match_collectives, match_sends, step_table
from windtunnel.records.sections import Section, Sections
from windtunnel.runs.axes import AxisOf
from windtunnel.runs.factors import Odd, stages_of
from windtunnel.runs.observed import CallKind
from windtunnel.spec import Job

FEWEST = 4
"""Settled steps below which nothing is said."""


@dataclass(frozen=True)
class CallTimes:
    """M calls of one kind: seconds from the last arrival on, and the steps that they belong to; how often a rank makes them in a
    step."""

    seconds: Floats
    step: Int64s
    count: float


@dataclass(frozen=True)
class ObservedSections:
    """R ranks × S settled steps, seconds; NaN where a rank has no record. `stage` [R]; `slow`: ranks that compute longer than
    their equals, with the factor."""

    ranks: Int64s
    stage: Int64s
    steps: Int64s
    step: Floats  # [R, S]
    own: Mapping[Section, Floats]  # each [R, S]
    data: Floats
    gaps: Floats
    between: Floats  # in no section and in no call; NaN where a device runs behind its host
    starved: Floats  # in a section without a core, no part of `own`; NaN where a device runs behind its host
    calls: Mapping[CallKind, CallTimes]
    slow: tuple[Odd, ...]


def observed_sections(sections: Sections, job: Job, blocking: bool, last: int | None = None) -> ObservedSections:
    """The settled steps of a run: not its first `WARM_UP`, and not one that some rank has not ended. `last`: only so many.

    The stage of a rank is that of the job's placement. Ranks must be on one clock.
    """
    ranks = np.unique(sections.rank).astype(np.int64)
    stage = stages_of(ranks, job)
    table = step_table(sections, dict(zip(ranks.tolist(), stage.tolist(), strict=True)))
    known = np.searchsorted(ranks, table.ranks)
    keep = _settled_steps(table)
    if last is not None:
        keep &= np.cumsum(keep[::-1])[::-1] <= last
    raw = _raw(sections, table)
    own = {one: table.work[one] if blocking else raw[one] for one in WORK if one is not Section.INFERENCE}  # not predicted
    gaps = np.nan_to_num(table.work[Section.HOST_GAP])
    data = np.nan_to_num(table.work[Section.DATA])
    between = _seconds_between(table, raw, gaps) if blocking else np.full(table.step.shape, np.nan)
    starved = np.nan_to_num(table.starved) if blocking else np.full(table.step.shape, np.nan)
    steps = table.steps[keep]
    return ObservedSections(
        table.ranks, stage[known], steps, table.step[:, keep], {one: values[:, keep] for one, values in own.items()},
        data[:, keep], gaps[:, keep], between[:, keep], starved[:, keep], _calls(sections, job, steps), _slow_ranks(table),
    )  # fmt: skip


def _settled_steps(table: StepTable) -> Bools:
    """Steps that all ranks have ended, without the first ones of the run."""
    ended = np.isfinite(table.step).all(0) if np.isfinite(table.step).any() else np.isfinite(table.own).all(0)
    return np.asarray(ended & (np.arange(len(table.steps)) >= (WARM_UP if ended.sum() > WARM_UP else 0)))


def _raw(sections: Sections, table: StepTable) -> dict[Section, Floats]:
    """Seconds of each section as its timer says, calls and gaps in them. [R, S]"""
    done = sections.where(np.isfinite(sections.seconds) & np.isin(sections.step, table.steps))
    cell = np.searchsorted(table.ranks, done.rank) * len(table.steps) + np.searchsorted(table.steps, done.step)
    out: dict[Section, Floats] = {}
    for section in (*WORK, Section.DATA, Section.CHECKPOINT):
        mine = done.section == section
        sums = np.bincount(cell[mine], done.seconds[mine], table.step.size)
        out[section] = np.asarray(sums, np.float64).reshape(table.step.shape)
    return out


def _seconds_between(table: StepTable, raw: Mapping[Section, Floats], gaps: Floats) -> Floats:
    """Seconds of a step outside of sections, calls and known gaps."""
    timed = np.sum(list(raw.values()), axis=0)
    inside = np.maximum(sum(raw[one] for one in WORK) - np.nan_to_num(table.own) - gaps, 0.0)
    outside = np.maximum(np.nan_to_num(table.blocked) - inside, 0.0)
    return np.asarray(np.maximum(table.step - timed - outside - gaps, 0.0))


def _calls(sections: Sections, job: Job, steps: Int64s) -> dict[CallKind, CallTimes]:
    """Matched calls by kind."""
    axis_of = AxisOf(job)
    rows = np.flatnonzero((sections.section == Section.CALL) & np.isfinite(sections.seconds) & np.isin(sections.step, steps))
    seconds: dict[CallKind, list[float]] = defaultdict(list)
    step: dict[CallKind, list[int]] = defaultdict(list)
    made: dict[CallKind, int] = defaultdict(int)
    end = sections.begin + sections.seconds
    axes: dict[tuple[int, Comm], str] = {}
    for members in (*match_collectives(sections, rows), *match_sends(sections, rows)):
        first = int(members[0])
        group, comm, size = int(sections.group[first]), Comm(int(sections.comm[first])), float(sections.bytes[first])
        if (group, comm) not in axes or group < 0:
            ranks = sections.groups[group] if group >= 0 else tuple(sections.rank[members].tolist())
            name = sections.group_names[group] if 0 <= group < len(sections.group_names) else ""
            axes[group, comm] = axis_of(int(sections.rank[first]), ranks, name, comm)
        key = CallKind(comm, axes[group, comm], size if size == size else -1.0)
        seconds[key].append(max(float(end[members].max() - sections.begin[members].max()), 0.0))
        step[key].append(int(sections.step[first]))
        made[key] += len(members)
    ranks_of_step = max(len(np.unique(sections.rank)), 1) * max(len(steps), 1)
    return {
        key: CallTimes(np.array(listed), np.array(step[key], np.int64), made[key] / ranks_of_step)
        for key, listed in seconds.items()
    }


def _slow_ranks(table: StepTable) -> tuple[Odd, ...]:
    """Ranks that stand out from their equals; of a slow machine each rank."""
    found = [one for one in slow_ranks(table) if one.verdict in (Verdict.SLOW_RANK, Verdict.SLOW_MACHINE)]
    return tuple(Odd("rank", (rank,), 1.0 + one.size) for one in found for rank in one.ranks)
