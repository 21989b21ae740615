"""A dataset as CSV, for spreadsheets and diffs: a first line `# windtunnel {about as JSON}`, then the columns of the schema.

An empty cell is null, a quoted empty one the empty text.
"""

from __future__ import annotations

import io
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.records.checks import check, conform
from windtunnel.records.kernel_dataset import MARK, Dataset, about_of, about_text, arrow_schema
from windtunnel.records.parquet import read


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
