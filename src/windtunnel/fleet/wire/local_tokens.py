"""Tokens of the collectors that this user runs on this machine, in files that only the user can read, by the collector's port.

A folder for the sockets and tokens of this user on this machine, in which nobody else can make or take the user's place.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from windtunnel.base.errors import FileError
from windtunnel.fleet.starting import start_of
from windtunnel.fleet.wire.secrets import write_private

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN = "token"
"""File with a collector's token, in its folder."""


def folder_token(folder: Path) -> str:
    """The token of a collector's folder, made if there is none. It stays, so that shippers know a collector that starts again."""
    path = folder / TOKEN
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if not path.lstat().st_mode & 0o077 and (token := path.read_text(encoding="ascii").strip()):
            return token
    token = secrets.token_urlsafe(32)
    write_private(path, token.encode() + b"\n")
    return token


def publish_token(url: str, token: str) -> Path | None:
    """Lets processes of this user find the token of the collector that this process runs at `url`, on loopback; the file, which
    the collector removes at its end. None where there is no private folder for it."""
    try:
        path = _file(url, make=True)
        if path is None:
            return None
        told = {"token": token, "pid": os.getpid(), "started": start_of(os.getpid())}
        write_private(path, json.dumps(told).encode())
    except (OSError, FileError):
        return None
    return path


def local_token(url: str) -> str | None:
    """The token of a collector at `url`, if this user runs it on this machine, now."""
    path = _file(url)
    try:
        if path is None or not is_private(path.parent) or not _is_private(path):
            return None
        told = json.loads(path.read_bytes())
        alive = told["started"] and start_of(int(told["pid"])) == told["started"]
        return str(told["token"]) if alive else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _file(url: str, make: bool = False) -> Path | None:
    """Where the token of a collector on loopback is; None for another address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 8470
    except ValueError:
        return None
    if parts.scheme != "http" or host not in LOOPBACK:
        return None
    return runtime_folder(make) / f"collector-{port}.json"


def _is_private(path: Path) -> bool:
    """Whether a file is this user's, and nobody else's business."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


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
