"""What must hold of every dataset before anything uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.errors import FileError, SpecError
from windtunnel.records.schema import COLUMNS, LEVELS, MODES, MODULES, NAMES, OPS, PHASES, STATUSES

if TYPE_CHECKING:
    import pyarrow as pa

    from windtunnel.records.dataset import Dataset

CHOICES = {"level": LEVELS, "phase": PHASES, "mode": MODES, "status": STATUSES}


def conform(table: pa.Table, path: str) -> pa.Table:
    """`table` with the schema's columns in order; FileError for a missing or unknown column, or one of another type."""
    import pyarrow as pa

    from windtunnel.records.dataset import arrow_schema

    missing = [name for name in NAMES if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in NAMES]
    if missing or unknown:
        found = {"no column": missing, "unknown column": unknown}
        got = "; ".join(f"{what} {', '.join(names)}" for what, names in found.items() if names)
        raise FileError(path, got, "the columns of docs/profile.md")
    try:
        return table.select(list(NAMES)).cast(arrow_schema())
    except (pa.ArrowException, ValueError) as error:
        raise FileError(path, str(error).splitlines()[0], "the column types of docs/profile.md") from error


def check(data: Dataset, path: str) -> Dataset:
    """`data` itself. Raises SpecError naming the first row (from 0) whose time, shape or word cannot be."""
    import pyarrow.compute as pc

    table = data.table
    if not data.about.gpu:
        raise SpecError(f"{path}: about.gpu", data.about.gpu, "the name of the GPU it was measured on")
    for column in COLUMNS:
        values = table[column.name]
        if not column.null and values.null_count:
            _fail(path, column.name, pc.is_null(values), values, "a value")
        if column.type == "number":
            good = pc.and_(pc.is_finite(values), pc.greater_equal(values, 0.0))
            _refuse(path, column.name, pc.invert(good), values, "a finite number that is not negative")
        if column.type == "integer":
            _refuse(path, column.name, pc.less(values, 0), values, "a whole number that is not negative")
    for name, allowed in CHOICES.items():
        _words(path, name, table, allowed)
    kernel = pc.equal(table["level"], "kernel")
    _words(path, "op", table.filter(kernel), OPS)
    _words(path, "op", table.filter(pc.invert(kernel)), MODULES)
    usable = pc.equal(table["status"], "ok")
    timed = table.filter(usable)["seconds"]
    _refuse(path, "seconds", pc.fill_null(pc.less_equal(timed, 0.0), True), timed, "a positive time in seconds")
    return data


def _words(path: str, name: str, table: pa.Table, allowed: tuple[str, ...]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    values = table[name]
    _refuse(path, name, pc.invert(pc.is_in(values, value_set=pa.array(allowed))), values, ", ".join(allowed))


def _refuse(path: str, name: str, bad: pa.ChunkedArray, values: pa.ChunkedArray, allowed: str) -> None:
    import pyarrow.compute as pc

    if pc.any(pc.fill_null(bad, False)).as_py():
        _fail(path, name, pc.fill_null(bad, False), values, allowed)


def _fail(path: str, name: str, bad: pa.ChunkedArray, values: pa.ChunkedArray, allowed: str) -> None:
    import pyarrow.compute as pc

    row = pc.index(bad, True).as_py()
    raise SpecError(f"{path}: {name} of row {row}", values[row].as_py(), allowed)
