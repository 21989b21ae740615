"""Write-ahead log of the collector: batches in segments, written and synchronised in groups before any of them is acknowledged.

A segment is a file of frames. A frame is 16 bytes (size of the batch, the same size inverted, arrival time in unix ns) and the
batch, which has its own checksum. After a kill the last segment may end in a partial frame, which was never acknowledged:
`truncate_torn_end` removes it. A complete but damaged frame was acknowledged: it is skipped and reported.

One thread that runs functions in order, and that a process can leave behind when it ends: a disk that does not answer then holds
nothing up. (The threads of `concurrent.futures` are joined at the end of a process, without a limit.)
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import queue
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.fleet.batch import MAGIC, BatchHead, head_of
from windtunnel.fleet.disk import sync

FRAME = struct.Struct("<IIq")
_ONES = 0xFFFFFFFF
GATHER = 0.02
"""Seconds for which a group is gathered: 300 batches per second would otherwise need 300 synchronisations, each half a millisecond
of a core. A node sends batches seconds apart.
"""


@dataclass(frozen=True)
class Frame:
    """A batch in a segment: offset, header and arrival time."""

    offset: int
    head: BatchHead
    received_ns: int


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"segment-{number:08d}.wtlog"


def segments(folder: Path) -> list[int]:
    """Numbers of the segments in a folder, in order."""
    return sorted(int(path.stem[8:]) for path in folder.glob("segment-*.wtlog") if path.stem[8:].isdigit())


@dataclass(frozen=True)
class DamagedSpan:
    """Bytes `begin` to `end` of a segment that contain acknowledged data but no readable batch, and why."""

    begin: int
    end: int
    why: str


def frames(raw: bytes | mmap.mmap, damaged: list[DamagedSpan] | None = None) -> Iterator[Frame]:
    """The complete frames of a segment with correct checksums. The end may be torn (a partial frame, never acknowledged). Other
    unreadable bytes are appended to `damaged` and skipped up to the next frame.
    """
    at = 0
    while at + FRAME.size <= len(raw):
        frame = _read_frame(raw, at)
        if isinstance(frame, Frame):
            yield frame
            at = frame.offset + frame.head.size
            continue
        next_start = _next_frame(raw, at + 1)
        end, why = (len(raw), frame) if next_start is None else (next_start, frame or "half a frame")
        if damaged is not None and why:
            damaged.append(DamagedSpan(at, end, why))
        at = end


def _read_frame(raw: bytes | mmap.mmap, at: int) -> Frame | str:
    """The frame at `at`, or what is wrong with it; empty if it may not have been written completely."""
    size, inverse, received = FRAME.unpack_from(raw, at)
    if size ^ inverse != _ONES:
        return "no frame" if any(raw[at : at + FRAME.size]) else ""  # zeros: allocated but never written
    at += FRAME.size
    if at + size > len(raw):
        return ""
    try:
        return Frame(at, head_of(raw[at : at + size]), received)
    except FileError as error:
        return str(error)


def _next_frame(raw: bytes | mmap.mmap, least: int) -> int | None:
    """Offset of the next complete frame at or after `least`."""
    found = raw.find(MAGIC, least + FRAME.size)
    while found >= 0:
        if isinstance(_read_frame(raw, found - FRAME.size), Frame):
            return found - FRAME.size
        found = raw.find(MAGIC, found + 1)
    return None


def map_file(path: Path) -> bytes | mmap.mmap:
    """A segment's bytes. FileNotFoundError if it has been compacted in the meantime."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""


def truncate_torn_end(path: Path) -> int:
    """Removes a torn end of a segment; returns the number of removed bytes. Complete but damaged frames stay, for the compaction to
    keep.
    """
    raw = map_file(path)
    end = 0
    damaged: list[DamagedSpan] = []
    for frame in frames(raw, damaged):
        end = frame.offset + frame.head.size
    end = max([end, *(span.end for span in damaged)])
    cut = len(raw) - end
    if cut:
        with path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())
    return cut


@dataclass
class _Entry:
    body: bytes
    received_ns: int
    done: asyncio.Future[None]
    undo: Callable[[], None] | None


