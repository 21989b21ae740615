"""Encoding of integer tables: columns one after the other, each in the fewest bytes per value, prepared for a general compressor.

A table has one run of rows for each ring of the batch. A column is stored as values or as differences inside each run, minus its
least value, in 0, 1, 2, 4 or 8 bytes per row, with all lowest bytes first, then all second bytes, and so on: zlib then finds the
high bytes empty. Records of a training step take 5.5 bytes each with zlib at level 1; zstd is not smaller
(docs/fleet-collector.md).

Rows of rings as tables of a batch, and their summaries by step and section.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import FileError

ROWS = (
    "number",
    "begin",
    "nanos",
    "late",
    "bytes",
    "call",
    "step",
    "peer",
    "name",
    "group",
    "micro_batch",
    "section",
    "comm",
    "state",
    "sends",
)
"""Columns of a row of a ring. `late` is host_nanos - nanos; the others are those of `ring.ROW`."""
OPEN_ROWS = ROWS
SUMMARIES = ("step", "section", "count", "sum", "least", "most")
"""Columns of a summary: the rows of a ring in one step and section. Nanoseconds; rows without a duration are not counted."""

_DIFFERENCES = frozenset({"number", "begin", "step", "call"})
MOST_ROWS = 1 << 20
"""Largest number of rows of a table; a longer one is refused before anything is allocated."""

_TABLE = struct.Struct("<IHH")  # rows, runs, columns
_COLUMN = struct.Struct("<BBxxxxxxq")  # whether differences, bytes per row, least value
_WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True)
class BatchTable:
    """Columns [N] of whole numbers; the first `runs[0]` rows belong to the batch's ring 0, the next `runs[1]` to ring 1, …"""

    runs: Int64s
    columns: Mapping[str, Int64s]

    def __len__(self) -> int:
        return int(self.runs.sum())

    @classmethod
    def empty(cls, names: tuple[str, ...], rings: int) -> BatchTable:
        return cls(np.zeros(rings, np.int64), {name: np.zeros(0, np.int64) for name in names})


def pack(table: BatchTable, names: tuple[str, ...]) -> bytes:
    """Encodes a table with columns `names`. FileError for more than MOST_ROWS rows."""
    if len(table) > MOST_ROWS:
        raise FileError("a batch", f"{len(table)} rows", f"up to {MOST_ROWS} rows")
    parts = [_TABLE.pack(len(table), len(table.runs), len(names)), table.runs.astype("<u4").tobytes()]
    if len(table):
        starts = _starts(table.runs)
        parts += [_pack_column(table.columns[name], starts, name in _DIFFERENCES) for name in names]
    return b"".join(parts)


def unpack(raw: bytes, at: int, names: tuple[str, ...]) -> tuple[BatchTable, int]:
    """Decodes the table that begins at byte `at`; returns it and the position after it. FileError if it is truncated or
    inconsistent.
    """
    rows, runs, columns = _TABLE.unpack_from(raw, _check_room(raw, at, _TABLE.size))
    at += _TABLE.size
    if rows > MOST_ROWS or columns != len(names):
        raise FileError(
            "a batch", f"a table of {rows} rows and {columns} columns", f"up to {MOST_ROWS} rows of {len(names)} columns"
        )
    counts = np.frombuffer(raw, "<u4", runs, _check_room(raw, at, 4 * runs)).astype(np.int64)
    at += 4 * runs
    if int(counts.sum()) != rows:
        raise FileError("a batch", "runs that do not add up to the rows", "a batch that `windtunnel fleet ship` made")
    if not rows:
        return BatchTable(counts, BatchTable.empty(names, 0).columns), at
    starts = _starts(counts)
    values = {}
    for name in names:
        values[name], at = _unpack_column(raw, at, rows, starts)
    return BatchTable(counts, values), at


def _starts(runs: Int64s) -> tuple[Int64s, Int64s]:
    """First rows of the non-empty runs, and their lengths."""
    some = runs[runs > 0]
    return np.cumsum(some) - some, some


def _pack_column(column: Int64s, starts: tuple[Int64s, Int64s], differences: bool) -> bytes:
    firsts = b""
    if differences:
        firsts = column[starts[0]].astype("<i8").tobytes()
        column = np.diff(column, prepend=column[:1])
        inside = np.ones(len(column), bool)
        inside[starts[0]] = False
        column[starts[0]] = column[inside].min() if inside.any() else 0
    least, most = int(column.min()), int(column.max())
    width = 0 if least == most else next(width for width in _WIDTHS if most - least < 1 << 8 * width)
    head = _COLUMN.pack(differences, width, least)
    if not width:
        return head + firsts
    # Differences modulo 2**64 are correct even if the range of the column is wider than an int64.
    narrow = (column.view(np.uint64) - np.uint64(least & (1 << 64) - 1)).astype(f"<u{width}")
    planes = narrow.tobytes() if width == 1 else narrow.view(np.uint8).reshape(-1, width).T.tobytes()
    return head + firsts + planes


