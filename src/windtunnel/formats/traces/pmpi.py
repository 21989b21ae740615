"""MPI traces of liballprof, which Schedgen makes GOAL schedules of: a call a line with begin and end in us, a file a rank."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError
from windtunnel.base.files import lines_of
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.records.run import EventKind, Events, RankTrace, Run, Steps

COMMS = {
    "MPI_Allreduce": Comm.ALL_REDUCE, "MPI_Allgather": Comm.ALL_GATHER, "MPI_Alltoall": Comm.ALL_TO_ALL, "MPI_Bcast":
    Comm.BROADCAST, "MPI_Reduce": Comm.REDUCE, "MPI_Send": Comm.SEND_RECV, "MPI_Recv": Comm.SEND_RECV, "MPI_Isend":
    Comm.SEND_RECV, "MPI_Irecv": Comm.SEND_RECV,
}  # fmt: skip
MESSAGES = frozenset({"MPI_Send", "MPI_Recv", "MPI_Isend", "MPI_Irecv"})
MOST_CALLS = 20_000_000
_CALL = re.compile(r"MPI_[A-Z]\w*:")


def recognises(head: Head) -> bool:
    """Whether the first line that is no comment is a call, and the last field of it a time."""
    shown = [line for line in head.lines[:40] if line.strip() and not line.startswith("#")]
    return len(shown) > 1 and all(_CALL.match(line) for line in shown[:2])


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run with the calls of each rank. FileError for a file without any."""
    traces: list[RankTrace] = []
    broken: list[str] = []
    by_rank: dict[str, Any] = {}
    for path in files:
        trace, counts, lost = _rank(path, len(traces), broken)
        traces.append(trace)
        by_rank[str(trace.rank)] = dict(counts)
        broken += [f"{path}: {lost} lines are no calls with two times"] if lost else []
    run = Run(Steps.of([], []), tuple(sorted(traces, key=lambda trace: trace.rank)), {}, str(files[0]))
    facts = {"ranks": len(traces), "calls": sum(len(trace.events) for trace in traces), "by_rank": by_rank}
    assumed = ("the rank is the number in the file's name, else its place; times between calls are computation",)
    return Reading("MPI trace", Content.RUN, run, facts, ("a run of MPI calls, without steps",), (), assumed, tuple(broken))


def _rank(path: Path, place: int, broken: list[str]) -> tuple[RankTrace, Counter[str], int]:
    rows: list[tuple[str, float, float, float, int]] = []
    lost = 0
    for line in lines_of(path, "an MPI trace of liballprof", broken):
        if not line.strip() or line.startswith("#"):
            continue
        row = _call(line.strip().split(":"))
        if row is None or len(rows) >= MOST_CALLS:
            lost += 1
        else:
            rows.append(row)
    if not rows:
        raise FileError(str(path), "no call with its times", "an MPI trace of liballprof")
    match = re.search(r"rank[-_]?(\d{1,7})", path.name)
    zero = rows[0][1]
    names = {name: at for at, name in enumerate(dict.fromkeys(row[0] for row in rows))}
    count = len(rows)
    none = np.full(count, -1, np.int64)
    events = Events(
        kind=np.full(count, EventKind.OPERATOR, np.uint8), name=np.array([names[row[0]] for row in rows], np.int32),
        lane=np.zeros(count, np.int32), begin=np.array([row[1] - zero for row in rows]) * 1e-6,
        seconds=np.array([row[2] - row[1] for row in rows]) * 1e-6, correlation=none, external=none,
        comm=np.array([COMMS.get(row[0], Comm.NONE) for row in rows], np.uint8), bytes=np.array([row[3] for row in rows]),
        group=np.full(count, -1, np.int32), sequence=none, peer=np.array([row[4] for row in rows], np.int32), names=tuple(names),
    )  # fmt: skip
    trace = RankTrace(int(match[1]) if match else place, events, zero * 1e-6, source=str(path))
    return trace, Counter(row[0] for row in rows), lost


def _call(fields: list[str]) -> tuple[str, float, float, float, int] | None:
    """(name, begin, end, bytes, peer) of a call: name, begin, arguments, end. A datatype is `code,size` or `code,size,address`."""
    if len(fields) < 3 or not _CALL.match(fields[0] + ":"):
        return None
    begin, end = (_number(field) for field in (fields[1], fields[-1]))
    if fields[1] == "-":  # MPI_Init has no begin, MPI_Finalize no end
        begin = end
    elif fields[-1] == "-":
        end = begin
    if begin is None or end is None or not 0 <= begin <= end:
        return None
    size, peer = float("nan"), -1
    for count, kind in zip(fields[2:-1], fields[3:-1], strict=False):
        parts = kind.split(",")
        if len(parts) > 1 and parts[1].isdigit() and count.isdigit() and len(count) < 16 and 0 < int(parts[1][:9]) <= 64:
            size = float(int(count) * int(parts[1][:9]))
            break
    if fields[0] in MESSAGES and len(fields) > 5 and fields[5].isdigit() and len(fields[5]) < 8:
        peer = int(fields[5])
    return fields[0], begin, end, size, peer


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None
