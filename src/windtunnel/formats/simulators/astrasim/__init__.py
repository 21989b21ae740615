"""ASTRA-sim's files: network yml and system, remote memory, communicator group and logical topology JSON, ns-3 topology, and the
text workloads of ASTRA-sim 1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.formats.head import Head
from windtunnel.formats.reading import Context, Reading
from windtunnel.formats.simulators.astrasim import files, text


def recognises(head: Head) -> bool:
    """Whether a file is one of ASTRA-sim's, by its keys or the shape of its lines."""
    return files.kind_of(head.text, head.complete) is not None or text.is_workload(head.lines)


def read(paths: Sequence[Path], context: Context) -> Reading:
    """One file. SpecError where several are given: they are of different kinds."""
    return text.read(paths[0]) if not files.is_known(paths[0]) else files.read(paths)


__all__ = ["read", "recognises"]
