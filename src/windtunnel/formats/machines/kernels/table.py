"""Any CSV or Parquet with columns named as in the schema; times may carry a unit in their name (time_ms, time_us, seconds_min).

Needed are `op`, a time, and what makes the shape of that op; the rest has a default that is listed as assumed. A column `gpu` may
say whose rows they are.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import table_beside, words_by_meaning
from windtunnel.formats.head import Head
from windtunnel.formats.machines.kernels.found import LARGEST, Bad, Found, Row, label
from windtunnel.formats.machines.kernels.measurements import read_dataset
from windtunnel.formats.reading import Context, Reading
from windtunnel.records.schema import COLUMNS, DTYPES, MODULES, OPS
from windtunnel.records.work import with_work

FORMAT, WHAT = "table", "CSV or Parquet with columns of the schema"

TYPES = {column.name: column.type for column in COLUMNS}
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "ns": 1e9}
"""Unit of a time -> how many are a second: dividing keeps 400 us at 0.0004 s to the last digit."""

STATISTICS = words_by_meaning(table_beside(__file__)["statistics"])
"""Word in a time's name: column of the schema."""
TIME = re.compile(r"(?:time|duration|latency|seconds)")
ALIASES = {column: words_by_meaning(words) for column, words in table_beside(__file__)["values"].items()}
"""Column -> other people's words for ours."""

SHAPE = {"gemm": ("m", "n", "k"), "grouped_gemm": ("batch", "m", "n", "k"), "attention": ("batch", "m", "n", "k")}
"""Columns without which a kernel of that op says nothing."""


def is_table(columns: Sequence[str]) -> bool:
    """Whether the columns are the schema's: `op` and a time among them, in whatever unit."""
    names = [name.strip().lower() for name in columns]
    return "op" in names and any(TIME.match(name) for name in names)


def recognises(head: Head) -> bool:
    """Columns of the schema: `op` and a time among them."""
    return is_table(head.columns)


def read(files: Sequence[Path], context: Context) -> Reading:
    """A dataset of one GPU."""
    return read_dataset(FORMAT, files, context)


def read_rows(files: Sequence[Path], dtype: str | None) -> list[Found]:
    """One `Found` for each GPU that the column `gpu` names; a single one without that column.

    Raises FileError for missing columns, SpecError for a time whose unit is not stated or stated twice.
    """
    rows: dict[str | None, list[Row]] = {}
    bad: list[Bad] = []
    ignored: list[str] = []
    assumed: list[str] = []
    for path in files:
        columns, lines = _open(path)
        plan = _plan(columns, str(path))
        ignored += [f"column {name}" for name in columns if name not in plan and name.strip().lower() != "gpu"]
        targets = {target for target, _ in plan.values()}
        assumed += _defaults(targets, dtype, path)
        gpu = next((name for name in columns if name.strip().lower() == "gpu"), None)
        for number, cells in enumerate(lines, start=2):
            try:
                row = _row(cells, plan, dtype, path)
            except (ValueError, OverflowError) as error:
                bad.append(Bad(f"{label(path)}:{number}", f"line {number}: {error}"))
            else:
                rows.setdefault(str(cells.get(gpu) or "").strip() or None if gpu else None, []).append(row)
    if not rows and not bad:
        raise FileError(str(files[0]), "no row", "at least one measured kernel")
    notes = tuple(dict.fromkeys(ignored)), tuple(dict.fromkeys(assumed))
    return [
        Found(listed, gpu, ignored=notes[0], assumed=notes[1], bad=tuple(bad) if place == 0 else ())
        for place, (gpu, listed) in enumerate(rows.items() or [(None, [])])
    ]


