"""AICB's CSV of a physical run or of what one would do: a call a row, with its group, bytes, stage and, where measured, its ms."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import cells_of, lines_of
from windtunnel.formats.reading import Content, Reading
from windtunnel.formats.traces.task_columns import NAN, TaskColumns
from windtunnel.records.trace_graph import TaskKind

NEEDED = ("comm_type", "comm_group", "msg_size")
CALLS = {
    "all_reduce": Comm.ALL_REDUCE, "all_gather": Comm.ALL_GATHER, "all_gather_into_tensor": Comm.ALL_GATHER,
    "reduce_scatter": Comm.REDUCE_SCATTER, "reduce_scatter_tensor": Comm.REDUCE_SCATTER, "all_to_all": Comm.ALL_TO_ALL,
    "all_to_all_single": Comm.ALL_TO_ALL, "broadcast": Comm.BROADCAST, "reduce": Comm.REDUCE, "barrier": Comm.ALL_REDUCE,
}  # fmt: skip
MESSAGES = {"isend": TaskKind.SEND, "send": TaskKind.SEND, "irecv": TaskKind.RECEIVE, "recv": TaskKind.RECEIVE}
MOST_ROWS = 5_000_000
MOST_RANKS = 2**17
MOST_MEMBERS = 8_000_000
"""Ranks of all groups together, beyond which a file is refused."""
BARRIER_BYTES = 4


def is_csv(lines: Sequence[str]) -> bool:
    """Whether one of the first lines is the header."""
    return any(_columns(line) is not None for line in lines[:4])


def read_csv(path: Path) -> Reading:
    """The calls of one rank in their order, as a graph. FileError without the header; rows that have no size are counted."""
    broken: list[str] = []
    lines = lines_of(path, "a CSV of AICB", broken)
    preamble: list[str] = []
    names: list[str] | None = None
    for line in lines:
        names = _columns(line)
        if names is not None or len(preamble) > 3:
            break
        preamble.append(line)
    if names is None:
        raise FileError(str(path), repr(preamble[0][:60]) if preamble else "an empty file", f"a header with {', '.join(NEEDED)}")
    calls = _Calls(_world(preamble))
    unread = 0
    for line in lines:
        row = cells_of(line)
        unread += not row and bool(line)
        if row and calls.rows < MOST_ROWS:
            calls.add(dict(zip(names, row, strict=False)))
    if unread:
        broken.append(f"{unread} lines are no rows")
    if calls.lost:
        broken.append(f"{calls.lost} rows have no size in bytes")
    facts: dict[str, Any] = {
        "preamble": preamble, "rows": calls.rows, "columns": len(names), "measured_rows": calls.measured,
        "by_type": {key: row | {"elapsed_ms": round(row["elapsed_ms"], 3)} for key, row in calls.by_type.items()},
        "stages": dict(calls.stages.most_common(12)),
    }  # fmt: skip
    assumed = [
        "calls follow each other: the file has no computation between them",
        "this is rank 0; tensor-parallel ranks are next to each other, data-parallel ones a tensor-parallel group apart",
    ]
    if calls.unsized:
        assumed.append(f"{calls.unsized} calls state no size of their group: that of the same group elsewhere, else 8 ranks")
    built = (f"a graph of {calls.rows} calls; a measured call keeps its time (`replay --calls trace`)",)
    return Reading(
        "AICB CSV", Content.GRAPH, calls.columns.graph(), facts, built, calls.ignored_rows(), tuple(assumed), tuple(broken)
    )


def _columns(line: str) -> list[str] | None:
    names = [name.strip() for name in line.split(",")]
    return names if all(name in names for name in NEEDED) else None


def _world(preamble: Sequence[str]) -> int:
    """Ranks that a line such as `[rank0 ~ rank127]` speaks of; 0 without one."""
    for line in preamble:
        numbers = [int(part[:7]) for part in line.replace("]", " ").replace("rank", " ").split() if part.isdigit()]
        if numbers:
            return max(numbers) + 1
    return 0


class _Calls:
    """Rows as tasks of one lane, and their counts."""

    def __init__(self, world: int) -> None:
        self.columns = TaskColumns()
        self.columns.rank(0)
        self.world = world
        self.rows = self.lost = self.measured = self.unsized = 0
        self.by_type: dict[str, dict[str, Any]] = {}
        self.stages: Counter[str] = Counter()
        self.sizes: dict[str, int] = {}
        self.known: dict[tuple[str, int, int], int] = {}
        self.members = 0
        self.unknown: Counter[str] = Counter()

    def add(self, row: dict[str, str]) -> None:
        """One row."""
        self.rows += 1
        kind, group, ranks = (row.get(key, "").strip() for key in ("comm_type", "comm_group", "comm_group_size"))
        size, elapsed = _number(row.get("msg_size", "")), _number(row.get("_elapsed_time", ""))
        entry = self.by_type.setdefault(f"{kind}/{group}/{ranks or None}", {"n": 0, "bytes": 0, "elapsed_ms": 0.0})
        entry["n"] += 1
        entry["bytes"] += 0 if math.isnan(size) else int(size)
        entry["elapsed_ms"] += 0.0 if math.isnan(elapsed) else elapsed
        self.measured += elapsed > 0
        self.stages[row.get("stage", "").strip()] += 1
        word = kind.rpartition(".")[2].lower()
        if word not in CALLS and word not in MESSAGES and word != "computation":
            self.unknown[word] += 1
            return
        seconds = elapsed * 1e-3 if elapsed > 0 else NAN
        name = f"{row.get('stage', '').strip() or 'step'} {word}"
        if word == "computation":
            self.columns.add(name, TaskKind.COMPUTE, 0.0 if math.isnan(seconds) else seconds, lane=0)
            return
        if math.isnan(size):
            self.lost += 1
            return
        if word in MESSAGES:
            peer = _number(row.get("dst" if MESSAGES[word] is TaskKind.SEND else "src", ""))
            self.columns.add(name, MESSAGES[word], seconds, size, peer=int(peer) if peer < MOST_RANKS else 1, lane=0)
            return
        number = self._group(group.rpartition(".")[2].lower(), _number(ranks))
        buffer = float(BARRIER_BYTES) if word == "barrier" else size
        self.columns.add(name, TaskKind.COLLECTIVE, seconds, buffer, int(CALLS[word]), number, lane=0)

    def _group(self, group: str, stated: float) -> int:
        """The number of a group of rank 0."""
        if 1 <= stated <= MOST_RANKS:
            self.sizes[group] = int(stated)
        else:
            self.unsized += 1
        size, tp = self.sizes.get(group, 8), self.sizes.get("tp_group", 1)
        key = (group, size, tp)
        if key not in self.known:
            self.members += size
            if self.members > MOST_MEMBERS:
                raise SpecError("comm_group_size", size, f"groups of at most {MOST_MEMBERS:,} ranks in all")
            step = 1 if group in ("tp_group", "all") or 0 < self.world < size * tp else tp
            self.known[key] = self.columns.group_of(range(0, size * step, step))
        return self.known[key]

    def ignored_rows(self) -> tuple[str, ...]:
        """Rows that are no calls."""
        return tuple(f"{count} rows of {word or 'no type'}" for word, count in self.unknown.items())


def _number(text: str | None) -> float:
    """A number; NaN for None, blanks and what is none."""
    try:
        value = float((text or "").strip() or "nan")
    except ValueError:
        return NAN
    return value if 0 <= value < 1e18 else NAN
