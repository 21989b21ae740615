"""Batches that were acknowledged but cannot be read. They are copied to `dead/` in the run's folder and never dropped."""

from __future__ import annotations

import logging
import mmap
from collections.abc import Sequence
from pathlib import Path

from windtunnel.fleet.collect.log import DamagedSpan
from windtunnel.fleet.disk import sync

LOG = logging.getLogger("windtunnel.fleet.collect")
FOLDER = "dead"


def keep_dead(folder: Path, segment: int, raw: bytes | mmap.mmap, damaged: Sequence[DamagedSpan]) -> None:
    """Writes each damaged span of a segment to a file of its own, durable on return, and logs it. Repeating it writes the same
    files. OSError from the disk.
    """
    if not damaged:
        return
    (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
    for span in damaged:
        path = dead_path(folder, segment, span.begin)
        path.touch(mode=0o600)
        path.write_bytes(raw[span.begin : span.end])
        sync(path)
        size = span.end - span.begin
        LOG.error("segment %d: %d bytes at %d cannot be read (%s): kept in %s", segment, size, span.begin, span.why, path)
    sync(folder / FOLDER)
    sync(folder)


def dead_path(folder: Path, segment: int, begin: int) -> Path:
    """Path of the copy of a damaged span."""
    return folder / FOLDER / f"segment-{segment:08d}-{begin:08d}.wtlog"


def dead_letters(folder: Path) -> int:
    """Number of copies in a run's folder."""
    return sum(1 for _ in (folder / FOLDER).glob("*.wtlog"))
