"""Parallel copies of host memory: threads take small pieces from a shared queue.

torch splits each tensor into as many parts as it has threads and waits for all of them: if one core is busy with other work, every
tensor waits for it. Here a delayed thread holds up only one piece.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

PIECE = 4 << 20
"""Bytes of a piece: a third of a millisecond of one core."""

Span = tuple[int, int, int]
"""Target address, source address, bytes."""


class PieceCopier:
    """Copies with `threads` threads, including the caller's."""

    def __init__(self, threads: int) -> None:
        self._others = threads - 1
        self._pool = ThreadPoolExecutor(self._others, "checkpoint-copy") if self._others > 0 else None
        self.copy([])
        if self._pool is not None:  # starts the threads before the first save
            list(self._pool.map(lambda _: None, range(4 * self._others)))

    def copy(self, spans: Iterable[Span]) -> None:
        """Copies all spans, which must not overlap; returns when they are copied."""
        pieces = _cut_pieces(spans)
        others = [self._pool.submit(_copy_pieces, pieces) for _ in range(self._others)] if self._pool is not None else []
        _copy_pieces(pieces)
        for one in others:
            one.result()

    def close(self) -> None:
        """Stops the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _cut_pieces(spans: Iterable[Span]) -> Iterator[Span]:
    """The pieces of the spans. A list iterator may be shared between threads; a generator may not."""
    return iter(
        [
            (target + at, source + at, min(PIECE, size - at))
            for target, source, size in spans
            for at in range(0, size, PIECE)
        ]
    )  # fmt: skip


def _copy_pieces(pieces: Iterator[Span]) -> None:
    for target, source, size in pieces:
        ctypes.memmove(target, source, size)  # releases the interpreter lock
