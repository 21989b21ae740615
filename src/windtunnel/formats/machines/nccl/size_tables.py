"""Tables of collectives by size that others than nccl-tests print: the torch benchmark of the "ML Engineering" book, oneCCL's and
Intel's benchmarks (IMB), HCCL's tests, DeepSpeed's communication log, and rows of nccl-tests of which columns were left out.

A header names columns, below it (or in it) stand their units; rows follow. `size_tables.toml` has the names. A size is that of the
message as nccl-tests counts it; DeepSpeed's KB, MB and GB are 2^10, 2^20 and 2^30 B.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.base.files import table_beside
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines
from windtunnel.records.measured_calls import CallTable, MeasuredCall, MeasuredCalls

_APART = re.compile(r"\s*\|\s*|\t+|\s{2,}|(?<=\))\s(?=[A-Za-z])")
_RULE = re.compile(r"[\s|:+=#-]*")
_CELL = re.compile(r"(\d[\d_,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([A-Za-z/]*)")
_UNIT = re.compile(r"[(\[](us|usec|ms|s|B|bytes|GB/s|MB/s|Gbps|Gb/s)[)\]]", re.IGNORECASE)
_MOST = 100_000


@dataclass
class _Table:
    """A header and its rows: the place of the size, of the time and of the rate, each with the unit of its column."""

    size: int
    time: int | None
    rate: int | None
    units: dict[int, str]
    width: int
    spaced: bool
    comm: Comm | None
    rows: list[tuple[Comm | None, MeasuredCall]]


def recognises(head: Head) -> bool:
    """A header with a size and a time or rate of a collective, and two rows."""
    if not head.text or head.text.lstrip()[:1] in "{<":
        return False
    return any(len(table.rows) >= 2 for table in _tables(head.lines[:4000])[0])


def read(files: Sequence[Path], context: Context) -> Reading:
    """Measured calls by table. FileError for files without two rows below a header."""
    tables: list[CallTable] = []
    facts: dict[str, Any] = {"tables": {}}
    broken: list[str] = []
    for path in files:
        found, ranks, library = _tables(LogLines(path, context.progress, broken))
        for table in found:
            for comm in dict.fromkeys(one for one, _ in table.rows):
                calls = tuple(call for one, call in table.rows if one == comm)
                if comm is None:
                    broken.append(f"{path}: {len(calls)} rows of a collective that no line names")
                    continue
                tables.append(CallTable(comm, ranks, 0, calls, library, source=str(path)))
                facts["tables"][f"{comm.name.lower()} {len(tables)}"] = _summary(calls)
        facts |= {"ranks": ranks}
    if not tables:
        hint = "Write the collective's name (all_reduce, …) in a line above the table." if broken else ""
        raise FileError(str(files[0]), "no table of a collective whose name is known", "a header and rows by size", hint)
    assumed = () if facts["ranks"] else ("the number of ranks is not printed, so a fit leaves the tables out",)
    built = (f"{sum(len(table.calls) for table in tables)} measured calls of {len(tables)} collectives",)
    return Reading("collective-tables", Content.COLLECTIVES, MeasuredCalls(tuple(tables)), facts, built, (), assumed, tuple(broken))


def _summary(calls: Sequence[MeasuredCall]) -> dict[str, float]:
    largest = max(calls, key=lambda call: call.bytes)
    return {
        "rows": len(calls),
        "largest_bytes": largest.bytes,
        "seconds_at_largest": largest.seconds,
        "GBps_at_largest": round(largest.bytes / largest.seconds / 1e9, 3),
    }


@cache
def _words(kind: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((name, re.compile(word, re.IGNORECASE)) for name, word in table_beside(__file__)[kind].items())


def _tables(lines: Iterator[str] | LogLines | list[str]) -> tuple[list[_Table], int, str]:
    """The tables of a text, its number of ranks (0 unknown) and whose calls these are."""
    tables: list[_Table] = []
    open_: _Table | None = None
    comm: Comm | None = None
    ranks, library = 0, "nccl"
    for text in lines:
        for name, word in _words("about"):
            if (said := word.search(text)) is not None:
                ranks = int(said[1]) if name.startswith("ranks") and said.re.groups else ranks
                library = "mpi" if name.startswith("mpi") else library
        if (made := _header(text)) is not None:
            open_ = made
            open_.comm = comm = _comm_in(text) or comm
            tables.append(open_)
            continue
        row = _row(text, open_) if open_ is not None else None
        if open_ is not None and row is not None and sum(len(table.rows) for table in tables) < _MOST:
            open_.rows.append((comm or open_.comm, row))
        elif open_ is not None and not open_.rows and len(units := _UNIT.findall(text)) == open_.width:
            open_.units = dict(enumerate(units))
        elif not _RULE.fullmatch(text) and (named := _comm_in(text)) is not None:
            comm = named
    return [table for table in tables if table.rows], ranks, library


def _comm_in(text: str) -> Comm | None:
    """The collective that a line names."""
    plain = re.sub(r"[\s_-]", "", text.lower())
    return next((Comm[name] for name, word in _words("collectives") if word.search(plain)), None)


def _header(text: str) -> _Table | None:
    for spaced in (False, True):
        cells = [cell.strip(" #") for cell in (text.split() if spaced else _APART.split(text.strip(" |\t")))]
        if len(cells) < 3 or any(re.fullmatch(r"[\d.]+", cell) for cell in cells):
            continue
        found = {name: at for name, word in _words("columns") for at, cell in reversed([*enumerate(cells)]) if word.fullmatch(cell)}
        if "size" in found and ("rate" in found or ("time" in found and "sure" in found)):
            units = {at: unit[1] for at, cell in enumerate(cells) if (unit := _UNIT.search(cell)) is not None}
            return _Table(found["size"], found.get("time"), found.get("rate"), units, len(cells), spaced, None, [])
    return None


def _row(text: str, table: _Table) -> MeasuredCall | None:
    plain = text.strip(" |\t")
    cells = plain.split() if table.spaced else _APART.split(plain)
    first = table.width - len(cells)  # 1 where the name of the collective stands in a line of its own
    if first not in (0, 1) or first > table.size:
        return None
    size = _quantity(cells[table.size - first], table.units.get(table.size, "b"))
    times = _quantity(cells[table.time - first], table.units.get(table.time, "us")) if table.time is not None else None
    rate = _quantity(cells[table.rate - first], table.units.get(table.rate, "gb/s")) if table.rate is not None else None
    seconds = times if times is not None and times > 0 else size / rate if size and rate else None
    return MeasuredCall(size, seconds) if size is not None and size > 0 and seconds is not None and seconds > 0 else None


def _quantity(cell: str, unit: str) -> float | None:
    """A number in bytes, seconds or bytes/s by the unit behind it, else by its column's."""
    match = _CELL.fullmatch(cell.strip())
    if match is None:
        return None
    factors, named = table_beside(__file__)["units"], match[2] or unit
    factor = factors.get(named, factors.get(named.lower()))
    return None if factor is None else float(match[1].replace("_", "").replace(",", "")) * float(factor)
