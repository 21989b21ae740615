"""Batches that were acknowledged and cannot be read: kept as they lie in the log, in `dead/` of the run's folder, never dropped."""

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
    """Writes each span of a segment into a file of its own, durable when this returns, and says so in the log. Keeping it again
    writes the same. OSError of the disk."""
    if not damaged:
        return
    (folder / FOLDER).mkdir(exist_ok=True)
    for span in damaged:
        path = dead_path(folder, segment, span.begin)
        path.write_bytes(raw[span.begin : span.end])
        sync(path)
        size = span.end - span.begin
        LOG.error("segment %d: %d bytes at %d cannot be read (%s): kept in %s", segment, size, span.begin, span.why, path)
    sync(folder / FOLDER)
    sync(folder)


def dead_path(folder: Path, segment: int, begin: int) -> Path:
    """Where a span of a segment is kept."""
    return folder / FOLDER / f"segment-{segment:08d}-{begin:08d}.wtlog"


def dead_letters(folder: Path) -> int:
    """How many are kept in a run's folder."""
    return sum(1 for _ in (folder / FOLDER).glob("*.wtlog"))
