"""The reader of a node: one process that distributes jobs to its workers and filled slots to the ranks.

It never touches data itself, so it notices at once when a worker or a rank is gone. A slot is reused after every living rank of its
lane has released it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import stat
import struct
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.fleet.loading.workers import JobDone, ReaderError, ReadJob, ReadPlan, die_with_parent, pack_error, run_worker
from windtunnel.fleet.wire.sockets import read_exactly

HELLO = struct.Struct("<IQQ")
"""Rank → reader: local rank, epoch, step."""
MESSAGE = struct.Struct("<BIQQQ")
"""Reader → rank: kind, slot, epoch, step, bytes in the slot (BATCH) or behind this message (FAILED)."""
RELEASE = struct.Struct("<I")
"""Rank → reader: a slot that it has released."""
BATCH, END, FAILED = 0, 1, 2
ELSEWHERE, WELCOME, OTHER = b"\0", b"\1", b"\2"
"""Answers to a rank: it starts from another batch than the reader; it is accepted; this reader has served its ranks and is about
to exit."""
_TICK = 0.25


@dataclass
class _Lane:
    """Batches of one share of the data, and the ranks that receive them."""

    share: int
    slots: list[int]
    waiting: set[int]
    epoch: int
    step: int
    free: set[int] = field(default_factory=set)
    ready: dict[int, tuple[bytes, int | None]] = field(default_factory=dict)
    holders: dict[int, set[int]] = field(default_factory=dict)
    backlog: list[bytes] = field(default_factory=list)
    members: dict[int, socket.socket] = field(default_factory=dict)
    indices: Iterator[list[int]] | None = None
    number: int = 0
    sent: int = 0
    open: int = 0
    stopped: bool = False


class NodeReader:
    """Serves the ranks until all are gone. `lanes`: the share of each local rank; `address`: an abstract Unix socket."""

    def __init__(
        self, plan: ReadPlan, lanes: tuple[int, ...], address: str, prefetch: int, workers: int, timeout: float, parent: int
    ) -> None:
        self.plan, self.address, self.timeout = plan, address, timeout
        self.parent = parent
        self.local = lanes
        self.lanes: dict[int, _Lane] = {}
        for share in sorted(set(lanes)):
            slots = [os.memfd_create(address[-200:]) for _ in range(prefetch + 1)]
            waiting = {rank for rank, lane in enumerate(lanes) if lane == share}
            self.lanes[share] = _Lane(share, slots, waiting, *plan.start, free=set(range(len(slots))))
        self.workers = [self._fork_worker() for _ in range(workers if plan.order is not None else 1)]
        self.idle = deque(self.workers)
        self.selector = selectors.DefaultSelector()

    def _fork_worker(self) -> Connection:
        ours, theirs = Pipe()
        reader = os.getpid()
        if os.fork() == 0:
            try:
                die_with_parent(reader)
                ours.close()
                for other in getattr(self, "workers", []):
                    other.close()
                run_worker(theirs, self.plan, {share: lane.slots for share, lane in self.lanes.items()})
            finally:
                os._exit(0)
        theirs.close()
        return ours

    def run(self, listener: socket.socket) -> None:
        """Runs until all ranks are gone, or none connected and the rank that started it is gone."""
        self.selector.register(listener, selectors.EVENT_READ, ("listener", -1))
        for worker in self.workers:
            self.selector.register(worker, selectors.EVENT_READ, ("worker", -1))
        begin = time.monotonic()
        while True:
            self._hand_out()
            for key, _ in self.selector.select(_TICK):
                kind, rank = key.data
                if kind == "listener":
                    self._welcome(listener)
                elif kind == "worker":
                    self._collect(key.fileobj)  # type: ignore[arg-type]
                elif kind == "rank":
                    self._receive_release(rank)
            late = time.monotonic() - begin > self.timeout
            connected = any(lane.members for lane in self.lanes.values())
            for lane in self.lanes.values():
                if late or (not connected and os.getppid() != self.parent):
                    for rank in list(lane.waiting):
                        self._drop_rank(lane, rank)
            if not connected and not any(lane.waiting for lane in self.lanes.values()):
                return

    def _hand_out(self) -> None:
        """Gives jobs to idle workers; the lane that is furthest behind comes first."""
        while self.idle:
            able = [
                lane
                for lane in self.lanes.values()
                if lane.free and not lane.stopped and not (self.plan.order is None and lane.open)
            ]
            if not able or not self._has_ranks():
                return
            lane = min(able, key=lambda one: (one.number, one.share))
            indices = None
            if self.plan.order is not None:
                indices = self._next_indices(lane)
            job = ReadJob(lane.share, lane.free.pop(), lane.number, lane.epoch, lane.step, indices)
            lane.number, lane.step, lane.open = lane.number + 1, lane.step + 1, lane.open + 1
            with contextlib.suppress(OSError):  # a dead worker is noticed by the next read
                self.idle.popleft().send(job)

    def _has_ranks(self) -> bool:
        return any(lane.members or lane.waiting for lane in self.lanes.values())

    def _next_indices(self, lane: _Lane) -> list[int]:
        assert self.plan.order is not None
        while True:
            if lane.indices is None:
                lane.indices = self.plan.order.batches(lane.epoch, lane.share)
                for _ in range(lane.step):  # resumed within the epoch
                    next(lane.indices, None)
            found = next(lane.indices, None)
            if found is not None:
                return found
            self._end_of_epoch(lane, lane.number)
            lane.number += 1

    def _end_of_epoch(self, lane: _Lane, number: int) -> None:
        lane.ready[number] = (MESSAGE.pack(END, 0, lane.epoch, lane.step, 0), None)
        lane.epoch, lane.step, lane.indices = lane.epoch + 1, 0, None
        self._send_ready(lane)

    def _collect(self, worker: Connection) -> None:
        try:
            done: JobDone = worker.recv()
        except (EOFError, OSError):
            self.selector.unregister(worker)
            words = pack_error(ReaderError("a worker of the node's reader was killed or crashed"))
            for lane in self.lanes.values():
                self._fail(lane, words)
            return
        self.idle.append(worker)
        job, lane = done.job, self.lanes[done.job.lane]
        lane.open -= 1
        if done.error:
            lane.ready[job.number] = (MESSAGE.pack(FAILED, 0, job.epoch, job.step, len(done.error)) + done.error, None)
            lane.stopped = True
        elif done.ended and job.step == 0:
            words = pack_error(
                ReaderError(f"the dataset has less than {self.plan.batch_size * self.plan.shares} samples: an epoch has no batch")
            )
            lane.ready[job.number] = (MESSAGE.pack(FAILED, 0, job.epoch, 0, len(words)) + words, None)
            lane.stopped = True
        elif done.ended:
            lane.free.add(job.slot)
            lane.step = job.step
            self._end_of_epoch(lane, job.number)
        else:
            lane.ready[job.number] = (MESSAGE.pack(BATCH, job.slot, job.epoch, job.step, done.size), job.slot)
        self._send_ready(lane)

    def _fail(self, lane: _Lane, words: bytes) -> None:
        """Sends an error to all ranks of a lane, ahead of pending batches."""
        lane.stopped = True
        self._send(lane, MESSAGE.pack(FAILED, 0, lane.epoch, lane.step, len(words)) + words)

    def _send_ready(self, lane: _Lane) -> None:
        """Sends the next messages in order to the lane's ranks, and keeps them for ranks that have not connected yet."""
        while lane.sent in lane.ready:
            message, slot = lane.ready.pop(lane.sent)
            lane.sent += 1
            if slot is not None:
                lane.holders[slot] = set(lane.members) | lane.waiting
                if not lane.holders[slot]:
                    lane.free.add(slot)
            self._send(lane, message)

    def _send(self, lane: _Lane, message: bytes) -> None:
        if lane.waiting:
            lane.backlog.append(message)
        for rank, member in list(lane.members.items()):
            try:
                member.sendall(message)
            except OSError:
                self._drop_rank(lane, rank)

    def _welcome(self, listener: socket.socket) -> None:
        """Accepts a rank: it gets its lane's slots and all earlier messages of its lane."""
        connection, _ = listener.accept()
        connection.settimeout(self.timeout)
        try:
            rank, *position = HELLO.unpack(read_exactly(connection, HELLO.size))
            lane = self.lanes[self.local[rank]]
            if tuple(position) != self.plan.start or rank not in lane.waiting:
                connection.sendall(OTHER if rank not in lane.waiting else ELSEWHERE)
                connection.close()
                return
            socket.send_fds(connection, [WELCOME], lane.slots)
            for message in lane.backlog:
                connection.sendall(message)
        except OSError:
            connection.close()
            return
        lane.waiting.discard(rank)
        lane.members[rank] = connection
        if not lane.waiting:
            lane.backlog.clear()
        self.selector.register(connection, selectors.EVENT_READ, ("rank", rank))

    def _receive_release(self, rank: int) -> None:
        lane = self.lanes[self.local[rank]]
        if rank not in lane.members:
            return
        try:
            (slot,) = RELEASE.unpack(read_exactly(lane.members[rank], RELEASE.size))
        except OSError:
            self._drop_rank(lane, rank)
            return
        self._release_slot(lane, slot, rank)

    def _release_slot(self, lane: _Lane, slot: int, rank: int) -> None:
        holders = lane.holders.get(slot)
        if holders is not None and rank in holders:
            holders.discard(rank)
            if not holders:
                del lane.holders[slot]
                lane.free.add(slot)

    def _drop_rank(self, lane: _Lane, rank: int) -> None:
        """Releases everything that a rank holds that ended or never connected."""
        lane.waiting.discard(rank)
        member = lane.members.pop(rank, None)
        if member is not None:
            self.selector.unregister(member)
            member.close()
        for slot in list(lane.holders):
            self._release_slot(lane, slot, rank)


def fork_reader(plan: ReadPlan, lanes: tuple[int, ...], address: str, prefetch: int, workers: int, timeout: float) -> int:
    """Starts the reader as a child of this process; returns its process id. It survives this process as long as other ranks need
    it.
    """
    listener, parent = _open_listener(address, timeout), os.getpid()
    child = os.fork()
    if child:
        listener.close()
        return child
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _close_sockets(listener.fileno())
        NodeReader(plan, lanes, address, prefetch, workers, timeout, parent).run(listener)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(0)


def _open_listener(address: str, timeout: float) -> socket.socket:
    """A listening socket at `address`; waits for an earlier reader to exit. OSError if it does not."""
    end = time.monotonic() + timeout
    while True:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind("\0" + address)
        except OSError:
            listener.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
            continue
        listener.listen(64)
        return listener


def _close_sockets(listener_fd: int) -> None:
    """Closes the rank's connections in this process, so that its peers see it end although this process continues."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2 and int(name) != listener_fd and stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.close(int(name))
