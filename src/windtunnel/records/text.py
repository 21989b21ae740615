"""A dataset as CSV, for spreadsheets and diffs: a first line `# windtunnel {about as JSON}`, then the columns of the schema.

An empty cell is null, a quoted empty one the empty text.

A dataset as one Parquet file; `About` is JSON in the file's metadata.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.records.checks import check, conform
from windtunnel.records.kernel_dataset import KEY, MARK, SEAL, Dataset, about_of, about_text, arrow_schema, seal_of
from windtunnel.records.schema import VERSION


def to_csv(data: Dataset) -> str:
    """The text of `data`."""
    import pyarrow.csv as pc

    buffer = io.BytesIO()
    pc.write_csv(data.table, buffer, pc.WriteOptions(quoting_style="needed"))
    return f"{MARK}{about_text(data.about)}\n{buffer.getvalue().decode()}"


def from_csv(text: str, path: str) -> Dataset:
    """Inverse of `to_csv`. FileError if it is not such a text, SpecError for impossible rows."""
    import pyarrow as pa
    import pyarrow.csv as pc

    first, _, rest = text.partition("\n")
    if not first.startswith(MARK):
        raise FileError(
            path,
            first[:60],
            f"a first line that begins with {MARK!r}",
            f"`windtunnel profile import {path} --gpu ID` reads other tables.",
        )
    about = about_of(first.removeprefix(MARK), path)
    types = {field.name: field.type for field in arrow_schema()}
    options = pc.ConvertOptions(column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""])
    parse = pc.ParseOptions(newlines_in_values=True)
    try:
        table = pc.read_csv(io.BytesIO(rest.encode()), parse_options=parse, convert_options=options)
    except (pa.ArrowException, ValueError) as error:
        raise FileError(path, str(error).splitlines()[0], "a CSV that `windtunnel profile export` wrote") from error
    return check(Dataset(about, conform(table, path)), path)


def read_any(path: str | Path) -> Dataset:
    """A dataset from its Parquet file or its CSV, distinguished by the first bytes."""
    try:
        with Path(path).open("rb") as stream:
            start = stream.read(len(MARK))
        if start == MARK.encode():
            return from_csv(Path(path).read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(str(path), getattr(error, "strerror", None) or str(error), "a readable dataset") from error
    return read(path)


def write(data: Dataset, path: str | Path) -> None:
    """One Parquet file (zstd) with the seal of its rows. Raises FileError if it cannot be written."""
    import pyarrow.parquet as pq

    sealed = Dataset(replace(data.about, version=VERSION), data.table)
    table = data.table.replace_schema_metadata({KEY: about_text(sealed.about).encode(), SEAL: seal_of(sealed).encode()})
    try:
        pq.write_table(table, Path(path), compression="zstd")
    except OSError as error:
        raise FileError(str(path), error.strerror or str(error), "a file that can be written") from error


def read(path: str | Path) -> Dataset:
    """A dataset from its file.

    Raises FileError if it is missing, truncated, not Parquet, of another schema, or has rows that its seal is not of; SpecError for
    impossible rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(Path(path))
    except (OSError, pa.ArrowException) as error:
        reason = "There is no such file." if isinstance(error, FileNotFoundError) else f"{str(error).splitlines()[0].rstrip('.')}."
        raise FileError(
            str(path), "a file that is missing, cut off or not Parquet", "a Parquet file that `windtunnel profile` wrote", reason
        ) from error
    metadata = table.schema.metadata or {}
    data = check(Dataset(about_of(metadata.get(KEY), str(path)), conform(table, str(path))), str(path))
    stated = metadata.get(SEAL)
    if stated is not None and stated.decode(errors="replace") != seal_of(data):
        raise FileError(
            str(path),
            "rows that are not those that were sealed",
            "a file as it was measured",
            "Take a whole copy, or measure again.",
        )
    return data
