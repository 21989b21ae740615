"""Nsight Systems' SQLite export (`nsys export --type sqlite`): kernels, copies, API calls and NVTX ranges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.formats.head import Head
from windtunnel.formats.reading import Context, Reading


def recognises(head: Head) -> bool:
    """An SQLite file whose schema names Nsight's tables."""
    return head.data[:16] == b"SQLite format 3\0" and (b"CUPTI_ACTIVITY_KIND_" in head.data or b"NVTX_EVENTS" in head.data)


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run from the exports of its nodes or ranks. WindtunnelError for a file without events."""
    from windtunnel.formats.traces.nsight.reader import read_exports

    return read_exports(files, context)
