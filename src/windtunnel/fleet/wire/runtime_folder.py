"""A folder for the sockets and tokens of this user on this machine, in which nobody else can make or take the user's place."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from windtunnel.base.errors import FileError


def runtime_folder(make: bool = True) -> Path:
    """The folder, the same for all processes of the user: `windtunnel-UID` in the folder for temporary files; if another user has
    that name, one in XDG_RUNTIME_DIR, else the first private one of the names `windtunnel-UID-RANDOM`, made where there is none.
    FileError if `make` and none can be made; otherwise the first name, which may not exist.
    """
    places = Path(tempfile.gettempdir())
    usual = places / f"windtunnel-{os.getuid()}"
    own = Path(os.environ.get("XDG_RUNTIME_DIR") or usual)
    named = [usual, *([own / "windtunnel"] if own != usual and is_private(own) else [])]
    for folder in named:
        if is_private(folder) or (make and _make(folder)):
            return folder
    others = (folder for folder in sorted(places.glob(f"windtunnel-{os.getuid()}-*")) if is_private(folder))
    known = next(others, None)
    if known is not None or not make:
        return known or usual
    try:
        return Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=places))
    except OSError as error:
        raise FileError(str(places), error.strerror or str(error), "a folder in which a private one can be made") from error


def is_private(folder: Path) -> bool:
    """Whether a folder is there, is this user's, and nobody else may enter it."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _make(folder: Path) -> bool:
    with suppress(OSError):
        folder.mkdir(mode=0o700)
    return is_private(folder)
