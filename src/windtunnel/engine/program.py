"""What the engine runs: operator templates, and for every rank a list of instances of them.

The engine knows tasks, streams, the host and meetings of ranks. What a category, a stream or a key stands for is the caller's.

    builder = ProgramBuilder(categories=2, compute_tax=0.1)
    layer = builder.add_template(seconds=[1e-3, 2e-3], category=[0, 0], stream=[0, 0])
    rank = builder.rank()
    forward = rank.add(layer, times=12)
    sent = rank.add_rendezvous(stream=1, parts=[(7, 3e-4, 2)], waits=[forward], cat_wait=1, cat_transfer=1)
    timeline = run(builder.build())
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from windtunnel.base.errors import EngineError

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

_Scalar = TypeVar("_Scalar", bound=np.generic)

HOST_SYNC = 1
JOIN = 2
_RENDEZVOUS = -1


@dataclass(frozen=True)
class Program:
    """Columns of a program. T templates with O operators, R ranks with I instances, V of them rendezvous with P parts.

    `rank_start[r]:rank_start[r+1]` are the instances of rank r; `template` is -1 for a rendezvous, and the v-th of those takes row
    v of the `rv_` columns. Waits name earlier operators of the template, and earlier instances of the rank. Seconds throughout.
    """

    template_start: Longs  # [T+1]
    op_stream: Ints  # [O] 0..63; stream 0 is the one whose idle time is accounted
    op_seconds: Floats  # [O]
    op_host: Floats  # [O] host seconds to enqueue
    op_category: Ints  # [O] 0..categories-1
    op_comm: Bytes  # [O] 1: a communication kernel, see `compute_tax`
    op_wait0: Ints  # [O] -1: none
    op_wait1: Ints  # [O]
    rank_start: Longs  # [R+1]
    template: Ints  # [I]
    times: Ints  # [I] repetitions, one after the other
    flags: Bytes  # [I] HOST_SYNC, JOIN
    wait_start: Longs  # [I+1]
    waits: Ints
    rv_stream: Ints  # [V]
    rv_host: Floats  # [V]
    rv_cat_wait: Ints  # [V]
    rv_cat_transfer: Ints  # [V]
    part_start: Longs  # [V+1]
    part_key: Longs  # [P]
    part_seconds: Floats  # [P]
    part_participants: Ints  # [P] >= 2
    categories: int
    compute_tax: float = 0.0  # share of its rate that computing loses while communication of the rank is in flight
    host_window: int = 0  # operators that the host may be ahead of the device; 0: any number

    @property
    def ranks(self) -> int:
        return len(self.rank_start) - 1


class RankBuilder:
    """Instances of one rank, in program order. Indices that `add` returns are what later `waits` name."""

    def __init__(self) -> None:
        # typed arrays: appending costs the same as to a list, and they become columns without a conversion
        self._template = array("i")
        self._times = array("i")
        self._flags = array("B")
        self._wait_end = array("q")
        self._waits = array("i")
        self._stream = array("i")
        self._host = array("d")
        self._cat_wait = array("i")
        self._cat_transfer = array("i")
        self._part_end = array("q")
        self._key = array("q")
        self._seconds = array("d")
        self._participants = array("i")

    def __len__(self) -> int:
        return len(self._template)

    def add(self, template: int, waits: Sequence[int] = (), times: int = 1, host_sync: bool = False, join: bool = False) -> int:
        """Runs `template` `times` times in a row once the instances in `waits` have ended; returns the instance's index.

        `host_sync`: the host enqueues nothing more until the instance has ended. `join`: each repetition starts no sooner than
        the end of the one before it; without it only the order on each stream holds them back.
        """
        if waits:
            self._waits.extend(waits)
        self._wait_end.append(len(self._waits))
        self._template.append(template)
        self._times.append(times)
        self._flags.append((HOST_SYNC if host_sync else 0) | (JOIN if join else 0))
        return len(self._template) - 1

    def add_rendezvous(
        self,
        stream: int,
        parts: Iterable[tuple[int, float, int]],
        waits: Sequence[int] = (),
        host: float = 0.0,
        cat_wait: int = 0,
        cat_transfer: int = 0,
        host_sync: bool = False,
    ) -> int:
        """Meets other ranks on `stream`; returns the instance's index.

        `parts` are (key, seconds, participants), all posted at once: each begins when its last participant has posted and
        takes the longest of the seconds that they state; the instance ends, and the stream is free, with the last of them.
        Before its transfer begins the instance's time counts as `cat_wait`, then as `cat_transfer`.
        """
        if waits:
            self._waits.extend(waits)
        self._wait_end.append(len(self._waits))
        self._template.append(_RENDEZVOUS)
        self._times.append(1)
        self._flags.append(HOST_SYNC if host_sync else 0)
        for key, seconds, participants in parts:
            self._key.append(key)
            self._seconds.append(seconds)
            self._participants.append(participants)
        self._part_end.append(len(self._key))
        self._stream.append(stream)
        self._host.append(host)
        self._cat_wait.append(cat_wait)
        self._cat_transfer.append(cat_transfer)
        return len(self._template) - 1


class ProgramBuilder:
    """Puts a program together; about a microsecond an instance."""

    def __init__(self, categories: int, compute_tax: float = 0.0, host_window: int = 0) -> None:
        self.categories, self.compute_tax, self.host_window = categories, compute_tax, host_window
        self._ranks: list[RankBuilder] = []
        self._sizes: list[int] = []
        self._columns: list[tuple[Ints, Floats, Floats, Ints, Bytes, Ints, Ints]] = []

    def add_template(
        self,
        seconds: Sequence[float] | Floats,
        category: Sequence[int] | Ints | int = 0,
        stream: Sequence[int] | Ints | int = 0,
        host: Sequence[float] | Floats | float = 0.0,
        comm: Sequence[bool] | Bytes | bool = False,
        wait0: Sequence[int] | Ints | int = -1,
        wait1: Sequence[int] | Ints | int = -1,
    ) -> int:
        """A list of operators that run in this order; one value stands for all. Returns the template's number.

        `seconds` on the device, `host` seconds to enqueue; `wait0`, `wait1`: earlier operators of the template whose end each one
        waits for, -1 for none; `comm`: a communication kernel, which slows the computing beside it by the compute tax.
        """
        n = len(seconds)

        def ints(value: Sequence[int] | Ints | int) -> Ints:
            return np.full(n, value, np.int32) if isinstance(value, int) else np.asarray(value, np.int32)

        hosts = np.full(n, host, np.float64) if isinstance(host, (int, float)) else np.asarray(host, np.float64)
        comms = np.full(n, comm, np.uint8) if isinstance(comm, bool) else np.asarray(comm, np.uint8)
        columns = (ints(stream), np.asarray(seconds, np.float64), hosts, ints(category), comms, ints(wait0), ints(wait1))
        if any(column.shape != (n,) for column in columns):
            raise EngineError(f"template {len(self._sizes)}: columns of unequal length {[len(c) for c in columns]}")
        self._sizes.append(n)
        self._columns.append(columns)
        return len(self._sizes) - 1

    def rank(self) -> RankBuilder:
        """The next rank, still empty."""
        self._ranks.append(RankBuilder())
        return self._ranks[-1]

    def build(self) -> Program:
        """The program's columns; the builder may go on afterwards. What is wrong in them is found by `run`."""
        ranks = self._ranks
        ops = self._columns
        return Program(
            template_start=_offsets(self._sizes),
            op_stream=_column([c[0] for c in ops], np.int32),
            op_seconds=_column([c[1] for c in ops], np.float64),
            op_host=_column([c[2] for c in ops], np.float64),
            op_category=_column([c[3] for c in ops], np.int32),
            op_comm=_column([c[4] for c in ops], np.uint8),
            op_wait0=_column([c[5] for c in ops], np.int32),
            op_wait1=_column([c[6] for c in ops], np.int32),
            rank_start=_offsets([len(r) for r in ranks]),
            template=_column([r._template for r in ranks], np.int32),
            times=_column([r._times for r in ranks], np.int32),
            flags=_column([r._flags for r in ranks], np.uint8),
            wait_start=_ends([r._wait_end for r in ranks], [len(r._waits) for r in ranks]),
            waits=_column([r._waits for r in ranks], np.int32),
            rv_stream=_column([r._stream for r in ranks], np.int32),
            rv_host=_column([r._host for r in ranks], np.float64),
            rv_cat_wait=_column([r._cat_wait for r in ranks], np.int32),
            rv_cat_transfer=_column([r._cat_transfer for r in ranks], np.int32),
            part_start=_ends([r._part_end for r in ranks], [len(r._key) for r in ranks]),
            part_key=_column([r._key for r in ranks], np.int64),
            part_seconds=_column([r._seconds for r in ranks], np.float64),
            part_participants=_column([r._participants for r in ranks], np.int32),
            categories=self.categories,
            compute_tax=self.compute_tax,
            host_window=self.host_window,
        )


def _offsets(sizes: Sequence[int]) -> Longs:
    out = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=out[1:])
    return out


def _column(parts: Sequence[Any], dtype: type[_Scalar]) -> npt.NDArray[_Scalar]:
    # np.array copies, so that the builder's arrays can still grow
    return np.concatenate([np.array(p, dtype) for p in parts]) if parts else np.zeros(0, dtype)


def _ends(ends: Sequence[array[int]], sizes: Sequence[int]) -> Longs:
    """Offsets over all ranks, from each rank's own ends and its number of items."""
    shifted = [np.array(e, np.int64) + before for e, before in zip(ends, _offsets(sizes)[:-1], strict=True)]
    return np.concatenate([np.zeros(1, np.int64), *shifted])
