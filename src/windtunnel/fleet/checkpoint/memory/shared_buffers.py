"""Shared-memory staging buffers: a rank's own shards, or replicas of a peer's."""

from __future__ import annotations

import mmap
import os
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class BufferedFile:
    """A file in a buffer: name, offset, bytes and hash."""

    name: str
    offset: int
    bytes: int
    hash: str


class SharedBuffers:
    """Shared-memory buffers by number, and the files of a step that each contains."""

    def __init__(self) -> None:
        self._memory: dict[int, tuple[int, mmap.mmap]] = {}
        self._files: dict[int, tuple[str, int, list[BufferedFile]]] = {}

    def slots(self, fds: list[int], size: int) -> None:
        """Replaces all buffers by those at `fds`, each of `size` bytes."""
        for slot in list(self._memory):
            self.drop(slot)
        for slot, descriptor in enumerate(fds):
            self.add(slot, descriptor, size)

    def add(self, slot: int, descriptor: int, size: int) -> memoryview:
        """Maps one buffer and returns its bytes."""
        self._memory[slot] = (descriptor, mmap.mmap(descriptor, max(size, 1)))
        return memoryview(self._memory[slot][1])

    def drop(self, slot: int) -> None:
        """Unmaps a buffer; its memory is freed when no other process has it."""
        self._files.pop(slot, None)
        descriptor, _ = self._memory.pop(slot)
        os.close(descriptor)

    def set_files(self, slot: int, attempt: str, step: int, files: list[BufferedFile]) -> None:
        """Records the files that a buffer contains."""
        self._files[slot] = (attempt, step, files)

    def view(self, slot: int, offset: int, size: int) -> memoryview:
        """Bytes of a buffer."""
        return memoryview(self._memory[slot][1])[offset : offset + size]

    def files(self, slot: int) -> list[tuple[BufferedFile, memoryview]]:
        """The files of a buffer with their bytes."""
        return [(one, self.view(slot, one.offset, one.bytes)) for one in self._files[slot][2]]

    def describe(self) -> list[dict[str, Any]]:
        """All files in the buffers, as plain data for a message."""
        return [{"slot": slot, "attempt": attempt, "step": step, **asdict(one)}
                for slot, (attempt, step, files) in list(self._files.items()) for one in files]  # fmt: skip

    def descriptor(self, slot: int) -> int:
        """File descriptor of a buffer."""
        return self._memory[slot][0]
