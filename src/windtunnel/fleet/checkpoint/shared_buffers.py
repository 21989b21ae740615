"""Memory with files in it: the staged shards of a rank, or copies of a neighbour's."""

from __future__ import annotations

import mmap
import os
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class BufferedFile:
    """A file in memory: its name, where it begins, its bytes, and their hash."""

    name: str
    offset: int
    bytes: int
    hash: str


class SharedBuffers:
    """Pieces of shared memory by number, and which files of which step lie in each."""

    def __init__(self) -> None:
        self._memory: dict[int, tuple[int, mmap.mmap]] = {}
        self._files: dict[int, tuple[str, int, list[BufferedFile]]] = {}

    def slots(self, fds: list[int], size: int) -> None:
        """Takes pieces of `size` bytes instead of those that it had."""
        for slot in list(self._memory):
            self.drop(slot)
        for slot, descriptor in enumerate(fds):
            self.add(slot, descriptor, size)

    def add(self, slot: int, descriptor: int, size: int) -> memoryview:
        """Takes one piece, and gives its bytes."""
        self._memory[slot] = (descriptor, mmap.mmap(descriptor, max(size, 1)))
        return memoryview(self._memory[slot][1])

    def drop(self, slot: int) -> None:
        """Forgets a piece; its memory is free once nobody else has it."""
        self._files.pop(slot, None)
        descriptor, _ = self._memory.pop(slot)
        os.close(descriptor)

    def set_files(self, slot: int, attempt: str, step: int, files: list[BufferedFile]) -> None:
        """Notes what a piece holds from now on."""
        self._files[slot] = (attempt, step, files)

    def view(self, slot: int, offset: int, size: int) -> memoryview:
        """Bytes of a piece."""
        return memoryview(self._memory[slot][1])[offset : offset + size]

    def files(self, slot: int) -> list[tuple[BufferedFile, memoryview]]:
        """The files of a piece with their bytes."""
        return [(one, self.view(slot, one.offset, one.bytes)) for one in self._files[slot][2]]

    def describe(self) -> list[dict[str, Any]]:
        """What is held, as a message says it."""
        return [{"slot": slot, "attempt": attempt, "step": step, **asdict(one)}
                for slot, (attempt, step, files) in list(self._files.items()) for one in files]  # fmt: skip

    def descriptor(self, slot: int) -> int:
        """The file descriptor of a piece."""
        return self._memory[slot][0]
