"""Checks of every dataset before it is used: columns, words, times. `plausible.py` checks times against the GPU.

Datasets from rows, and from other datasets; both are checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import FileError, SpecError
from windtunnel.records.kernel_dataset import Dataset, arrow_schema
from windtunnel.records.plausible import agree, plausible, tell
from windtunnel.records.schema import COLUMNS, DTYPES, FILE_OPS, LEVELS, MODES, MODULES, NAMES, OPS, PHASES, SINCE, STATUSES

if TYPE_CHECKING:
    import pyarrow as pa

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from windtunnel.records.kernel_dataset import About

if TYPE_CHECKING:
    import pyarrow as pa


CHOICES = {"level": LEVELS, "phase": PHASES, "dtype": DTYPES, "mode": MODES, "status": STATUSES}
ROUNDING = 1.001
"""A median may lie this factor outside its minimum and maximum: tables print rounded figures."""


def conform(table: pa.Table, path: str) -> pa.Table:
    """`table` with the schema's columns in order; FileError for a missing or unknown column, or one of another type.

    Columns that came with a later version of the schema are null where they are missing.
    """
    import pyarrow as pa

    for name in SINCE:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(len(table)))
    missing = [name for name in NAMES if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in NAMES]
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if missing or unknown or twice:
        wrong = {"no column": missing, "unknown column": unknown, "twice": twice}
        got = "; ".join(f"{what} {', '.join(names)}" for what, names in wrong.items() if names)
        raise FileError(
            path,
            got,
            "the columns of docs/profile.md, each once",
            f"`windtunnel profile import {path} --gpu ID` takes tables with fewer columns or other units.",
        )
    try:
        conforming = table.select(list(NAMES)).cast(arrow_schema())
        conforming.validate(full=True)  # a damaged file may hold text that is not UTF-8
        return conforming
    except (pa.ArrowException, ValueError) as error:
        raise FileError(path, str(error).splitlines()[0], "the column types of docs/profile.md") from error


def check(data: Dataset, path: str) -> Dataset:
    """Returns `data`. Raises SpecError naming the first row (from 0) with an impossible time, shape or word.

    Also refused: a device that is not the named GPU, times that this GPU cannot achieve or that are a thousand times off
    (another unit), rows of the same measurement that contradict each other.
    """
    import pyarrow.compute as pc

    table = data.table
    if not data.about.gpu:
        raise SpecError(f"{path}: about.gpu", data.about.gpu, "the name of the GPU it was measured on")
    for column in COLUMNS:
        values = table[column.name]
        if not column.null and values.null_count:
            _refuse(path, column.name, table, pc.is_null(values), "a value")
        if column.type == "number":
            good = pc.and_(pc.is_finite(values), pc.greater_equal(values, 0.0))
            _refuse(path, column.name, table, pc.invert(good), "a finite number that is not negative")
        if column.type == "integer":
            _refuse(path, column.name, table, pc.less(values, 0), "a whole number that is not negative")
    everywhere = pc.is_valid(table["level"])
    kernel = pc.equal(table["level"], "kernel")
    for name, allowed in CHOICES.items():
        _words(path, name, table, everywhere, allowed)
    _words(path, "op", table, kernel, OPS)
    file = pc.equal(table["level"], "file")
    _words(path, "op", table, file, FILE_OPS)
    _words(path, "op", table, pc.invert(pc.or_(kernel, file)), MODULES)
    _times(path, table)
    agree(table, path)
    plausible(data, path)
    return data


def _times(path: str, table: pa.Table) -> None:
    import pyarrow.compute as pc

    seconds = table["seconds"]
    without = pc.equal(table["status"], "oom")
    wrong = pc.fill_null(pc.less_equal(seconds, 0.0), True)
    _refuse(path, "seconds", table, pc.and_(wrong, pc.invert(without)), "a positive time in seconds")
    _refuse(path, "seconds", table, pc.and_(pc.is_valid(seconds), without), "no time where status is oom")
    for name, bad in (
        ("seconds_min", pc.greater(table["seconds_min"], pc.multiply(seconds, ROUNDING))),
        ("seconds_max", pc.less(table["seconds_max"], pc.divide(seconds, ROUNDING))),
    ):
        side = "at most" if name.endswith("min") else "at least"
        _refuse(path, name, table, bad, f"{side} the row's `seconds`", "Are all times of the row in seconds?")


def _words(path: str, name: str, table: pa.Table, among: pa.ChunkedArray, allowed: tuple[str, ...]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pc.is_in(table[name], value_set=pa.array(allowed))
    _refuse(path, name, table, pc.and_(among, pc.invert(known)), ", ".join(allowed))


def _refuse(path: str, name: str, table: pa.Table, bad: pa.ChunkedArray, allowed: str, hint: str = "") -> None:
    """SpecError for the first row of `table` that `bad` marks."""
    import pyarrow.compute as pc

    row = pc.index(pc.fill_null(bad, False), True).as_py()
    if row >= 0:
        value: Any = table[name][row].as_py()
        raise SpecError(f"{path}: {name} of row {tell(table, row)}", value, allowed, hint)


ENVIRONMENT = ("gpu", "device", "architecture", "driver", "libraries", "datasheet", "settings")
"""Fields of `About` that all rows of a dataset share: rows that differ in one of them belong to another profile."""


def dataset(about: About, rows: Iterable[Mapping[str, Any]], where: str = "dataset") -> Dataset:
    """A dataset from dicts by column; a missing key is null. Rows are checked, see `checks.check`; `where` is for its messages."""
    import pyarrow as pa

    schema = arrow_schema()
    cells = [{name: row.get(name) for name in schema.names} for row in rows]
    try:
        table = pa.Table.from_pylist(cells, schema=schema)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SpecError(where, str(error).splitlines()[0][:100], "values of the column types of docs/profile.md") from error
    return check(Dataset(about, table), where)


def dataset_of_columns(about: About, table: pa.Table, where: str = "dataset") -> Dataset:
    """A dataset from a table that already has the schema's columns; checked as `dataset` does."""
    return check(Dataset(about, table), where)


def concat(datasets: Sequence[Dataset]) -> Dataset:
    """The rows of several datasets of one GPU and environment, in order; source, licence and notes are joined.

    Raises SpecError for an empty list, for datasets that differ in a field of `ENVIRONMENT` (two profiles are never mixed), and for
    rows that contradict each other.
    """
    import pyarrow as pa

    if not datasets:
        raise SpecError("concat", 0, "at least one dataset")
    first = datasets[0].about
    for number, other in enumerate(datasets[1:], start=1):
        for name in ENVIRONMENT:
            mine, its = getattr(first, name), getattr(other.about, name)
            if mine != its:
                raise SpecError(
                    f"dataset {number}: about.{name}",
                    its,
                    f"that of dataset 0, {mine!r}",
                    "Profiles of two GPUs or environments are never mixed: keep a file for each.",
                )
    source, licence, notes = (
        "; ".join(dict.fromkeys(text for data in datasets if (text := getattr(data.about, name))))
        for name in ("source", "licence", "notes")
    )
    about = replace(first, source=source, licence=licence, notes=notes)
    return check(Dataset(about, pa.concat_tables([data.table for data in datasets])), "concat")