class BatchLog:
    """Appends batches from one event loop. `append` returns when the batch is on disk.

    Batches that arrive within `GATHER` seconds, or while a group is being written, form one group with a single `fdatasync`. A
    segment is closed at `most_bytes`, or `most_seconds` after its first batch; `sealed` is then called with its number.
    """

    def __init__(self, folder: Path, first: int, sealed: Callable[[int], None], most_bytes: int, most_seconds: float) -> None:
        self.folder, self.pending_bytes, self.groups = folder, 0, 0
        self._sealed, self._most_bytes, self._most_seconds = sealed, most_bytes, most_seconds
        self._number, self._size, self._opened = first, 0, 0.0
        self._file = -1
        self._queue: list[_Entry] = []
        self._flusher: asyncio.Task[None] | None = None
        self._pool = DaemonExecutor("log")

    async def append(self, body: bytes, received_ns: int, undo: Callable[[], None] | None = None) -> None:
        """Waits until `body` (b"": everything appended before) is durable. OSError if it could not be written; `undo` has been
        called then.
        """
        loop = asyncio.get_running_loop()
        entry = _Entry(body, received_ns, loop.create_future(), undo)
        self._queue.append(entry)
        self.pending_bytes += len(body)
        if self._flusher is None or self._flusher.done():
            self._flusher = loop.create_task(self._flush())
        await entry.done

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue:
            await asyncio.sleep(GATHER)
            group, self._queue = self._queue, []
            try:
                await loop.run_in_executor(self._pool, self._write, group)
            except OSError as error:
                # A repeated batch of this group may already be queued: it is refused too, and retried later.
                failed, self._queue = group + self._queue, []
                for entry in reversed(failed):
                    if entry.undo is not None:
                        entry.undo()
                self._settle(failed, error)
            else:
                self.groups += 1
                self._settle(group, None)

    def _settle(self, group: list[_Entry], error: OSError | None) -> None:
        for entry in group:
            self.pending_bytes -= len(entry.body)
            if entry.done.done():  # the client has disconnected
                continue
            if error is None:
                entry.done.set_result(None)
            else:
                entry.done.set_exception(error)

    def _write(self, group: list[_Entry]) -> None:
        parts: list[bytes] = []
        for entry in group:
            if entry.body:
                parts += [FRAME.pack(len(entry.body), len(entry.body) ^ _ONES, entry.received_ns), entry.body]
        if not parts:
            return
        now = group[-1].received_ns / 1e9
        if self._file < 0:
            self._open(now)
        raw = b"".join(parts)
        try:
            _write_all(self._file, raw)
            os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, self._size)
            self._seal()
            raise
        self._size += len(raw)
        if self._size >= self._most_bytes or now - self._opened >= self._most_seconds:
            self._seal()

    def _open(self, now: float) -> None:
        path = segment_path(self.folder, self._number)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._size, self._opened = 0, now
        sync(self.folder)  # the file's name, too

    def _seal(self) -> None:
        os.close(self._file)
        self._file = -1
        self._number += 1
        self._sealed(self._number - 1)

    async def seal_if_old(self, now: float) -> None:
        """Closes a segment whose time limit has passed even if nothing more arrives."""
        await self.append(b"", 0)
        if not self._queue and self._file >= 0 and now - self._opened >= self._most_seconds:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._seal)

    def close(self, limit: float = 60.0) -> None:
        """Closes the file of the open segment; waits for a write that has begun for at most `limit` seconds."""
        if self._pool.finish(limit) and self._file >= 0:
            os.close(self._file)
            self._file = -1


def _write_all(file: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(file, view) :]


class DaemonExecutor(Executor):
    """Runs what is submitted in one daemon thread, in order."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future of `fn(*args, **kwargs)`."""
        future: Future[Any] = Future()
        self._queue.put((future, lambda: fn(*args, **kwargs)))
        return future

    def finish(self, limit: float) -> bool:
        """Runs what is queued and ends the thread; whether that took no longer than `limit` seconds."""
        self._queue.put(None)
        self._thread.join(limit)
        return not self._thread.is_alive()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `concurrent.futures.Executor.shutdown`."""
        self._queue.put(None)
        if wait:
            self._thread.join()

    def _run(self) -> None:
        while (one := self._queue.get()) is not None:
            future, function = one
            if future.set_running_or_notify_cancel():
                try:
                    result = function()
                except BaseException as error:
                    with contextlib.suppress(Exception):
                        future.set_exception(error)
                else:
                    future.set_result(result)
