"""A cgroup with little memory, in which the kernel kills who asks for more. Needs root and cgroups that can be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
LIMIT = 64 << 20
"""Bytes of a group."""


def can_limit() -> bool:
    """Whether such groups can be made here."""
    with memory_group() as group:
        return group is not None


@contextmanager
def memory_group() -> Iterator[Path | None]:
    """A new group of `LIMIT` bytes, empty; None where none can be made. It is removed with the block."""
    second = (ROOT / "cgroup.controllers").exists()
    group = (ROOT if second else ROOT / "memory") / f"windtunnel-{os.getpid()}"
    made = _make(group, second)
    try:
        yield group if made else None
    finally:
        with suppress(OSError):
            group.rmdir()


def _make(group: Path, second: bool) -> bool:
    """Whether the group could be made. `second`: by version 2 of cgroups."""
    limits = {"memory.max": LIMIT, "memory.swap.max": 0} if second else {"memory.limit_in_bytes": LIMIT}
    try:
        group.mkdir()
        for name, value in limits.items():
            if name != "memory.swap.max" or (group / name).exists():  # a kernel without swap has no such file
                with open(group / name, "r+", encoding="ascii") as file:
                    file.write(str(value))
    except OSError:
        return False
    return True
