"""PyTorch's NCCL flight recorder: the calls that each rank had enqueued when a job hung, as pickles or JSON, a file a rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.formats.head import Head
from windtunnel.formats.reading import Context, Reading


def recognises(head: Head) -> bool:
    """A pickle, or JSON, with the recorder's keys; the first recorders wrote entries alone."""
    if head.data[:1] == b"\x80":
        keys = (b"pg_config", b"version") if b"pg_config" in head.data else (b"profiling_name", b"seq_id")
        return all(key in head.data for key in keys)
    return head.starts_json("pg_config", "version") and '"traceEvents"' not in head.text


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run of calls with the first that not all ranks of its group enqueued. WindtunnelError for files that hold no dump."""
    from windtunnel.formats.traces.flight_recorder.reader import read_dumps

    return read_dumps(files)
