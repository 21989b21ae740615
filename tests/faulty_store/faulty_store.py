"""`faulty://`: a store on the local disk that has the faults which the file named by FAULTY_STORE says, found by any process that
has this folder on its path.

The file is JSON; names are patterns of the last one or two parts of a path:
  refuse  writes that raise, as without credentials     full   writes that raise, as of a full store
  tear    writes of which a half arrives                slow   seconds before each write
  hide    names that listings leave out                 silent reads that raise, as of a store that is down
  kill    the write before which the process is killed  killed the write after which it is killed
  keep    objects that cannot be removed
"""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem


class NoCredentials(Exception):
    """As botocore's: no OSError, and of two lines."""


def set_faults(**faults: Any) -> None:
    """The faults from now on, in all processes."""
    path = Path(os.environ["FAULTY_STORE"])
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(faults))
    os.replace(beside, path)


def _has(kind: str, path: str) -> Any:
    try:
        faults = json.loads(Path(os.environ["FAULTY_STORE"]).read_text())
    except (KeyError, FileNotFoundError):
        return None
    if kind == "slow":
        return faults.get(kind, 0)
    parts = path.rstrip("/").split("/")
    pattern = faults.get(kind)
    return pattern is not None and (fnmatch(parts[-1], pattern) or fnmatch("/".join(parts[-2:]), pattern))


class FaultyStore(LocalFileSystem):
    """The local disk with faults."""

    protocol = "faulty"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return LocalFileSystem._strip_protocol(str(path).replace("faulty://", "file://"))

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **more: Any) -> Any:
        shown = path.removesuffix(".tmp")
        if "r" in mode:
            if _has("silent", path):
                raise NoCredentials("the store\n  is down")
            return super()._open(path, mode=mode, block_size=block_size, **more)
        if seconds := _has("slow", path):
            time.sleep(seconds)
        if _has("kill", shown):
            os.kill(os.getpid(), signal.SIGKILL)
        if _has("refuse", shown):
            raise NoCredentials("Unable to locate\n credentials")
        if _has("full", shown):
            raise OSError(errno.ENOSPC, "No space left on device")
        file = super()._open(path, mode=mode, block_size=block_size, **more)
        if _has("tear", shown):
            write = file.f.write
            file.f = _Torn(file.f, write)
        elif _has("killed", shown) and not path.endswith(".tmp"):
            file.f = _Last(file.f)
        return file

    def mv(self, path1: str, path2: str, **more: Any) -> None:
        super().mv(path1, path2, **more)
        if _has("killed", str(path2)):
            os.kill(os.getpid(), signal.SIGKILL)

    def ls(self, path: str, detail: bool = False, **more: Any) -> list[Any]:
        found = super().ls(path, detail=detail, **more)
        return [one for one in found if not _has("hide", one["name"] if detail else one)]

    def rm_file(self, path: str) -> None:
        if _has("keep", path):
            raise NoCredentials("AccessDenied")
        super().rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for one in [path] if isinstance(path, str) else path:
            for name in self.find(one) if recursive else [one]:
                if _has("keep", name):
                    raise NoCredentials("AccessDenied")
        super().rm(path, recursive=recursive, maxdepth=maxdepth)


class _Torn:
    """A file of which a half arrives."""

    def __init__(self, file: Any, write: Any) -> None:
        self._file, self._write = file, write

    def write(self, data: Any) -> int:
        self._write(bytes(data)[: len(data) // 2])
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Last:
    """A file after which the process is killed."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def close(self) -> None:
        self._file.close()
        os.kill(os.getpid(), signal.SIGKILL)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
