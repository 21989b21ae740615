"""`SharedLoader`: a data loader whose batches are read once for all ranks of a node that need them.

Data-parallel coordinate of a rank, and the ranks of its node.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.fleet.loading.reader import BATCH, END, HELLO, MESSAGE, OTHER, RELEASE, WELCOME, fork_reader
from windtunnel.fleet.loading.workers import EpochOrder, ReaderError, ReadPlan, default_collate, unpack, unpack_error


@dataclass(frozen=True)
class NodePlace:
    """Rank `local_rank` of a node whose ranks have the data-parallel coordinates `lanes`, out of `shares` coordinates in total.

    Ranks with the same coordinate (tp, cp and pp peers) get the same batches. Local rank 0 starts the node's reader.
    """

    local_rank: int
    lanes: tuple[int, ...]
    shares: int

    def __post_init__(self) -> None:
        if not 0 <= self.local_rank < len(self.lanes):
            raise SpecError(
                "local_rank", self.local_rank, f"0 to {len(self.lanes) - 1}", "lanes has one coordinate for each rank of the node."
            )
        wrong = next((lane for lane in self.lanes if not 0 <= lane < self.shares), None)
        if wrong is not None:
            raise PlanError("lanes", wrong, f"0 to {self.shares - 1}", "shares is the number of data-parallel coordinates.")

    @property
    def coordinate(self) -> int:
        """This rank's share of the data."""
        return self.lanes[self.local_rank]


def place_in_mesh(mesh: Any, rank: int, ranks_per_node: int, data_axes: Sequence[str] = ("dp",)) -> NodePlace:
    """The place of `rank` in a torch DeviceMesh: nodes hold consecutive ranks, and ranks that differ in `data_axes` read different
    data. PlanError for an unknown axis.
    """
    names = tuple(mesh.mesh_dim_names or ())
    unknown = next((axis for axis in data_axes if axis not in names), None)
    if unknown is not None:
        raise PlanError("data_axes", unknown, ", ".join(names) or "a mesh with named axes")
    ranks = mesh.mesh
    coordinates = {}
    for at in (ranks == ranks).nonzero().tolist():
        lane = 0
        for axis in data_axes:
            dimension = names.index(axis)
            lane = lane * ranks.shape[dimension] + at[dimension]
        coordinates[int(ranks[tuple(at)])] = lane
    first = rank - rank % ranks_per_node
    lanes = tuple(coordinates[one] for one in range(first, min(first + ranks_per_node, len(coordinates))))
    return NodePlace(rank - first, lanes, max(coordinates.values()) + 1)


SINGLE_RANK = NodePlace(0, (0,), 1)


