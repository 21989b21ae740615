"""Nsight's exports as a run: each process of each file is a rank.

Nsight's tables as columns, read in pieces.

Tables and columns as in NVIDIA's "Exported SQLite schema" of the Nsight Systems user guide. Exports of other versions lack tables
or columns: what is absent reads as -1.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.base.units import show_counted
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.kineto.columns import integers
from windtunnel.records.kernel_classes import comm_of, library_of
from windtunnel.records.run import EventKind, Events, RankTrace, Run, Steps

_DEVICE = "CUPTI_ACTIVITY_KIND_"
_THREAD = 2**24
"""`globalTid` is the process's `globalPid` plus the thread's number in the low 24 bits."""
_RANGES = (59, 60, 70, 71)  # NvtxPushPopRange, NvtxStartEndRange and their newer twins
_STEP = re.compile(r"(?:iteration|train_step|step|iter)[\s_#:=]*(\d{1,18})", re.IGNORECASE)
_VERSION = re.compile(r"_v\d+(?:_ptsz|_ptds)?$")


def read_exports(files: Sequence[Path], context: Context) -> Reading:
    """A run from the exports. FileError for a file without events."""
    traces: list[RankTrace] = []
    rows: list[tuple[int, int, float, float]] = []
    broken: list[str] = []
    counts: list[dict[str, Any]] = []
    for done, path in enumerate(files):
        if context.progress is not None:
            context.progress(path.name, done, len(files))
        export = open_export(path)
        try:
            columns = _columns(export)
            if not len(columns["begin"]):
                raise FileError(
                    str(path), "an export without events", "kernels, API calls or NVTX ranges", "; ".join(export.broken)
                )
            for process in np.unique(columns["process"]).tolist():
                trace, steps = _trace(columns, process, len(traces), _gpu(export), str(path))
                traces.append(trace)
                rows.extend(steps)
            counts.append(_counts(export, columns))
            broken.extend(f"{path}: {what}" for what in export.broken)
        finally:
            export.connection.close()
    table = list(zip(*rows, strict=True)) if rows else [()] * 4
    run = Run(Steps.of(table[0], table[1], begin=table[2], seconds=table[3]), tuple(traces), {}, str(files[0]))
    facts: dict[str, Any] = {"ranks": len(traces), "steps": len(set(table[1]))}
    facts |= counts[0] if len(counts) == 1 else {"by_file": counts}
    assumed = ("each process is a rank, in the order of files and of process numbers",) if len(traces) > 1 else ()
    built = (f"a run of {show_counted(len(traces), 'rank')}, {show_counted(sum(len(t.events) for t in traces), 'event')}",)
    ignored = ("metrics that were sampled, call stacks, sizes of calls (the export does not tie them to kernels)",)
    return Reading("nsight", Content.RUN, run, facts, built, ignored, assumed, tuple(broken))


def _columns(export: Export) -> dict[str, Any]:
    """All events of a file in columns: kind, name, lane, begin and end in ns, correlation, process, bytes."""
    names: dict[str, int] = {}
    parts = [_kernels(export, names), *(_copies(export, names, table) for table in ("MEMCPY", "MEMSET"))]
    parts += [_calls(export, names), _ranges(export, names)]
    merged = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    good = (merged["begin"] >= 0) & (merged["end"] >= merged["begin"])
    if lost := int(np.sum(~good)):
        export.broken.append(f"{lost} events without a begin or an end")
    return {key: column[good] for key, column in merged.items()} | {"names": tuple(names)}


def _part(
    kind: Any, name: Int64s, lane: Int64s, table: dict[str, Int64s], process: Int64s, size: Int64s | None = None
) -> dict[str, Any]:
    count = len(table["start"])
    return {
        "kind": np.broadcast_to(np.asarray(kind, np.uint8), (count,)), "name": name, "lane": lane, "begin": table["start"],
        "end": table["end"], "correlation": table.get("correlationId", np.full(count, -1, np.int64)), "process": process // _THREAD,
        "bytes": np.full(count, -1, np.int64) if size is None else size,
    }  # fmt: skip


def _kernels(export: Export, names: dict[str, int]) -> dict[str, Any]:
    table = export.columns(
        _DEVICE + "KERNEL", ("start", "end", "streamId", "correlationId", "globalPid", "demangledName", "shortName")
    )
    text = np.where(table["demangledName"] >= 0, table["demangledName"], table["shortName"])
    name, words = _number_names(export, text, names)
    call = np.array([bool(library_of(word)) for word in words] or [False])[name[1]] if len(text) else np.empty(0, bool)
    return _part(np.where(call, EventKind.CALL, EventKind.KERNEL), name[0], table["streamId"], table, table["globalPid"])


def _copies(export: Export, names: dict[str, int], what: str) -> dict[str, Any]:
    table = export.columns(_DEVICE + what, ("start", "end", "streamId", "correlationId", "globalPid", "bytes"))
    number = names.setdefault(what.capitalize(), len(names))
    name = np.full(len(table["start"]), number, np.int64)
    return _part(EventKind.COPY, name, table["streamId"], table, table["globalPid"], table["bytes"])


def _calls(export: Export, names: dict[str, int]) -> dict[str, Any]:
    table = export.columns(_DEVICE + "RUNTIME", ("start", "end", "globalTid", "correlationId", "nameId"))
    name, words = _number_names(export, table["nameId"], names)
    waits = np.array(["Synchronize" in word for word in words] or [False])
    kind = np.where(waits[name[1]], EventKind.SYNC, EventKind.LAUNCH) if len(name[1]) else np.empty(0, np.uint8)
    return _part(kind, name[0], table["globalTid"] % _THREAD, table, table["globalTid"])


def _ranges(export: Export, names: dict[str, int]) -> dict[str, Any]:
    table = export.columns("NVTX_EVENTS", ("start", "end", "eventType", "globalTid", "textId"))
    texts = export.strings("NVTX_EVENTS", "text")
    kept = np.isin(table["eventType"], _RANGES) & (table["end"] >= 0)
    words = [
        texts[row] if row < len(texts) and texts[row] else export.texts.get(int(table["textId"][row]), "")
        for row in np.flatnonzero(kept).tolist()
    ]
    name = np.array([names.setdefault(word, len(names)) for word in words], np.int64)
    table = {key: column[kept] for key, column in table.items()}
    return _part(EventKind.ANNOTATION, name, table["globalTid"] % _THREAD, table, table["globalTid"])


def _number_names(export: Export, ids: Int64s, names: dict[str, int]) -> tuple[tuple[Int64s, Int64s], list[str]]:
    """Numbers of the names [N] in `names` and in the list of distinct words that follows."""
    used, place = np.unique(ids, return_inverse=True)
    words = [_VERSION.sub("", export.texts.get(int(one), f"name {one}")) for one in used]
    numbers = np.array([names.setdefault(word, len(names)) for word in words], np.int64)
    return (numbers[place] if len(used) else np.empty(0, np.int64), place.astype(np.int64)), words


def _trace(
    columns: dict[str, Any], process: int, rank: int, device: str, source: str
) -> tuple[RankTrace, list[tuple[int, int, float, float]]]:
    rows = np.flatnonzero(columns["process"] == process)
    rows = rows[np.argsort(columns["begin"][rows], kind="stable")]
    zero = int(columns["begin"][rows].min())
    names: tuple[str, ...] = columns["names"]
    name, kind = columns["name"][rows].astype(np.int32), columns["kind"][rows].astype(np.uint8)
    codes = np.array([int(comm_of(text)) for text in names], np.uint8)
    size = columns["bytes"][rows].astype(np.float64)
    count = len(rows)
    none = np.full(count, -1, np.int64)
    begin = (columns["begin"][rows] - zero) * 1e-9
    seconds = (columns["end"][rows] - columns["begin"][rows]) * 1e-9
    lane = np.clip(columns["lane"][rows], -1, 2**31 - 1).astype(np.int32)
    narrow = none.astype(np.int32)
    calls = np.where(kind == EventKind.CALL, codes[name], 0).astype(np.uint8)
    events = Events(
        kind, name, lane, begin, seconds, columns["correlation"][rows], none, calls,
        np.where(size >= 0, size, np.nan), narrow, none, narrow, names,
    )  # fmt: skip
    steps = []
    numbers = {i: int(match[1]) for i, text in enumerate(names) if (match := _STEP.fullmatch(text.strip())) is not None}
    for at in np.flatnonzero((kind == EventKind.ANNOTATION) & np.isin(name, list(numbers))).tolist():
        steps.append((rank, numbers[int(name[at])], float(begin[at]), float(seconds[at])))
    return RankTrace(rank, events, zero * 1e-9, device, 0, source), steps


def _gpu(export: Export) -> str:
    listed = export.strings("TARGET_INFO_GPU", "name")
    return listed[0] if listed else ""


def _counts(export: Export, columns: dict[str, Any]) -> dict[str, Any]:
    kinds = np.bincount(columns["kind"], minlength=len(EventKind))
    return {
        "events": len(columns["kind"]),
        "kernels": int(kinds[EventKind.KERNEL] + kinds[EventKind.CALL]),
        "comm_kernels": int(kinds[EventKind.CALL]),
        "copies": int(kinds[EventKind.COPY]),
        "api_calls": int(kinds[EventKind.LAUNCH] + kinds[EventKind.SYNC]),
        "nvtx_ranges": int(kinds[EventKind.ANNOTATION]),
        "processes": len(np.unique(columns["process"])),
        "device": _gpu(export),
    }


PIECE = 100_000
_WANTED = "an export of `nsys export --type sqlite`"


@dataclass(frozen=True)
class Export:
    """An open file: its tables with their columns, and the texts of StringIds."""

    path: str
    connection: sqlite3.Connection
    tables: dict[str, frozenset[str]]
    texts: dict[int, str]
    broken: list[str]

    def columns(self, table: str, names: Sequence[str]) -> dict[str, Int64s]:
        """Whole numbers of some columns of a table [N]; empty where there is no such table, -1 for a column that it lacks."""
        known = self.tables.get(table, frozenset())
        present = [name for name in names if name in known]
        pieces: dict[str, list[Int64s]] = {name: [] for name in present}
        count = 0
        for rows in self._rows(table, present):
            count += len(rows)
            for name, values in zip(present, zip(*rows, strict=True), strict=True):
                pieces[name].append(integers([-1 if value is None else value for value in values]))
        found = {name: np.concatenate(parts) if parts else np.empty(0, np.int64) for name, parts in pieces.items()}
        return {name: found.get(name, np.full(count, -1, np.int64)) for name in names}

    def strings(self, table: str, name: str) -> list[str]:
        """The texts of a column; empty text for anything else."""
        if name not in self.tables.get(table, frozenset()):
            return []
        return [row[0] if isinstance(row[0], str) else "" for rows in self._rows(table, [name]) for row in rows]

    def _rows(self, table: str, names: Sequence[str]) -> Any:
        if not names:
            return
        try:
            cursor = self.connection.execute(f'SELECT {", ".join(names)} FROM "{table}"')  # names are checked against the schema
            while rows := cursor.fetchmany(PIECE):
                yield rows
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            self.broken.append(f"{table}: {error}")


def open_export(path: Path) -> Export:
    """An export, read only. FileError for a file that SQLite cannot read."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema=OFF")
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        wanted = [name for name in names if isinstance(name, str) and name.replace("_", "").isalnum()]
        tables = {name: frozenset(str(row[1]) for row in connection.execute(f'PRAGMA table_info("{name}")')) for name in wanted}
        export = Export(str(path), connection, tables, {}, [])
        ids = export.columns("StringIds", ("id",))["id"].tolist()
        export.texts.update(zip(ids, export.strings("StringIds", "value"), strict=False))
        return export
    except (sqlite3.Error, UnicodeError) as error:
        raise FileError(str(path), f"a file that SQLite cannot read ({error})", _WANTED) from None
