"""Copies of host memory by threads that take pieces as they come.

torch cuts each tensor into as many parts as it has threads, and waits for all of them at its end: where one core is busy with other
work, every tensor waits for it. Here a thread that has no core holds up one piece.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

PIECE = 4 << 20
"""Bytes of a piece: a third of a millisecond of a core."""

Span = tuple[int, int, int]
"""Addresses of target and source, and bytes."""


class PieceCopier:
    """`threads` that copy, the caller's among them."""

    def __init__(self, threads: int) -> None:
        self._others = threads - 1
        self._pool = ThreadPoolExecutor(self._others, "checkpoint-copy") if self._others > 0 else None
        self.copy([])
        if self._pool is not None:  # they are there before the first save
            list(self._pool.map(lambda _: None, range(4 * self._others)))

    def copy(self, spans: Iterable[Span]) -> None:
        """Copies all spans, which do not overlap; they are copied when it returns."""
        pieces = _cut_pieces(spans)
        others = [self._pool.submit(_copy_pieces, pieces) for _ in range(self._others)] if self._pool is not None else []
        _copy_pieces(pieces)
        for one in others:
            one.result()

    def close(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _cut_pieces(spans: Iterable[Span]) -> Iterator[Span]:
    """The pieces of spans. A list's iterator may be advanced by several threads, a generator's not."""
    return iter(
        [
            (target + at, source + at, min(PIECE, size - at))
            for target, source, size in spans
            for at in range(0, size, PIECE)
        ]
    )  # fmt: skip


def _copy_pieces(pieces: Iterator[Span]) -> None:
    for target, source, size in pieces:
        ctypes.memmove(target, source, size)  # lets go of Python's lock
