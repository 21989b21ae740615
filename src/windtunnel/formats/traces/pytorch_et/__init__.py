"""PyTorch's execution traces (ExecutionTraceObserver): the operators of a process with their tensors, as JSON, a file a rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.formats.head import Head
from windtunnel.formats.reading import Context, Reading


def recognises(head: Head) -> bool:
    """An object with `schema` and `nodes`, also inside a tar file."""
    first = head.data.find(b"{", 512) if head.data[257:262] == b"ustar" else 0
    text = head.data[max(first, 0) :].decode("utf-8", "replace")
    start = text[:4096].lstrip("\ufeff \t\r\n")
    return start[:1] == "{" and '"schema"' in start and '"nodes"' in text and ('"ctrl_deps"' in text or '"rf_id"' in text)


def read(files: Sequence[Path], context: Context) -> Reading:
    """A trace graph from the traces of the ranks. WindtunnelError for files without nodes."""
    from windtunnel.formats.traces.pytorch_et.ranks import read_execution_traces

    return read_execution_traces(files, context)


def read_with(files: Sequence[Path], others: Sequence[Path], context: Context) -> Reading:
    """A trace graph with measured times, from execution traces and the profiler's traces of the same ranks.

    WindtunnelError for files without nodes or events, and for traces of different windows or ranks.
    """
    from windtunnel.formats.traces.pytorch_et.linked import read_linked

    return read_linked(files, others, context)
