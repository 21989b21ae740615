"""Steps of several jobs as one program: each job repeats its step, and all of them run over one network.

A step of a job begins when all of its ranks have ended the one before, as a step alone begins and ends. Ranks, templates and keys
of the jobs lie one after the other; jobs meet nowhere but in the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.engine import Program, Timeline
from windtunnel.engine.program import HOST_SYNC
from windtunnel.predict.category import Category
from windtunnel.predict.program.keys import LIVE_CALLS

_OP = ("op_stream", "op_seconds", "op_host", "op_category", "op_comm", "op_sync", "op_wait0", "op_wait1")


@dataclass(frozen=True)
class Course:
    """A job in a joint program: its step's program, the (key, call) table and `follows` of its network calls (`NetworkCalls`), the
    seconds before its first step, and the number of its steps."""

    program: Program
    key: Int64s
    plan: Int64s
    follows: Mapping[int, int]
    delay: float
    steps: int


@dataclass(frozen=True)
class JointProgram:
    """A joint program with the tables of its network; `ends[j]` [steps + 1] are the instances that end job j's delay and steps."""

    program: Program
    key: Int64s
    plan: Int64s
    follows: dict[int, int]
    ends: tuple[Int64s, ...]

    def times(self, timeline: Timeline) -> tuple[Floats, ...]:
        """For each job [steps + 1] the begin of its first step and the end of each, seconds."""
        return tuple(timeline.end[at] for at in self.ends)


@dataclass
class _Columns:
    """Rank columns of a joint program while it is built."""

    rows: list[tuple[Int64s, Int64s, Int64s, Int64s, Int64s]]  # template, times, flags, number of waits, waits of each rank
    meetings: list[tuple[Int32s, Floats, Int32s, Int32s, Int64s]]  # stream, host, categories, number of parts
    parts: list[tuple[Int64s, Floats, Int32s]]  # key, seconds, participants


def join_programs(courses: Sequence[Course]) -> JointProgram:
    """The program in which all jobs run at once. Calls of job j in the network's table follow those of jobs before it."""
    calls = max(one.program.live_calls for one in courses)
    columns = _Columns([], [], [])
    keys, plans, ends = [], [], []
    follows: dict[int, int] = {}
    fresh = template = rank = call = instance = 0
    for one in courses:
        known = _Keys(one, fresh, rank, calls)
        at = _add_ranks(columns, one, known, template, instance)
        ends.append(at)
        key, plan = known.table(one)
        keys.append(key)
        plans.append(plan + call)
        follows |= known.follows(one)
        fresh, template, rank = known.end, template + len(one.program.template_start), rank + one.program.ranks
        call += int(one.plan.max(initial=-1)) + 1
        instance = sum(len(row[0]) for row in columns.rows)
    return JointProgram(_build(courses, columns, calls), np.concatenate(keys), np.concatenate(plans), follows, tuple(ends))


class _Keys:
    """Keys of a job: those of meetings renumbered, with a set for each step; those inside passes by rank, for all steps."""

    def __init__(self, of: Course, first: int, rank: int, calls: int) -> None:
        program = of.program
        behind = np.array([*of.follows.keys(), *of.follows.values()], np.int64)
        self.known = np.unique(np.concatenate([program.part_key, of.key[of.key < LIVE_CALLS], behind[behind < LIVE_CALLS]]))
        self.first, self.steps, self.width = first, of.steps, len(self.known) + 1
        self.end = first + self.width * (of.steps + 1)
        self._program, self._rank, self._calls = program, rank, calls

    def of(self, key: Int64s, step: int) -> Int64s:
        """The keys in a step; -1 of the job's own meeting at its end is `barrier`."""
        inside = key >= LIVE_CALLS
        live, number = np.divmod(key - self._program.live_key, max(1, self._program.live_calls))
        here = self.first + step * self.width + np.searchsorted(self.known, key)
        return np.where(inside, LIVE_CALLS + (live + self._rank) * self._calls + number, here).astype(np.int64)

    def barrier(self, step: int) -> int:
        """Key of the meeting of all ranks at a step's end; step -1: at the end of the delay."""
        return self.first + step * self.width + self.width - 1 if step >= 0 else self.end - 1

    def table(self, of: Course) -> tuple[Int64s, Int64s]:
        """(key, call) of all steps."""
        inside = of.key >= LIVE_CALLS
        parts = [self.of(of.key[inside], 0), *(self.of(of.key[~inside], step) for step in range(self.steps))]
        return np.concatenate(parts), np.concatenate([of.plan[inside], *([of.plan[~inside]] * self.steps)])

    def follows(self, of: Course) -> dict[int, int]:
        """`follows` of all steps."""
        first, behind = np.array(list(of.follows), np.int64), np.array(list(of.follows.values()), np.int64)
        pairs: dict[int, int] = {}
        for step in range(self.steps):
            pairs |= zip(self.of(first, step).tolist(), self.of(behind, step).tolist(), strict=True)
        return pairs


