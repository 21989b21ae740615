"""The file system of a folder, and files in it that have no name: they are gone when their processes are, whatever ends these."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import tempfile
from pathlib import Path
from typing import IO, Any

from windtunnel.base.dataclasses import dataclass

MOUNTS = Path("/proc/self/mountinfo")

SHARED = (
    "nfs", "lustre", "gpfs", "ceph", "beegfs", "cifs", "smb", "9p", "virtiofs", "afs", "gluster", "weka", "orangefs", "fuse.",
)  # fmt: skip
"""How the types of file systems begin that other nodes reach too."""

ALIGNED = 4096
"""B. Reads with O_DIRECT begin and end at multiples of it."""

BLOCK = 4 * 2**20
"""B that a read with O_DIRECT asks for at a time."""


@dataclass(frozen=True)
class DiskPlace:
    """Where files go: type of the file system, device, mount options; `free` B for this user of `size` B. `shared`: other nodes
    reach it too."""

    folder: str
    filesystem: str
    device: str
    options: str
    free: int
    size: int
    read_ahead: int = 0
    """B that the system reads around a page of a mapped file that is missing; 0: not known."""

    @property
    def is_shared(self) -> bool:
        return self.filesystem.startswith(SHARED)

    @property
    def is_memory(self) -> bool:
        """Whether it is memory and no disk."""
        return self.filesystem in ("tmpfs", "ramfs")


def place_of(folder: Path, mounts: Path = MOUNTS) -> DiskPlace:
    """The file system of an existing folder; empty words where the system does not say it. OSError if the folder cannot be read."""
    disk, real = os.statvfs(folder), str(folder.resolve())
    best, found = -1, ("", "", "")
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), before.split()[4])  # a blank is \040
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            kind, device, *own = after.split()
            options = ",".join(dict.fromkeys([*before.split()[5].split(","), *(own[0].split(",") if own else ())]))
            best, found = len(point), (kind, device, options)
    number = os.stat(folder).st_dev
    ahead = read_ahead_of(Path(f"/sys/class/bdi/{os.major(number)}:{os.minor(number)}/read_ahead_kb"))
    return DiskPlace(real, *found, free=disk.f_bavail * disk.f_frsize, size=disk.f_blocks * disk.f_frsize, read_ahead=ahead)


def read_ahead_of(path: Path) -> int:
    """B of a device's window; 0 where the system has no such file."""
    try:
        return 1024 * int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0


class DiskFiles:
    """Files of one folder, without names."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def create(self) -> IO[bytes]:
        """A new file, open for writes and reads. OSError where the folder takes none."""
        return tempfile.TemporaryFile(dir=self.folder)

    def sync(self, file: IO[bytes]) -> None:
        """Returns when all that was written is on the disk."""
        file.flush()
        os.fsync(file.fileno())

    def forget(self, file: IO[bytes]) -> float:
        """Asks the system to drop a synced file from the page cache; the share of its pages that stayed, 1 if it cannot be told."""
        try:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return resident_share(file.fileno())
        except (AttributeError, OSError):
            return 1.0

    def reopen(self, file: IO[bytes]) -> IO[bytes]:
        """The same file at its beginning."""
        return open(os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY), "rb")

    def read_direct(self, file: IO[bytes]) -> int:
        """Reads the file past the page cache; its B. OSError where the file system has no O_DIRECT."""
        descriptor = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_DIRECT)
        try:
            block, read = mmap.mmap(-1, BLOCK), 0
            while got := os.preadv(descriptor, [block], read):
                read += got
                if got % ALIGNED:
                    break  # the end of the file
            return read
        finally:
            os.close(descriptor)

    def map_file(self, file: IO[bytes]) -> Any:
        """The file's bytes in memory, as numpy and Megatron's datasets map them."""
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


def resident_share(descriptor: int) -> float:
    """Share of a file's pages that lie in the page cache (mincore(2)); 1 where that cannot be told. OSError of a closed file."""
    size = os.fstat(descriptor).st_size
    if not size:
        return 0.0
    pages = -(-size // mmap.PAGESIZE)
    marks = (ctypes.c_ubyte * pages)()
    with mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), marks)
        except AttributeError:
            failed = 1
        del start
    return 1.0 if failed else sum(mark & 1 for mark in marks) / pages
