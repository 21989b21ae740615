"""Timelines of pipelines that are no profiler traces: a process for each stage or rank, ranges such as `forward`, `backward-send`.

MegatronApp writes pairs of B and E with the iteration in their arguments, ByteDance's straggler analysis complete events
with a step.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np

from windtunnel.base.arrays import Bools, Int64s, Uint8s
from windtunnel.formats.traces.kineto.batches import Around
from windtunnel.formats.traces.kineto.columns import EventColumns, Table, floats, integers
from windtunnel.formats.traces.kineto.kinds import CATEGORIES, LEFT_OUT, LEGACY_PROCESSES
from windtunnel.formats.traces.kineto.trace import ReadTrace
from windtunnel.records.comm_kernels import comm_of
from windtunnel.records.run import EventKind, Events, RankTrace


def is_schedule(columns: EventColumns) -> bool:
    """Whether the events are named stages of a pipeline: no category of a profiler, and forward and backward passes."""
    profiler = any(
        (isinstance(category, str) and category.lower() in CATEGORIES | dict.fromkeys(LEFT_OUT))
        or (isinstance(process, str) and process in LEGACY_PROCESSES)
        for category, process, _ in columns.places
    )
    words = " ".join(columns.names).lower()
    return not profiler and "forward" in words and "backward" in words


def stages(name: str, columns: EventColumns, around: Around) -> list[ReadTrace]:
    """A trace for each process, in the order of their numbers; all on one clock."""
    table = columns.table()
    timed = np.isfinite(table.begin) & np.isfinite(table.duration)
    zero = math.floor(float(table.begin[timed].min())) if timed.any() else 0
    comm = np.array([int(comm_of(text)) for text in table.names] or [0], np.uint8)
    lost = int(np.sum(~timed))
    owners = [_owner(process, columns.threads.get((process, thread), "")) for _, process, thread in table.places]
    ranks = sorted(set(owners))
    own_numbers = not columns.threads and all(rank[-1].isdigit() for rank in ranks)
    traces = []
    for order, owner in enumerate(ranks):
        mine = np.array([one == owner for one in owners])[table.place] & timed
        rows = np.flatnonzero(mine)
        rows = rows[np.argsort(table.begin[rows], kind="stable")]
        peers = tuple(number for number, other in enumerate(ranks) if other[:2] == owner[:2]) if columns.threads else ()
        events = _events(table, rows, zero, comm, peers)
        trace = RankTrace(int(owner[-1]) if own_numbers else order, events, zero * 1e-6, "", len(ranks), name)
        process = next(key[1] for key, one in zip(table.places, owners, strict=True) if one == owner)
        steps = _iterations(columns, process, zero) or _steps(table, columns, mine, zero)
        broken = (f"{lost} events without a time or a duration",) if lost and not order else ()
        part = replace(table, **{field: getattr(table, field)[mine] for field in _ARRAYS})
        traces.append(ReadTrace(trace, steps, part, columns, around, "the trace", broken, (_ASSUMED,)))
    return traces


def _owner(process: object, thread: str) -> tuple[int, int, str]:
    """What sorts ranks: stage and rank in it where the thread's name says them (ByteDance), and the process."""
    match = _STAGE.search(thread)
    return (int(match[1]), int(match[2] or 0), str(process)[:9].zfill(9)) if match else (0, 0, str(process)[:9].zfill(9))


_ASSUMED = "ranges that are no call are computation; each process, or each stage that its threads name, is a rank"
_STAGE = re.compile(r"PP rank (\d{1,9})(?:, TP rank (\d{1,9}))?")
_ARRAYS = ("place", "name", "begin", "duration", "correlation", "external", "stream", "device", "bytes")


def _events(table: Table, rows: Int64s, zero: int, comm: Uint8s, stage: tuple[int, ...]) -> Events:
    """`stage`: the ranks of the stage, where threads name it: the group of gradients and parameters."""
    name, count = table.name[rows], len(rows)
    threads = np.array([t if isinstance(t, int) and -1 <= t < 2**31 else -1 for _, _, t in table.places] or [0], np.int64)
    lane = threads[table.place[rows]].astype(np.int32)
    calls = comm[name]
    kind = np.where(calls > 0, EventKind.CALL, EventKind.KERNEL).astype(np.uint8)
    none, unknown = np.full(count, -1, np.int64), np.full(count, np.nan)
    begin, seconds = (table.begin[rows] - zero) * 1e-6, np.maximum(table.duration[rows], 0.0) * 1e-6
    narrow = none.astype(np.int32)
    over_stage = np.array([text.startswith(("grads-", "params-")) for text in table.names] or [False])[name]
    group = np.where(over_stage & (calls > 0) & (len(stage) > 1), 0, -1).astype(np.int32)
    groups = (stage,) if len(stage) > 1 else ()
    return Events(
        kind,
        name,
        lane,
        begin,
        seconds,
        none,
        none,
        calls,
        unknown,
        group,
        none,
        narrow,
        table.names,
        groups,
        ("data parallel",) * len(groups),
    )


def _iterations(columns: EventColumns, process: object, zero: int) -> tuple[tuple[int, float, float], ...]:
    """Steps between the marks `iteration begin` and `iteration end`."""
    begins: dict[int, list[float]] = {}
    steps = []
    for name, owner, _, at, args in sorted(columns.marks, key=lambda mark: mark[3] if mark[3] == mark[3] else 0.0):
        if owner != process or at != at:
            continue
        number = int(integers([args.iteration])[0])
        if name == "iteration begin":
            begins.setdefault(number, []).append(at)
        elif name == "iteration end" and begins.get(number):
            start = begins[number].pop(0)
            steps.append((number, (start - zero) * 1e-6, (at - start) * 1e-6))
    return tuple(steps)


def _steps(table: Table, columns: EventColumns, mine: Bools, zero: int) -> tuple[tuple[int, float, float], ...]:
    """Steps from the first begin to the last end of the ranges that name them."""
    spans: dict[int, tuple[float, float]] = {}
    for noted in columns.noted:
        if mine[noted.row] and noted.args.step is not None:
            number = int(floats([noted.args.step])[0]) if floats([noted.args.step])[0] == floats([noted.args.step])[0] else -1
            begin, end = table.begin[noted.row], table.begin[noted.row] + table.duration[noted.row]
            first, last = spans.get(number, (begin, end))
            spans[number] = (min(first, begin), max(last, end))
    return tuple((number, (first - zero) * 1e-6, (last - first) * 1e-6) for number, (first, last) in sorted(spans.items()))
