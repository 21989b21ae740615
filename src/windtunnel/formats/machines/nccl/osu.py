"""Tables of the OSU micro-benchmarks: collective latencies and point-to-point latency and bandwidth.

`# OSU MPI-CUDA Allreduce Latency Test v5.7`, then rows by size: for collectives mean (and least, most) latency in us, for
point-to-point a latency in us or a rate in MB/s (10⁶ B/s) of all pairs together. The number of ranks is not printed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines, add_facts
from windtunnel.records.measured_calls import CallTable, MeasuredCall, MeasuredCalls

_TITLE = re.compile(r"#\s*OSU (\S+(?: \S+)*?) (?:Test|Benchmark)s?\b.*")
_PAIRS = re.compile(r"\[ pairs: (\d{1,9}) \]")
_ROW = re.compile(r"\d{1,15}(?:\s+-?[\d.]+)+")
_COMMS = (
    ("reduce_scatter", Comm.REDUCE_SCATTER),
    ("allreduce", Comm.ALL_REDUCE),
    ("allgather", Comm.ALL_GATHER),
    ("alltoall", Comm.ALL_TO_ALL),
    ("broadcast", Comm.BROADCAST),
    ("bcast", Comm.BROADCAST),
    ("scatter", Comm.SCATTER),
    ("gather", Comm.GATHER),
    ("reduce", Comm.REDUCE),
    ("latency", Comm.SEND_RECV),
    ("bandwidth", Comm.SEND_RECV),
)


def recognises(head: Head) -> bool:
    """The title line of a benchmark."""
    return any(_TITLE.search(line) for line in head.lines[:2000])


def read(files: Sequence[Path], context: Context) -> Reading:
    """Measured calls by benchmark. FileError for files without rows."""
    tables: list[CallTable] = []
    facts: dict[str, Any] = {}
    broken: list[str] = []
    for path in files:
        found, own = _file(path, context, broken)
        tables.extend(found)
        add_facts(facts, path, own)
    if not tables:
        raise FileError(str(files[0]), "no row of a benchmark", "a table of the OSU micro-benchmarks")
    assumed = tuple(
        f"{table.source}: the number of ranks is not printed, so a fit leaves the table out" for table in tables if not table.ranks
    )
    built = (f"{sum(len(table.calls) for table in tables)} measured calls of {len(tables)} benchmarks",)
    return Reading("osu", Content.COLLECTIVES, MeasuredCalls(tuple(tables)), facts, built, (), assumed, tuple(broken))


def _file(path: Path, context: Context, broken: list[str]) -> tuple[list[CallTable], dict[str, Any]]:
    titles: list[str] = []
    rows: list[tuple[int, list[str]]] = []
    pairs = 1
    for text in LogLines(path, context.progress, broken):
        line = text.strip()
        if match := _TITLE.search(line):
            titles.append(match[0])
        elif match := _PAIRS.search(line):
            pairs = int(match[1])
        elif titles and _ROW.fullmatch(line):
            rows.append((len(titles) - 1, line.split()))
    tables = [
        table
        for number, title in enumerate(titles)
        if (table := _table(title, [row for at, row in rows if at == number], path, pairs))
    ]
    facts: dict[str, Any] = {"title": titles, "rows": len(rows), "cols": sorted({len(row) for _, row in rows})}
    facts |= {"first": rows[0][1] if rows else None, "last": rows[-1][1] if rows else None, "pairs": pairs}
    return tables, facts


def _table(title: str, rows: list[list[str]], path: Path, pairs: int) -> CallTable | None:
    plain = title.lower().replace("-", "_").replace("reduce_scatter", "reduce_scatter").replace(" ", "")
    comm = next((comm for name, comm in _COMMS if name in plain), None)
    if comm is None or not rows:
        return None
    rate = "bandwidth" in plain
    calls = []
    for row in rows:
        try:
            size, value = float(row[0]), float(row[1])
        except ValueError:
            continue
        if value > 0 and size > 0:
            calls.append(MeasuredCall(size, size * pairs / (value * 1e6) if rate else value * 1e-6))
    on_host = not any(word in title.upper() for word in ("CUDA", "ROCM", "OPENACC", "NCCL"))
    return CallTable(
        comm,
        2 * pairs if comm == Comm.SEND_RECV else 0,
        2 if comm == Comm.SEND_RECV else 0,
        tuple(calls),
        "mpi",
        "",
        on_host,
        str(path),
    )
