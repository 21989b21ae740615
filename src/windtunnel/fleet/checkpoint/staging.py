"""Stage 1 of a save: copies a rank's state into shared host memory. Training is blocked only for this copy.

Parallel copies of host memory: threads take small pieces from a shared queue.

torch splits each tensor into as many parts as it has threads and waits for all of them: if one core is busy with other work, every
tensor waits for it. Here a delayed thread holds up only one piece.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from windtunnel.fleet.checkpoint.layout import ShardLayout, local_bytes_of, pack_object

SLOTS = 2


class Slot:
    """A shared-memory buffer with the image of a rank's files. Its pages are allocated in the constructor."""

    def __init__(self, layout: ShardLayout, copier: PieceCopier) -> None:
        self._copier = copier
        self.descriptor = os.memfd_create("windtunnel-checkpoint")
        os.ftruncate(self.descriptor, max(layout.total, 1))
        self._memory = mmap.mmap(self.descriptor, max(layout.total, 1))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._image = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._image.zero_()  # allocates every page now instead of in the first save
        for place in layout.tensors:
            for at, part in place.archive:
                self._memory[at : at + len(part)] = part
        self._memory[layout.bytes : layout.total] = layout.metadata
        self._views = [self._image[one.at : one.at + one.bytes].view(one.dtype).view(one.shape) for one in layout.tensors]
        self._pinned = torch.cuda.is_available() and _pin(self._image)
        self._stream: Any = torch.cuda.Stream() if self._pinned else None

    def stage(self, layout: ShardLayout, flat: dict[str, Any], objects: list[bytes]) -> None:
        """Copies the state's bytes; returns when the copy is complete. Device tensors are copied on a separate stream."""
        for place, raw in zip(layout.objects, objects, strict=True):
            self._memory[place.at : place.at + place.bytes] = raw.ljust(place.bytes, b"\0")
        tensors = [local_bytes_of(flat[place.fqn], place.offset) for place in layout.tensors]
        if self._stream is None:
            pairs = [(view, one, _is_contiguous_on_host(one)) for view, one in zip(self._views, tensors, strict=True)]
            self._copier.copy((view.data_ptr(), one.data_ptr(), view.nbytes) for view, one, whole in pairs if whole)
            for view, one, whole in pairs:
                if not whole:
                    view.copy_(one)
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for view, tensor in zip(self._views, tensors, strict=True):
                view.copy_(tensor, non_blocking=True)
        self._stream.synchronize()

    def close(self) -> None:
        """Releases the memory; a flush process that has mapped it keeps it."""
        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._image.data_ptr())
        self._views = []
        os.close(self.descriptor)


def _is_contiguous_on_host(tensor: torch.Tensor) -> bool:
    """Whether a tensor's bytes are contiguous in host memory and need no conversion."""
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _pin(image: torch.Tensor) -> bool:
    """Pins the memory for copies by the device; whether that succeeded."""
    return int(torch.cuda.cudart().cudaHostRegister(image.data_ptr(), image.numel(), 0)) == 0


def pack_objects(layout: ShardLayout, flat: dict[str, Any]) -> list[bytes]:
    """The objects of the state that this rank saves, as bytes."""
    return [pack_object(flat[place.fqn]) for place in layout.objects]


def objects_fit(layout: ShardLayout, objects: list[bytes]) -> bool:
    """Whether all objects fit their space in the image."""
    return all(len(raw) <= place.bytes for raw, place in zip(objects, layout.objects, strict=True))


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
