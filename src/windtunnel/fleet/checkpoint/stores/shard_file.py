"""Writing one file of a step to a local folder."""

from __future__ import annotations

import os
from pathlib import Path

from windtunnel.fleet.checkpoint.hashing import PIECE, Hasher


def write_file(path: Path, data: memoryview) -> str:
    """Writes a new file, fsyncs it and returns its hash. FileExistsError if it exists: nothing is written twice."""
    hasher, done = Hasher(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        while done < len(data):
            written = os.write(descriptor, data[done : done + PIECE])
            hasher.update(data[done : done + written])
            done += written
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return hasher.hexdigest()
