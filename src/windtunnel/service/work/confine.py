"""A process that may read its own folder and the installation, write its own folder, and reach no network.

Two walls, each for itself: Landlock, where the kernel has it (Linux 5.13; networks from 6.7), which holds for native code too;
and an audit hook of Python, which holds everywhere for what Python opens. Neither can be taken back by the process.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVS = 38
_READ = (1 << 0) | (1 << 2) | (1 << 3)  # execute, read a file, read a folder
_SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime")
_SYSTEM_FILES = (
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/sys/devices/system/cpu",
)


def installation() -> list[Path]:
    """What a question reads besides its own folder: Python, its packages, windtunnel with its catalogue, libraries of the
    system."""
    import windtunnel

    named = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values(), *(p for p in sys.path if p)]
    named += [str(Path(str(windtunnel.__file__)).parent), *_SYSTEM, *_SYSTEM_FILES]
    found = {Path(os.path.realpath(name)) for name in named if os.path.exists(name)}
    broad = {Path("/"), Path("/usr"), Path("/usr/local"), Path("/home"), Path("/root"), Path("/tmp"), Path("/var"), Path("/etc")}
    cut = {path for path in found if path not in broad}
    parts = [os.path.join(prefix, part) for prefix in (sys.prefix, sys.base_prefix) for part in ("lib", "bin")]
    cut |= {Path(os.path.realpath(part)) for part in parts if os.path.isdir(part)}
    return sorted(path for path in cut if not any(parent in cut for parent in path.parents))


def landlock_version() -> int:
    """The version of Landlock's interface that the kernel has; 0 without it."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE, None, 0, 1)))


def confine(scratch: Path, readable: Sequence[Path]) -> int:
    """Confines this process, for good: it may write `scratch` and read `readable` beside it. Returns the version of Landlock that
    holds too, 0 where the kernel has none. Call it without other threads."""
    version = landlock_version()
    if version:
        _restrict(version, scratch, readable)
    _hook(os.path.realpath(scratch), [str(path) for path in readable])
    return version


def _restrict(version: int, scratch: Path, readable: Sequence[Path]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    files = (1 << 13) - 1  # version 1: execute, write, read, folders, make and remove of every kind
    files |= (1 << 13 if version >= 2 else 0) | (1 << 14 if version >= 3 else 0) | (1 << 15 if version >= 5 else 0)
    network = 3 if version >= 4 else 0  # bind and connect of TCP
    scoped = 3 if version >= 6 else 0  # abstract sockets and signals to others
    attributes = struct.pack("QQQ", files, network, scoped)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = libc.syscall(_CREATE, attributes, len(attributes), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "Landlock")
    try:
        _allow(libc, ruleset, scratch, files & ~1)  # nothing that was uploaded is executed
        for path in readable:
            _allow(libc, ruleset, path, _READ & files)
        if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.syscall(_RESTRICT, ruleset, 0) != 0:
            raise OSError(ctypes.get_errno(), "Landlock")
    finally:
        os.close(ruleset)


def _allow(libc: Any, ruleset: int, path: Path, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no right
    try:
        if not path.is_dir():
            rights &= (1 << 0) | (1 << 1) | (1 << 2) | (1 << 14)
        if libc.syscall(_ADD, ruleset, 1, struct.pack("=Qi", rights, handle), 0) != 0:
            raise OSError(ctypes.get_errno(), f"Landlock: {path}")
    finally:
        os.close(handle)


_REFUSED = (
    "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname",
    "socket.gethostbyaddr", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn", "os.kill",
    "os.killpg", "pickle.find_class", "os.link", "os.symlink", "shutil.unpack_archive", "urllib.Request",
)  # fmt: skip
"""Events that a question has no need of."""
_ON_PATHS = ("open", "os.listdir", "os.scandir", "os.chdir", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate",
             "os.chmod", "os.chown", "os.utime", "sqlite3.connect", "glob.glob")  # fmt: skip
_READ_ONLY = ("mode=ro", "mode=ro&immutable=1")
"""What the address of a database says that SQLite opens for reading alone."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _database(address: str) -> tuple[str, bool]:
    """The path that SQLite opens for a `file:` address, and whether for reading alone."""
    path, _, query = address.removeprefix("file:").partition("#")[0].partition("?")
    if path.startswith("//"):
        path = "/" + path[2:].partition("/")[2]
    return os.fsdecode(unquote_to_bytes(path)), query in _READ_ONLY


def _hook(scratch: str, readable: Sequence[str]) -> None:
    own = (scratch, scratch + "/")
    shared = tuple(path + "/" for path in readable)
    exact = frozenset(readable)
    refused, watched, realpath, fsdecode = frozenset(_REFUSED), frozenset(_ON_PATHS), os.path.realpath, os.fsdecode

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event in refused:
            raise PermissionError(1, f"a question may not do this: {event}")
        if event not in watched or not arguments or isinstance(arguments[0], int) or arguments[0] is None:
            return
        only_reads = event in ("os.listdir", "os.scandir") or (event == "open" and not (int(arguments[2] or 0) & _WRITES))
        name = fsdecode(arguments[0])
        if event == "sqlite3.connect" and name.startswith("file:"):
            name, only_reads = _database(name)
        path = realpath(name)
        inside = path == own[0] or path.startswith(own[1])
        if inside and (event != "os.rename" or realpath(fsdecode(arguments[1])).startswith(own[1])):
            return
        if (only_reads and (path in exact or path.startswith(shared))) or path == "/dev/null":
            return
        raise PermissionError(13, "a question may read its uploads and the catalogue alone", path)

    sys.addaudithook(look)