def _unpack_column(raw: bytes, at: int, rows: int, starts: tuple[Int64s, Int64s]) -> tuple[Int64s, int]:
    differences, width, least = _COLUMN.unpack_from(raw, _check_room(raw, at, _COLUMN.size))
    at += _COLUMN.size
    if differences > 1 or width not in (0, *_WIDTHS):
        raise FileError("a batch", "a column of an unknown kind", "a batch that `windtunnel fleet ship` made")
    firsts: Any = None
    if differences:
        firsts = np.frombuffer(raw, "<i8", len(starts[0]), _check_room(raw, at, 8 * len(starts[0])))
        at += 8 * len(starts[0])
    if not width:
        column = np.full(rows, least, np.int64)
    else:
        planes = np.frombuffer(raw, np.uint8, width * rows, _check_room(raw, at, width * rows))
        at += width * rows
        column = _join_planes(planes.reshape(width, rows))
        column += least  # modulo 2**64, as in the subtraction
    if differences:
        np.cumsum(column, out=column)
        column += np.repeat(firsts - column[starts[0]], starts[1])
    return column, at


def _join_planes(planes: Any) -> Int64s:
    """Integers from byte planes, lowest first."""
    if len(planes) == 1:
        single: Int64s = planes[0].astype(np.int64)
        return single
    column = np.zeros(planes.shape[1], "<i8")
    places = column.view(np.uint8).reshape(-1, 8)
    for number, plane in enumerate(planes):
        places[:, number] = plane
    return column


def _check_room(raw: bytes, at: int, size: int) -> int:
    """Returns `at` if `size` bytes follow it. FileError otherwise."""
    if at + size > len(raw):
        raise FileError("a batch", "a table that is cut off", "a whole batch")
    return at


def table_of_rows(numbers: Sequence[Int64s], rows: Sequence[Any]) -> BatchTable:
    """Rows of several rings (`ring.ROW`, with their numbers) as one table with a run for each ring."""
    runs = np.array([len(part) for part in rows], np.int64)
    if not runs.sum():
        return BatchTable.empty(ROWS, len(runs))
    joint = np.concatenate(rows)
    columns = {name: joint[name].astype(np.int64) for name in ROWS if name not in ("number", "late")}
    columns["number"] = np.concatenate(numbers).astype(np.int64)
    columns["late"] = joint["host_nanos"] - joint["nanos"]
    return BatchTable(runs, columns)


def summarise(rows: BatchTable) -> BatchTable:
    """Count, sum, minimum and maximum in nanoseconds for each ring, step and section. Rows without a duration are left out."""
    known = rows.columns["nanos"] >= 0
    ring = np.repeat(np.arange(len(rows.runs)), rows.runs)[known]
    step, section, nanos = (rows.columns[name][known] for name in ("step", "section", "nanos"))
    if not len(ring):
        return BatchTable.empty(SUMMARIES, len(rows.runs))
    order, starts = group_rows(ring, step, section)
    first, time = order[starts], nanos[order]
    columns = {
        "step": step[first], "section": section[first], "count": np.diff(starts, append=len(order)),
        "sum": np.add.reduceat(time, starts), "least": np.minimum.reduceat(time, starts), "most": np.maximum.reduceat(time, starts),
    }  # fmt: skip
    return BatchTable(np.bincount(ring[first], minlength=len(rows.runs)).astype(np.int64), columns)


def group_rows(major: Int64s, step: Int64s, section: Int64s) -> tuple[Int64s, Int64s]:
    """An order of rows by (major, step, section), and the begin of each group of equal keys in it. Needs at least one row."""
    low = int(step.min())
    span = int(step.max()) - low + 1
    if span < 1 << 30 and int(major.max()) < 1 << 24:
        key = (major * span + (step - low)) * 256 + section
        order = np.argsort(key, kind="stable")
        key = key[order]
        new = np.flatnonzero(key[1:] != key[:-1]) + 1
    else:
        order = np.lexsort((section, step, major))
        new = np.flatnonzero((np.diff(major[order]) != 0) | (np.diff(step[order]) != 0) | (np.diff(section[order]) != 0)) + 1
    return order, np.concatenate([[0], new])