def _add_ranks(columns: _Columns, one: Course, keys: _Keys, template: int, instance: int) -> Int64s:
    """Appends a job's ranks; returns the instances of its first rank that end its delay and its steps. The job's last template is
    the delay."""
    p = one.program
    delay = template + len(p.template_start) - 1
    ends: list[int] = []
    for rank in range(p.ranks):
        rows = slice(int(p.rank_start[rank]), int(p.rank_start[rank + 1]))
        waits_of = slice(int(p.wait_start[rows.start]), int(p.wait_start[rows.stop]))
        size = rows.stop - rows.start
        meets = np.flatnonzero(p.template < 0)
        met = slice(int(np.searchsorted(meets, rows.start)), int(np.searchsorted(meets, rows.stop)))
        parts = slice(int(p.part_start[met.start]), int(p.part_start[met.stop]))
        kinds = np.where(p.template[rows] < 0, -1, p.template[rows] + template).astype(np.int64)
        waits, counts = p.waits[waits_of].astype(np.int64), np.diff(p.wait_start[rows.start : rows.stop + 1])
        last = np.setdiff1d(np.arange(size), waits)  # what nothing of the step waits for
        length = size + 1
        first = 2  # instances before the first step: the delay, and the meeting behind it
        template_of = np.concatenate([[delay, -1], np.tile(np.append(kinds, -1), one.steps)])
        times = np.concatenate([[1, 1], np.tile(np.append(p.times[rows], 1), one.steps)])
        flags = np.concatenate([[0, HOST_SYNC], np.tile(np.append(p.flags[rows].astype(np.int64), HOST_SYNC), one.steps)])
        number = np.concatenate([[0, 1], np.tile(np.append(counts, len(last)), one.steps)])
        moved = [np.concatenate([waits, last]) + first + step * length for step in range(one.steps)]
        columns.rows.append((template_of, times, flags, number, np.concatenate([[0], *moved]).astype(np.int64)))
        _add_meetings(columns, one, keys, met, parts)
        if rank == 0:
            ends = [instance + 1, *(instance + first + (step + 1) * length - 1 for step in range(one.steps))]
    return np.array(ends, np.int64)


def _add_meetings(columns: _Columns, one: Course, keys: _Keys, met: slice, parts: slice) -> None:
    """Appends a rank's meetings: those of every step, and that at its end."""
    p = one.program
    idle, none = int(Category.STEP_SYNC), np.zeros(1)

    def rows(column: Int32s | Floats, own: float) -> np.ndarray:
        return np.concatenate([[own], np.tile(np.append(column[met], own), one.steps)])

    counts = np.diff(p.part_start[met.start : met.stop + 1])
    columns.meetings.append(
        (
            rows(p.rv_stream, 0),
            rows(p.rv_host, 0.0),
            rows(p.rv_cat_wait, idle),
            rows(p.rv_cat_transfer, idle),
            np.concatenate([[1], np.tile(np.append(counts, 1), one.steps)]),
        )
    )
    names = [[keys.barrier(-1)], *([*keys.of(p.part_key[parts], step), keys.barrier(step)] for step in range(one.steps))]
    seconds = np.concatenate([none, np.tile(np.append(p.part_seconds[parts], 0.0), one.steps)])
    members = np.concatenate([[p.ranks], np.tile(np.append(p.part_participants[parts], p.ranks), one.steps)])
    columns.parts.append((np.concatenate(names).astype(np.int64), seconds, members))


def _build(courses: Sequence[Course], columns: _Columns, calls: int) -> Program:
    """The joint program's columns; each job has one template more, of its delay."""
    programs = [one.program for one in courses]
    delay = {"op_stream": 0, "op_host": 0.0, "op_category": int(Category.STEP_SYNC), "op_comm": 0, "op_sync": 0}
    ops = {
        name: np.concatenate(
            [np.append(getattr(p, name), one.delay if name == "op_seconds" else delay.get(name, -1)) for p, one in _pairs(courses)]
        ).astype(getattr(programs[0], name).dtype)
        for name in _OP
    }
    live = [np.append(p.op_live if len(p.op_live) else np.full(len(p.op_stream), -1), -1) for p in programs]
    sizes = np.concatenate([np.append(np.diff(p.template_start), 1) for p in programs])
    template, times, flags, waits = (np.concatenate([row[i] for row in columns.rows]) for i in (0, 1, 2, 4))
    number = np.concatenate([row[3] for row in columns.rows])
    stream, host, waiting, moving, held = (np.concatenate(column) for column in zip(*columns.meetings, strict=True))
    key, seconds, members = (np.concatenate(column) for column in zip(*columns.parts, strict=True))
    return Program(
        template_start=_offsets(sizes),
        op_stream=ops["op_stream"], op_seconds=ops["op_seconds"], op_host=ops["op_host"], op_category=ops["op_category"],
        op_comm=ops["op_comm"], op_sync=ops["op_sync"], op_wait0=ops["op_wait0"], op_wait1=ops["op_wait1"],
        rank_start=_offsets(np.array([len(row[0]) for row in columns.rows])),
        template=template.astype(np.int32), times=times.astype(np.int32), flags=flags.astype(np.uint8),
        wait_start=_offsets(number), waits=waits.astype(np.int32),
        rv_stream=stream.astype(np.int32), rv_host=host.astype(np.float64), rv_cat_wait=waiting.astype(np.int32),
        rv_cat_transfer=moving.astype(np.int32), part_start=_offsets(held),
        part_key=key, part_seconds=seconds.astype(np.float64), part_participants=members.astype(np.int32),
        op_group=np.zeros(int(sizes.sum()), np.int32), scale=np.zeros(0, np.int32), scales=np.zeros(0), groups=1,
        op_live=np.concatenate(live).astype(np.int32), live_key=LIVE_CALLS, live_calls=calls,
        categories=programs[0].categories,
        taxes=np.concatenate([np.full(p.ranks, p.compute_tax) for p in programs]),
    )  # fmt: skip


def _pairs(courses: Sequence[Course]) -> list[tuple[Program, Course]]:
    return [(one.program, one) for one in courses]


def _offsets(sizes: Int64s) -> Int64s:
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64)