class SharedLoader:
    """Iterating yields this rank's batches of one epoch; iterating again yields the next epoch, and after a `break` the rest of the
    same epoch.

    `dataset`: map-style (`__len__` and `__getitem__`, any sequence) or iterable. `place`: the rank's node and share of the data.
    `address`: the same text on all ranks of a node, unique among jobs. `num_workers` processes read ahead by `prefetch` batches per
    lane. Local rank 0 forks the reader when it first iterates; create the loader before threads hold locks that the dataset needs.

    A batch's arrays are in memory shared with the reader, copy-on-write: writing to them affects nobody else. Their slot is reused
    after the last of them is released. If a rank keeps all slots, further batches are copies.

    Raises the dataset's own exceptions, and ReaderError if the reader is gone or sent nothing for `timeout` seconds (None: no
    limit).
    """

    def __init__(
        self, dataset: Any, batch_size: int, place: NodePlace = SINGLE_RANK, *, address: str, shuffle: bool = False, seed: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None, num_workers: int = 0, prefetch: int = 2, drop_last: bool = True,
        start_timeout: float = 60.0, timeout: float | None = None,
    ) -> None:  # fmt: skip
        if prefetch < 1:
            raise SpecError("prefetch", prefetch, "1 and more", "The next batch is read while this one is used.")
        if batch_size < 1:
            raise SpecError("batch_size", batch_size, "1 and more")
        streamed = not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"))
        if streamed and shuffle:
            raise PlanError(
                "shuffle", shuffle, "False for an iterable dataset", "It decides its own order; it is told the epoch by set_epoch."
            )
        self.dataset, self.batch_size, self.place, self.address = dataset, batch_size, place, address
        self.order = None if streamed else EpochOrder(len(dataset), batch_size, place.shares, shuffle, seed, drop_last)
        self.seed, self.num_workers, self.prefetch = seed, max(1, num_workers), prefetch
        self.collate = collate_fn or default_collate()
        self.start_timeout, self.timeout = start_timeout, timeout
        self._epoch = self._step = self._starts = 0
        self._state: Any = None
        self._connection: socket.socket | None = None
        self._slots: list[int] = []
        self._held: set[int] = set()
        self._reader = 0

    def __len__(self) -> int:
        """Batches per epoch. TypeError for an iterable dataset."""
        if self.order is None:
            raise TypeError("an iterable dataset has no length")
        return self.order.steps

    def state_dict(self) -> dict[str, Any]:
        """Position of this rank: after the last batch that it received, however far the reader is ahead."""
        return {"epoch": self._epoch, "step": self._step, "dataset": self._state, "about": self._about()}

    def _about(self) -> dict[str, Any]:
        order = self.order
        return {
            "batch_size": self.batch_size, "shares": self.place.shares, "seed": self.seed,
            "shuffle": bool(order and order.shuffle), "samples": order.samples if order else None,
            "drop_last": order.drop_last if order else True,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues after the last batch of `state`, with the same samples and transforms. All ranks of a node must call it.

        PlanError if batch size, shares, seed, shuffle or the number of samples differ, because the order would be another.
        """
        mine = self._about()
        wrong = next((name for name in mine if state["about"].get(name) != mine[name]), None)
        if wrong is not None:
            raise PlanError(
                f"loader.{wrong}", mine[wrong], f"{state['about'].get(wrong)}, as saved", "The order of samples depends on it."
            )
        self.close()
        self._epoch, self._step, self._state = state["epoch"], state["step"], state["dataset"]

    def __iter__(self) -> Iterator[Any]:
        """The rest of the current epoch."""
        if self._connection is None:
            self._connect()
        while True:
            kind, slot, epoch, step, size = MESSAGE.unpack(self._receive(MESSAGE.size))
            if kind == END:
                self._epoch, self._step, self._state = epoch + 1, 0, None
                return
            if kind != BATCH:
                error = unpack_error(self._receive(size))
                self.close()
                raise error
            batch, state = unpack(self._memory(slot, size))
            self._epoch, self._step, self._state = epoch, step + 1, state
            yield batch
            del batch

    def ready(self) -> bool:
        """Whether the next batch has arrived. False before the first one, and while the rank would have to wait: the data is
        late.
        """
        return self._connection is not None and bool(select.select([self._connection], [], [], 0)[0])

    def _memory(self, slot: int, size: int) -> memoryview:
        """A slot's bytes. The slot is released when the last view of them is dropped."""
        mapped = mmap.mmap(self._slots[slot], size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        base = np.frombuffer(mapped, np.uint8)
        assert self._connection is not None
        if len(self._held) + 1 >= len(self._slots):  # keeping this one too could leave the reader without a slot
            copy = base.copy().data
            _release(self._connection, set(), slot)
            return copy
        self._held.add(slot)
        weakref.finalize(base, _release, self._connection, self._held, slot).atexit = False
        return base.data

    def _receive(self, size: int) -> bytes:
        connection, words = self._connection, b""
        while len(words) < size:
            if connection is None:
                raise ReaderError("the loader was closed")
            try:
                part = connection.recv(size - len(words))
            except TimeoutError:
                raise ReaderError(f"the node's reader sent nothing for {self.timeout:g} s; the dataset hangs or is slow") from None
            except OSError:
                part = b""
            if not part:
                self.close()
                raise ReaderError("the node's reader is gone: it was killed or crashed. Its words are in the log of local rank 0")
            words += part
        return words

    def _connect(self) -> None:
        """Local rank 0 starts the reader; all ranks of the node connect to it."""
        address = f"windtunnel-{self.address}-{self._starts}"
        self._starts += 1
        if self.place.local_rank == 0:
            plan = ReadPlan(self.dataset, self.order, self.batch_size, self.place.shares, self.seed, self.collate,
                            (self._epoch, self._step), self._state)  # fmt: skip
            self._reader = fork_reader(plan, self.place.lanes, address, self.prefetch, self.num_workers, self.start_timeout)
        end = time.monotonic() + self.start_timeout
        while True:  # an earlier reader at this address may be about to exit
            self._connection = connection = self._connect_socket("\0" + address, end)
            answer = self._greet(connection)
            if answer != OTHER or time.monotonic() > end:
                break
        if answer != WELCOME:
            self.close()
            reason = "its ranks do not start from the same epoch and step" if answer else "its reader ended"
            raise ReaderError(f"local rank {self.place.local_rank} cannot read: {reason}")
        connection.settimeout(self.timeout)

    def _greet(self, connection: socket.socket) -> bytes:
        """The reader's answer to this rank; WELCOME comes with the slots."""
        connection.settimeout(self.start_timeout)
        try:
            connection.sendall(HELLO.pack(self.place.local_rank, self._epoch, self._step))
            answer, self._slots, _, _ = socket.recv_fds(connection, 1, self.prefetch + 1)
        except OSError:
            answer, self._slots = b"", []
        self._held = set()
        if answer == OTHER:
            connection.close()
            time.sleep(0.01)
        return answer

    def _connect_socket(self, address: str, end: float) -> socket.socket:
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(address)
                return connection
            except OSError as error:
                connection.close()
                gone = self._reader and os.waitpid(self._reader, os.WNOHANG)[0]
                if gone or time.monotonic() > end:
                    self._reader = 0 if gone else self._reader
                    reason = (
                        "the node's reader ended as it started"
                        if gone
                        else f"no reader on this node after {self.start_timeout:g} s"
                    )
                    raise ReaderError(f"{reason}; look at the log of local rank 0") from error
                time.sleep(0.01)

    def close(self) -> None:
        """Disconnects from the reader, which exits after all ranks have disconnected. Batches that were returned stay valid."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for slot in self._slots:
            os.close(slot)
        self._slots = []
        if self._reader:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._reader, os.WNOHANG)
            self._reader = 0

    def __enter__(self) -> SharedLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _release(connection: socket.socket, held: set[int], slot: int) -> None:
    """Tells the reader that this rank has released a slot. A few bytes on a stream socket are sent in one piece, so the garbage
    collector, which may call this, needs no lock.
    """
    held.discard(slot)
    with contextlib.suppress(OSError):
        connection.send(RELEASE.pack(slot), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
