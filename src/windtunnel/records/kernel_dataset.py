"""A kernel dataset in memory: rows of `schema.COLUMNS`, and the environment of the measurement.

A dataset holds one GPU and one software environment: profiles are never mixed. `About` travels as JSON in a file's metadata.

What a dataset of measured kernels holds, in numbers.

What a dataset of measured kernels shows: what it was measured on, and what it has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windtunnel.base.dataclasses import asdict, dataclass, field, fields, replace
from windtunnel.base.errors import FileError
from windtunnel.records.schema import COLUMNS, VERSION
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Cell, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote

if TYPE_CHECKING:
    import pyarrow as pa


KEY = b"windtunnel"
SEAL = b"windtunnel.seal"
"""Keys of a file's metadata: its description, and the hash of its rows."""
MARK = "# windtunnel "
"""How the first line of a dataset as CSV begins."""


@dataclass(frozen=True)
class About:
    """The environment of a dataset. `gpu`: a catalogue id if there is one, else a new name.

    `datasheet`: figures of a device without a catalogue entry (peak.<dtype> in FLOP/s, memory_bandwidth in B/s, l2 and
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


def about_text(about: About) -> str:
    """`about` as one line of JSON."""
    return json.dumps(asdict(about), sort_keys=True)


def seal_of(data: Dataset) -> str:
    """SHA-256 over the description and every cell of a dataset, in hexadecimal. Columns without a value do not count, nor does how
    the file is compressed."""
    import hashlib

    import pyarrow as pa

    hashed = hashlib.sha256(about_text(data.about).encode())
    for name in data.table.column_names:
        column = data.table[name].combine_chunks()
        if column.null_count == len(column):
            continue
        hashed.update(f"\n{name} {column.type} {len(column)}\n".encode())
        hashed.update(column.is_valid().to_numpy(zero_copy_only=False).tobytes())
        if pa.types.is_string(column.type):
            hashed.update("\0".join(word or "" for word in column.to_pylist()).encode())
        else:
            plain = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
            hashed.update(plain.fill_null(0).to_numpy(zero_copy_only=False).tobytes())
    return hashed.hexdigest()


def about_of(stored: bytes | str | None, path: str) -> About:
    """Inverse of `about_text`. FileError for text that is not the description of a profile, or of a later version."""
    try:
        document = json.loads(stored or "")
        known = {f.name for f in fields(About)}
        about = About(**{name: value for name, value in document.items() if name in known})
        texts = (about.gpu, about.device, about.architecture, about.driver, about.source, about.licence, about.notes)
        numbers = all(isinstance(value, (int, float)) for value in about.datasheet.values())
        if not all(isinstance(text, str) for text in texts) or not numbers or not isinstance(about.version, int):
            raise TypeError(document)
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


KEYS = ("level", "op", "phase", "dtype", "mode")


def contents_of(data: Dataset) -> dict[str, Any]:
    """What is in a dataset: `about`, `rows`, and `contents` by level, op, phase, dtype and mode, with the shortest and the longest
    of the usable seconds."""
    groups: dict[tuple[str, ...], list[tuple[str, float | None]]] = {}
    names = (*KEYS, "status", "seconds")
    for *key, status, seconds in zip(*(data.table[name].to_pylist() for name in names), strict=True):
        groups.setdefault(tuple(key), []).append((status, seconds))
    contents = []
    for group, rows in sorted(groups.items()):
        times = [seconds for status, seconds in rows if status == "ok" and seconds is not None]
        contents.append(
            {
                **dict(zip(KEYS, group, strict=True)),
                "rows": len(rows),
                "usable": len(times),
                "shortest_s": min(times, default=None),
                "longest_s": max(times, default=None),
            }
        )
    return {"about": asdict(data.about), "rows": len(data), "contents": contents}


def dataset_sheet(data: Dataset) -> Sheet:
    """What `profile show` shows."""
    headline = Sentence("{gpu}: {count} rows", gpu=data.about.gpu, count=f"{len(data):,}")
    about = tuple(quote(f"{name} {value}") for name, value in _describe_about(data).items())
    table = contents_table(data)
    usable = sum(int(row[len(KEYS) + 1].value or 0) for row in table.rows)
    return Sheet(
        Sentence("Measured kernels of {gpu}", gpu=data.about.gpu), headline,
        (
            Figure("rows", "rows", len(data), "", None, f"{len(data):,}"),
            Figure("contents.usable", "usable", usable, "", None, f"{usable:,}"),
        ),
        (
            Section("", (Lines(about, mood="soft", brief=True),) if about else ()),
            Section("", (replace(table, brief=True),)),
            Section("What it was measured on", (Lines(about, detail=True),) if about else ()),
            Section("What it has", (replace(table, filtered=True, detail=True),)),
        ),
        titled=True,
    )  # fmt: skip


def contents_table(data: Dataset) -> Table:
    """What it has, by level, op, phase, dtype and mode."""
    rows = []
    for row in contents_of(data)["contents"]:
        times = (Cell("") if row[name] is None else Cell(say.seconds(row[name]), row[name]) for name in ("shortest_s", "longest_s"))
        counts = (Cell(f"{row[name]:,}", float(row[name])) for name in ("rows", "usable"))
        rows.append((*(Cell(str(row[name])) for name in KEYS), *counts, *times))
    columns = (*map(Column, KEYS), *(Column(head, True) for head in ("rows", "usable", "shortest", "longest")))
    return Table("contents", columns, tuple(rows))


def _describe_about(data: Dataset) -> dict[str, str]:
    """The non-empty fields of `about`, in words."""
    about = data.about
    pairs = {
        name: " ".join(f"{key}={value}" for key, value in sorted(getattr(about, name).items()))
        for name in ("libraries", "settings", "datasheet")
    }
    words = {name: getattr(about, name) for name in ("device", "architecture", "driver", "source", "licence", "notes")}
    return {name: text for name, text in {**words, **pairs}.items() if text}
