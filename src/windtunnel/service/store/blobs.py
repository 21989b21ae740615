"""Bytes in files, each under the SHA-256 of its content: written whole and on disk before a row names them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from windtunnel.service.store.database import StoreFull

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
STALE_SECONDS = 3600.0
"""Age at which a file that no row names is of nobody who still writes."""


class Blobs:
    """A folder of blobs. Several processes and servers may use it at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Where a blob is, or would be."""
        return self.folder / digest[:2] / digest

    def put(self, data: bytes) -> str:
        """Keeps `data` and returns its hash. StoreFull where the disk is: nothing is left behind then."""
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        try:
            path.parent.mkdir(exist_ok=True)
            if path.exists() and path.stat().st_size == len(data):
                os.utime(path)
                return digest
            self._write(path, data)
        except OSError as error:
            if error.errno in _FULL:
                raise StoreFull("the disk of the service is full: nothing was lost; free some of it and ask again.") from error
            raise
        return digest

    def _write(self, path: Path, data: bytes) -> None:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with open(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def get(self, digest: str) -> bytes | None:
        """The bytes of a blob, checked against its hash; None if it is not there, or is damaged."""
        try:
            data = self.path(digest).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == digest else None

    def all(self) -> Iterator[Path]:
        """Every file, with those that are being written."""
        for folder in sorted(self.folder.iterdir()):
            if folder.is_dir():
                yield from sorted(folder.iterdir())

    def sweep(self, named: set[str], age: float = STALE_SECONDS) -> int:
        """Deletes blobs that are older than `age` seconds and not in `named`; returns how many bytes they had."""
        freed = 0
        for path in self.all():
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                if path.name not in named and found.st_mtime < time.time() - age:
                    path.unlink()
                    freed += found.st_size
        return freed
