"""How a dataset of windtunnel is told from other tables."""

from __future__ import annotations

from windtunnel.formats.head import Head
from windtunnel.records.kernel_dataset import KEY, MARK


def is_dataset(head: Head) -> bool:
    """Whether a file is a dataset of windtunnel, as Parquet or as CSV."""
    return KEY in head.parquet_keys or head.data.startswith(MARK.encode())
