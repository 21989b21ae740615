"""TraceLens's tables (CSV): a trace's time by type, operators and kernels with their times, collectives, and comparisons of two.

Columns as its reports name them; us and ms stand in their names, sums of collectives (`dur_sum`) are us.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_MARKS = re.compile(
    r"TFLOPS/s|FLOPS/Byte|Kernel (?:Time|duration) \(|Parent cpu_op|op category|[Tt]otal[_ ][Dd]irect[_ ][Kk]ernel|\btime ms\b"
)
_SETS = ({"bin_start", "bin_end", "count"}, {"Collective name", "dur_sum"})
_TIMES = (
    ("total_direct_kernel_time_ms", 1.0),
    ("total_direct_kernel_time_sum", 1e-3),
    ("Kernel duration (µs)_sum", 1e-3),
    ("Kernel duration (µs) sum", 1e-3),
    ("Kernel Time (µs)_sum", 1e-3),
    ("Total Kernel Time (ms)", 1.0),
    ("total_duration_us", 1e-3),
    ("dur_sum", 1e-3),
    ("time ms", 1.0),
    ("Kernel duration (µs)", 1e-3),
)
"""The column with a row's time, the first that a table has, and its unit in ms."""
_NAMES = ("type", "Kernel name", "Collective name", "op category", "name", "Parent cpu_op")
_SHOWN = 12


def recognises(head: Head) -> bool:
    """A first line of columns that TraceLens names so."""
    line = next(iter(head.lines), "")
    names = {name.strip() for name in line.split(",")}
    return len(names) >= 3 and "{" not in line and (_MARKS.search(line) is not None or any(one <= names for one in _SETS))


def read(files: Sequence[Path], context: Context) -> Reading:
    """What each table holds. FileError for files without a header."""
    tables: dict[str, dict[str, Any]] = {}
    broken: list[str] = []
    for path in files:
        lines = LogLines(path, context.progress)
        own = _table(lines, broken, str(path))
        broken.extend(lines.broken)
        if own:
            tables[path.name] = own
    if not tables:
        raise FileError(str(files[0]), "a table without columns", "a CSV of TraceLens's report")
    facts: dict[str, Any] = {"tables": len(tables), **next(iter(tables.values()))} if len(tables) == 1 else {"by_table": tables}
    built = tuple(f"{name}: {one['rows']} rows{_total(one)}" for name, one in tables.items())
    hint = "the trace itself gives more: `windtunnel runs show TRACE`"
    return Reading("tracelens", Content.SETTINGS, tables, facts, built, (hint,), (), tuple(broken))


def _table(lines: LogLines, broken: list[str], source: str) -> dict[str, Any]:
    """Rows, columns, and ms by name; of a comparison those of its first side that states times."""
    rows = csv.reader(f"{line}\n" for line in lines)
    columns: list[str] = []
    sums: Counter[str] = Counter()
    count = bad = 0
    at: tuple[int, int, float] | None = None
    try:
        for row in rows:
            if not columns:
                columns = [cell.strip() for cell in row]
                at = _places(columns)
                continue
            count += 1
            if len(row) != len(columns):
                bad += 1
            elif at is not None and (len(sums) < 100_000 or row[at[0]] in sums):
                sums[row[at[0]]] += _number(row[at[1]]) * at[2]  # type: ignore[assignment]
    except csv.Error as error:
        broken.append(f"{source}: row {count + 1}: {error}")
    if bad:
        broken.append(f"{source}: {bad} rows with other columns than the header")
    facts: dict[str, Any] = {"rows": count, "columns": len(columns)} if columns else {}
    if at is not None and sums:
        facts |= {"time": columns[at[1]], "ms": {name: round(float(ms), 4) for name, ms in sums.most_common(_SHOWN)}}
        facts["total_ms"] = round(float(sum(sums.values())), 4)
        if columns[at[0]] == "type":  # parts of one time, and its sum beside them
            facts["total_ms"] = facts["ms"].get("total_time", facts["total_ms"])
    return facts


def _places(columns: Sequence[str]) -> tuple[int, int, float] | None:
    """(column of the name, column of the time, its unit in ms)."""
    name = next((columns.index(one) for one in _NAMES if one in columns), -1)
    for wanted, unit in _TIMES:
        at = next((at for at, column in enumerate(columns) if column.split("::")[-1].endswith(wanted)), -1)
        if at >= 0 and name >= 0:
            return name, at, unit
    return None


def _number(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        return 0.0
    return value if abs(value) < 1e15 else 0.0


def _total(one: dict[str, Any]) -> str:
    return f", {one['total_ms']:,.3f} ms" if "total_ms" in one else ""
