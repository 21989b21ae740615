"""Durable file writes: write, fsync, rename, fsync the folder."""

from __future__ import annotations

import os
from pathlib import Path

from windtunnel.base.units import show_size

LEAST_SHARE, LEAST_BYTES = 0.05, 1 << 30
"""A disk is nearly full when less than both is left: 5 %, and 1 GiB."""


def low_space(folder: Path) -> str:
    """What is left of the disk of `folder`, as a sentence, if it is nearly full; empty otherwise, and where it cannot be told."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return ""
    left, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    if not size or left >= min(LEAST_SHARE * size, LEAST_BYTES):
        return ""
    return f"{show_size(left)} of {show_size(size)} are left on the disk of {folder}: make room, or saves and records will be lost"


def sync(path: Path) -> None:
    """Flushes a closed file, or the directory entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, text: str) -> None:
    """Replaces the contents of `path` with `text` atomically: after a crash the file holds the old text or the new one, never a
    part.
    """
    beside = path.with_name(path.name + ".tmp")
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(beside, path)
    sync(path.parent)
