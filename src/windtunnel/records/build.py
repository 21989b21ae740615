"""Datasets from rows, and from other datasets; both are checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import SpecError
from windtunnel.records.checks import check
from windtunnel.records.kernel_dataset import About, Dataset, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

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
