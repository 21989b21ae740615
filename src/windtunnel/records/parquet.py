"""A dataset as one Parquet file; `About` is JSON in the file's metadata."""

from __future__ import annotations

from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.records.checks import check, conform
from windtunnel.records.kernel_dataset import KEY, Dataset, about_of, about_text


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

    Raises FileError if it is missing, truncated, not Parquet, or of another schema; SpecError for impossible rows.
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
    about = about_of((table.schema.metadata or {}).get(KEY), str(path))
    return check(Dataset(about, conform(table, str(path))), str(path))