def _open(path: Path) -> tuple[list[str], Iterable[Mapping[str, Any]]]:
    with path.open("rb") as stream:
        parquet = stream.read(4) == b"PAR1"
    if parquet:
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        return list(table.column_names), table.to_pylist()
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            header, *lines = list(csv.reader(stream)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(str(path), str(error)[:80], "a CSV table in UTF-8") from None
    header = [name.strip() for name in header]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise FileError(str(path), f"columns twice: {', '.join(twice)}", "each column once")
    filled = [dict(zip(header, [*cells, *[""] * (len(header) - len(cells))], strict=False)) for cells in lines if any(cells)]
    return header, filled


def _plan(columns: Sequence[str], path: str) -> dict[str, tuple[str, float]]:
    """Column of the file -> (column of the schema, its unit as a divisor)."""
    plan: dict[str, tuple[str, float]] = {}
    for name in columns:
        lower = name.strip().lower()
        if lower in TYPES:
            plan[name] = (lower, 1.0)
            continue
        time_column = _time(lower, path)
        if time_column is not None:
            plan[name] = time_column
    for target in {target for target, _ in plan.values()}:
        sources = [name for name, (other, _) in plan.items() if other == target]
        if len(sources) > 1:
            raise SpecError(path, ", ".join(sources), f"one column for `{target}`", "Columns of two units or names: drop one.")
    targets = {target for target, _ in plan.values()}
    missing = [name for name in ("op", "seconds") if name not in targets]
    if missing:
        raise FileError(
            path,
            f"no column {', '.join(missing)} among {', '.join(columns)[:120]}",
            "op, a time (time_us), m, n, k, dtype, phase",
            "docs/profile.md lists them.",
        )
    return plan


def _time(name: str, path: str) -> tuple[str, float] | None:
    """`time_ms`, `time_min_us`, `time(ns)` -> (column, divisor); None for other names, SpecError for a time without a unit."""
    words = [word for word in re.split(r"[^a-zµ]+", name) if word]
    if not words or not TIME.fullmatch(words[0]):
        return None
    rest = words[1:]
    unit = [word for word in rest if word in UNITS] or (["s"] if words[0] == "seconds" else [])
    statistic = [word for word in rest if word not in UNITS]
    if len(statistic) > 1 or statistic and statistic[0] not in STATISTICS:
        return None
    if len(unit) != 1:
        raise SpecError(
            path,
            name,
            "a time with its unit in the column's name: time_s, time_ms, time_us or time_ns",
            "The unit of this column is not stated.",
        )
    return STATISTICS[statistic[0] if statistic else ""], UNITS[unit[0]]


def _defaults(targets: set[str], dtype: str | None, path: Path) -> list[str]:
    if "dtype" not in targets and dtype is None:
        raise FileError(str(path), "no column dtype", f"one of {', '.join(DTYPES)}", "State it: --dtype bf16.")
    words = {"phase": "forward", "level": "kernel", "mode": "eager", "status": "ok"}
    return [f"{name} {word}: there is no such column" for name, word in words.items() if name not in targets]


def _row(cells: Mapping[str, Any], plan: Mapping[str, tuple[str, float]], dtype: str | None, path: Path) -> Row:
    row: Row = {}
    for name, (target, divisor) in plan.items():
        value = _value(cells.get(name), TYPES[target], target)
        row[target] = value / divisor if value is not None and divisor != 1.0 else value
    for target, known in ALIASES.items():
        word = row.get(target)
        if word is not None:
            low = str(word).lower().removeprefix("torch.")
            row[target] = known.get(low, low)
    for target, word in (
        ("level", "kernel"),
        ("phase", "forward"),
        ("mode", "eager"),
        ("status", "ok"),
        ("dtype", dtype),
        ("name", row.get("op")),
        ("source", f"table {path.name}"),
    ):
        if row.get(target) is None:
            row[target] = word
    if row["op"] is None or row["dtype"] is None:
        raise ValueError("op and dtype must not be blank")
    if row["dtype"] not in DTYPES:
        raise ValueError(f"dtype {row['dtype']!r} is none of {', '.join(DTYPES)}")
    known_ops = OPS if row["level"] == "kernel" else MODULES
    if row["op"] not in known_ops:
        raise ValueError(f"op {row['op']!r} is none of {', '.join(known_ops)}")
    lacks = [name for name in SHAPE.get(row["op"], ()) if row.get(name) is None]
    if lacks and row["level"] == "kernel":
        raise ValueError(f"{row['op']} without {', '.join(lacks)}")
    seconds = row.get("seconds")
    if row["status"] == "ok" and (seconds is None or not seconds > 0):
        raise ValueError(f"the time is {seconds!r}: a positive one is needed")
    return with_work(row) if row["level"] == "kernel" else row


def _value(cell: Any, kind: str, name: str) -> Any:
    if cell is None or isinstance(cell, str) and not cell.strip():
        return None
    if kind == "text":
        return str(cell).strip()
    try:
        return _READ[kind](str(cell).strip())
    except (ValueError, KeyError):
        allowed = {"integer": "a whole number", "number": "a finite number", "flag": "true or false"}[kind]
        raise ValueError(f"{name} is {str(cell)[:30]!r}, not {allowed}") from None


def _integer(text: str) -> int:
    value = float(text)
    if not abs(value) <= LARGEST or value != int(value):
        raise ValueError(text)
    return int(value)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_READ: dict[str, Callable[[str], Any]] = {
    "integer": _integer,
    "number": _number,
    "flag": lambda text: {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()],
}
