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

import numpy as np
import numpy.typing as npt

from windtunnel.base.errors import EngineError

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

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
        self.template = array("i")
        self.times = array("i")
        self.flags = array("B")
        self.wait_end = array("q")
        self.waits = array("i")
        self.rv_stream = array("i")
        self.rv_host = array("d")
        self.rv_cat_wait = array("i")
        self.rv_cat_transfer = array("i")
        self.part_end = array("q")
        self.part_key = array("q")
        self.part_seconds = array("d")
        self.part_participants = array("i")

    def __len__(self) -> int:
        return len(self.template)

    def add(
        self, template: int, waits: Iterable[int] = (), times: int = 1, host_sync: bool = False, join: bool = False
    ) -> int:
        """Runs `template` `times` times in a row once the instances in `waits` have ended; returns the instance's index.

        `host_sync`: the host enqueues nothing more until the instance has ended. `join`: each repetition starts no sooner than
        the end of the one before it; without it only the order on each stream holds them back.
        """
        index = len(self.template)
        self.template.append(template)
        self.times.append(times)
        self.flags.append((HOST_SYNC if host_sync else 0) | (JOIN if join else 0))
        self.waits.extend(waits)
        self.wait_end.append(len(self.waits))
        return index

    def add_rendezvous(
        self,
        stream: int,
        parts: Iterable[tuple[int, float, int]],
        waits: Iterable[int] = (),
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
        index = len(self.template)
        self.template.append(_RENDEZVOUS)
        self.times.append(1)
        self.flags.append(HOST_SYNC if host_sync else 0)
        self.waits.extend(waits)
        self.wait_end.append(len(self.waits))
        self.rv_stream.append(stream)
        self.rv_host.append(host)
        self.rv_cat_wait.append(cat_wait)
        self.rv_cat_transfer.append(cat_transfer)
        for key, seconds, participants in parts:
            self.part_key.append(key)
            self.part_seconds.append(seconds)
            self.part_participants.append(participants)
        self.part_end.append(len(self.part_key))
        return index


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
        ops = [np.concatenate(c) for c in zip(*self._columns, strict=True)] if self._columns else _NO_OPS
        return Program(
            template_start=_offsets(self._sizes),
            op_stream=ops[0], op_seconds=ops[1], op_host=ops[2], op_category=ops[3], op_comm=ops[4], op_wait0=ops[5], op_wait1=ops[6],
            rank_start=_offsets([len(r) for r in ranks]),
            template=_column([r.template for r in ranks], np.int32),
            times=_column([r.times for r in ranks], np.int32),
            flags=_column([r.flags for r in ranks], np.uint8),
            wait_start=_joined_ends([r.wait_end for r in ranks], [len(r.waits) for r in ranks]),
            waits=_column([r.waits for r in ranks], np.int32),
            rv_stream=_column([r.rv_stream for r in ranks], np.int32),
            rv_host=_column([r.rv_host for r in ranks], np.float64),
            rv_cat_wait=_column([r.rv_cat_wait for r in ranks], np.int32),
            rv_cat_transfer=_column([r.rv_cat_transfer for r in ranks], np.int32),
            part_start=_joined_ends([r.part_end for r in ranks], [len(r.part_key) for r in ranks]),
            part_key=_column([r.part_key for r in ranks], np.int64),
            part_seconds=_column([r.part_seconds for r in ranks], np.float64),
            part_participants=_column([r.part_participants for r in ranks], np.int32),
            categories=self.categories, compute_tax=self.compute_tax, host_window=self.host_window,
        )  # fmt: skip


_NO_OPS: list[npt.NDArray[np.generic]] = [
    np.zeros(0, dtype) for dtype in (np.int32, np.float64, np.float64, np.int32, np.uint8, np.int32, np.int32)
]


def _offsets(sizes: Sequence[int]) -> Longs:
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64)


def _column(parts: Sequence[array], dtype: type[np.generic]) -> npt.NDArray[np.generic]:
    # np.array copies, so that the builder's arrays can still grow
    return np.concatenate([np.array(p, dtype) for p in parts]) if parts else np.zeros(0, dtype)


def _joined_ends(ends: Sequence[array], sizes: Sequence[int]) -> Longs:
    base = _offsets(sizes)
    return np.concatenate([np.zeros(1, np.int64)] + [np.array(e, np.int64) + b for e, b in zip(ends, base, strict=False)])
