"""Files that are on the disk when a function returns: written, fsync'ed, renamed, and the folder fsync'ed."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """What was written to a file that is closed, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, text: str) -> None:
    """`path` holds `text`, all of it or what it held before, whenever the machine stops."""
    beside = path.with_name(path.name + ".tmp")
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(beside, path)
    sync(path.parent)
