"""A kernel dataset in memory and as one Parquet file: rows of `schema.COLUMNS`, and what they were measured on.

A file holds one GPU and one software environment: profiles are never mixed. `About` travels as JSON in the Parquet file's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import FileError, SpecError
from windtunnel.records.schema import COLUMNS, VERSION

if TYPE_CHECKING:
    import pyarrow as pa

KEY = b"windtunnel"


@dataclass(frozen=True)
class About:
    """What a dataset was measured on. `gpu` is a catalogue id where there is one, else a name of its own.

    `datasheet`: what the device can do where no catalogue entry says it (peak.<dtype> in FLOP/s, memory_bandwidth in B/s, l2 and
    memory in B, sms).
    """

    gpu: str
    device: str = ""
    architecture: str = ""
    driver: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    datasheet: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    licence: str = ""
    notes: str = ""
    version: int = VERSION


@dataclass(frozen=True)
class Dataset:
    """`table` has the columns of `schema.COLUMNS` in their order and types."""

    about: About
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def rows(self) -> list[dict[str, Any]]:
        """Every row as a dict by column."""
        return list(self.table.to_pylist())

    def where(self, **equal: str) -> Dataset:
        """The rows whose columns equal the given values, such as `where(level="kernel", op="gemm")`."""
        import pyarrow.compute as pc

        table = self.table
        for name, value in equal.items():
            table = table.filter(pc.equal(table[name], value))
        return Dataset(self.about, table)


def arrow_schema() -> pa.Schema:
    """The Arrow schema of `COLUMNS`."""
    import pyarrow as pa

    types = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "flag": pa.bool_()}
    return pa.schema([pa.field(c.name, types[c.type], nullable=c.null) for c in COLUMNS])


def dataset(about: About, rows: Iterable[Mapping[str, Any]], where: str = "dataset") -> Dataset:
    """A dataset from dicts by column; a missing key is null. Rows are checked, see `checks.check`; `where` is for its messages."""
    import pyarrow as pa

    from windtunnel.records.checks import check

    schema = arrow_schema()
    made = [{name: row.get(name) for name in schema.names} for row in rows]
    try:
        table = pa.Table.from_pylist(made, schema=schema)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SpecError(where, str(error).splitlines()[0][:100], "values of the column types of docs/profile.md") from error
    return check(Dataset(about, table), where)


ENVIRONMENT = ("gpu", "device", "architecture", "driver", "libraries", "datasheet", "settings")
"""Fields of `About` that rows of one dataset must share: what differs in one of them is another profile."""


def concat(datasets: Sequence[Dataset]) -> Dataset:
    """The rows of several datasets of one GPU and environment, in order; source, licence and notes are joined.

    Raises SpecError for none at all, for datasets that differ in a field of `ENVIRONMENT` (two profiles are never mixed), and for
    rows that contradict each other.
    """
    import pyarrow as pa

    from windtunnel.records.checks import check

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


def write(data: Dataset, path: str | Path) -> None:
    """One Parquet file (zstd). Raises FileError if it cannot be written."""
    import pyarrow.parquet as pq

    table = data.table.replace_schema_metadata({KEY: about_text(data.about).encode()})
    try:
        pq.write_table(table, Path(path), compression="zstd")
    except OSError as error:
        raise FileError(str(path), error.strerror or str(error), "a file that can be written") from error


def read(path: str | Path) -> Dataset:
    """A dataset from its file.

    Raises FileError if it is missing, truncated, not Parquet, or not this schema; SpecError for rows that cannot be.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from windtunnel.records.checks import check, conform

    try:
        table = pq.read_table(Path(path))
    except (OSError, pa.ArrowException) as error:
        reason = "There is no such file." if isinstance(error, FileNotFoundError) else f"{str(error).splitlines()[0].rstrip('.')}."
        raise FileError(
            str(path), "a file that is missing, cut off or not Parquet", "a Parquet file that `windtunnel profile` wrote", reason
        ) from error
    about = about_of((table.schema.metadata or {}).get(KEY), str(path))
    return check(Dataset(about, conform(table, str(path))), str(path))


def about_text(about: About) -> str:
    """`about` as one line of JSON."""
    return json.dumps(asdict(about), sort_keys=True)


def about_of(stored: bytes | str | None, path: str) -> About:
    """The reverse. FileError for what is not the description of a profile, or of a later version than this one reads."""
    try:
        found = json.loads(stored or "")
        known = {f.name for f in fields(About)}
        about = About(**{name: value for name, value in found.items() if name in known})
        texts = (about.gpu, about.device, about.architecture, about.driver, about.source, about.licence, about.notes)
        numbers = all(isinstance(value, (int, float)) for value in about.datasheet.values())
        if not all(isinstance(text, str) for text in texts) or not numbers or not isinstance(about.version, int):
            raise TypeError(found)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileError(
            path,
            "a table without the description of a profile",
            "a file that `windtunnel profile` wrote",
            "Other people's tables come in with `windtunnel profile import`.",
        ) from error
    if about.version > VERSION:
        raise FileError(path, f"schema version {about.version}", f"at most {VERSION}", "Update windtunnel.")
    return about
