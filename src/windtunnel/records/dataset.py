"""A kernel dataset in memory and as one Parquet file: rows of `schema.COLUMNS`, and what they were measured on.

A file holds one GPU and one software environment: profiles are never mixed. `About` travels as JSON in the Parquet file's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import FileError
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


def dataset(about: About, rows: Sequence[Mapping[str, Any]] | Iterable[Mapping[str, Any]]) -> Dataset:
    """A dataset from dicts by column; a missing key is null. The rows are checked, see `checks.check`."""
    import pyarrow as pa

    from windtunnel.records.checks import check

    schema = arrow_schema()
    made = [{name: row.get(name) for name in schema.names} for row in rows]
    return check(Dataset(about, pa.Table.from_pylist(made, schema=schema)), "dataset")


def write(data: Dataset, path: str | Path) -> None:
    """One Parquet file (zstd). Raises FileError if it cannot be written."""
    import pyarrow.parquet as pq

    table = data.table.replace_schema_metadata({KEY: json.dumps(asdict(data.about), sort_keys=True).encode()})
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
        raise FileError(str(path), str(error).splitlines()[0], "a Parquet file that `windtunnel profile` wrote") from error
    return check(Dataset(_about(table, str(path)), conform(table, str(path))), str(path))


def _about(table: pa.Table, path: str) -> About:
    try:
        stored = json.loads((table.schema.metadata or {})[KEY])
        known = {f.name for f in fields(About)}
        about = About(**{name: value for name, value in stored.items() if name in known})
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(path, "Parquet without the description of a profile", "a file that `windtunnel profile` wrote",
                        "Other people's tables come in with `windtunnel profile import`.") from error
    if not isinstance(about.version, int) or about.version > VERSION:
        raise FileError(path, f"schema version {about.version}", f"at most {VERSION}", "Update windtunnel.")
    return about
