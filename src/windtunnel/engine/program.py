"""The engine's program: operator templates, and for every rank a list of instances of them.

The engine knows tasks, streams, the host and meetings of ranks. The caller defines the meaning of categories, streams and keys.

    builder = ProgramBuilder(categories=2, compute_tax=0.1)
    layer = builder.add_template(seconds=[1e-3, 2e-3], category=[0, 0], stream=[0, 0])
    rank = builder.rank()
    forward = rank.add(layer, times=12)
    sent = rank.add_rendezvous(stream=1, parts=[(7, 3e-4, 2)], waits=[forward], cat_wait=1, cat_transfer=1)
    timeline = run(builder.build())

The unit of a program's durations: on a grid of powers of two, sums of times are exact (decision 79).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s, Uint8s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import EngineError

_Scalar = TypeVar("_Scalar", bound=np.generic)

HOST_SYNC = 1
JOIN = 2
COPY = 2
"""`comm` of an operator that neither slows computation nor is slowed: a copy engine's or a CPU's."""
_RENDEZVOUS = -1


@dataclass(frozen=True)
class Program:
    """Columns of a program. T templates with O operators, R ranks with I instances, V of them rendezvous with P parts.

    `rank_start[r]:rank_start[r+1]` are the instances of rank r; `template` is -1 for a rendezvous, and the v-th of those takes
    row v of the `rv_` columns. Waits name earlier operators of the template, and earlier instances of the rank. Seconds
    throughout.
    """

    template_start: Int64s  # [T+1]
    op_stream: Int32s
    """[O] 0..63; stream 0 is the one whose idle time is accounted."""
    op_seconds: Floats  # [O]
    op_host: Floats
    """[O] host seconds to enqueue."""
    op_category: Int32s
    """[O] 0..categories-1."""
    op_comm: Uint8s
    """[O] 1: a communication kernel, see `compute_tax`; COPY."""
    op_sync: Uint8s
    """[O] 1: the host blocks until the operator has ended."""
    op_wait0: Int32s  # [O] -1: none
    op_wait1: Int32s  # [O]
    rank_start: Int64s  # [R+1]
    template: Int32s  # [I]
    times: Int32s
    """[I] repetitions, one after the other."""
    flags: Uint8s
    """[I] HOST_SYNC, JOIN."""
    wait_start: Int64s  # [I+1]
    waits: Int32s
    rv_stream: Int32s  # [V]
    rv_host: Floats  # [V]
    rv_cat_wait: Int32s  # [V]
    rv_cat_transfer: Int32s  # [V]
    part_start: Int64s  # [V+1]
    part_key: Int64s  # [P]
    part_seconds: Floats  # [P]
    part_participants: Int32s  # [P] >= 1
    op_group: Int32s
    """[O] column of `scales` by which an operator's seconds are multiplied."""
    scale: Int32s
    """[I] row of `scales`; empty: every factor is 1."""
    scales: Floats
    """[rows x groups], flat."""
    groups: int
    op_live: Int32s
    """[O] number of the call whose end a network finds, or -1; empty: none is, and the program needs no clock."""
    live_key: int
    """The network knows call n of rank r by the key live_key + r * live_calls + n."""
    live_calls: int
    categories: int
    compute_tax: float = 0.0
    """Share of its rate that computing loses while communication of the rank is in flight."""
    host_window: int = 0
    """Operators that the host may be ahead of the device; 0: any number."""
    taxes: Floats = field(default_factory=lambda: np.zeros(0))
    """[R] the compute tax of each rank, where ranks belong to several jobs; empty: `compute_tax` for all."""

    @property
    def ranks(self) -> int:
        return len(self.rank_start) - 1


class GrowingTable:
    """A table [n, width] of numbers that grows by single rows and by tables."""

    def __init__(self, width: int = 1, dtype: type[np.int32] | type[np.int64] | type[np.float64] = np.int32) -> None:
        self.width, self.dtype = width, dtype
        self._tables: list[npt.NDArray[Any]] = []
        self._rows = 0  # of the tables
        # a flat list of plain numbers, so that the garbage collector has nothing to traverse in a long program
        self._new: list[float] = []

    def __len__(self) -> int:
        return self._rows + len(self._new) // self.width

    def append(self, row: Iterable[float]) -> None:
        """Adds a row, or several as one sequence of their numbers."""
        self._new += row

    def extend(self, table: npt.NDArray[Any]) -> None:
        """Adds the rows of a table [k, width]."""
        self._close()
        self._tables.append(table)
        self._rows += len(table)

    def table(self) -> npt.NDArray[Any]:
        """All rows so far [n, width]; as a view, which may be changed until the next row is added."""
        self._close()
        if len(self._tables) != 1:
            self._tables = [self.join([self])]
        return self._tables[0]

    @staticmethod
    def join(parts: Sequence[GrowingTable]) -> npt.NDArray[Any]:
        """All rows of one table or more of a kind."""
        for part in parts:
            part._close()
        tables = [table for part in parts for table in part._tables]
        return np.concatenate(tables) if tables else np.zeros((0, parts[0].width), parts[0].dtype)

    def _close(self) -> None:
        if self._new:
            self._tables.append(np.array(self._new, self.dtype).reshape(-1, self.width))
            self._rows += len(self._tables[-1])
            self._new = []


class InstanceColumns(NamedTuple):
    """Instances in columns, which number them from 0, to append to a rank in parts: tables as `RankBuilder` has them.

    `waits` may be negative: instances before the columns. `waits_start`, `meets_start` [n+1]: waits and rendezvous, each of one
    part, before an instance; `host`: seconds of each rendezvous.
    """

    rows: Int32s  # [n, 4]
    waits: Int32s
    waits_start: Int64s
    meetings: Int32s  # [m, 4]
    keys: Int64s  # [m, 2]
    seconds: Floats  # [m, 1]
    meets_start: Int64s
    host: float


class RankBuilder:
    """Instances of one rank, in program order. Indices that `add` returns are what later `waits` name."""

    def __init__(self) -> None:
        self.rows = GrowingTable(4)  # of an instance: template, times, flags, number of waits
        self.waits = GrowingTable()
        self.meetings = GrowingTable(4)  # of a rendezvous: stream, category of waiting, of transfer, number of parts
        self.hosts = GrowingTable(dtype=np.float64)  # of a rendezvous
        self.keys = GrowingTable(2, np.int64)  # of a part: key, participants
        self.seconds = GrowingTable(dtype=np.float64)  # of a part
        self.scales: Int64s | None = None  # [instances] rows of the builder's factors that stretch them; None: the first for all

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, template: int, waits: Iterable[int] = (), times: int = 1, host_sync: bool = False, join: bool = False) -> int:
        """Runs `template` `times` times in a row once the instances in `waits` have ended; returns the instance's index.

        `host_sync`: the host blocks until the instance has ended. `join`: each repetition starts no sooner than the end of the one
        before it; without it only the order on each stream limits them.
        """
        return self._append(template, times, (HOST_SYNC if host_sync else 0) | (JOIN if join else 0), waits)

    def add_all(self, templates: Iterable[int]) -> None:
        """Runs each template once; none waits for anything."""
        self.rows.append(number for template in templates for number in (template, 1, 0, 0))

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
        before = len(self.seconds)
        for key, seconds, participants in parts:
            self.keys.append((key, participants))
            self.seconds.append((seconds,))
        self.meetings.append((stream, cat_wait, cat_transfer, len(self.seconds) - before))
        self.hosts.append((host,))
        return self._append(_RENDEZVOUS, 1, HOST_SYNC if host_sync else 0, waits)

    def extend(self, columns: InstanceColumns, begin: int, end: int, waits: Int32s) -> None:
        """Many instances at once, `begin` to `end` of the columns, as `add` and `add_rendezvous` one by one would append them.

        `waits`: `columns.waits` of these, as instances of this rank.
        """
        meets = slice(int(columns.meets_start[begin]), int(columns.meets_start[end]))
        self.rows.extend(columns.rows[begin:end])
        self.waits.extend(waits[:, None])
        self.meetings.extend(columns.meetings[meets])
        self.hosts.extend(np.full((meets.stop - meets.start, 1), columns.host))
        self.keys.extend(columns.keys[meets])
        self.seconds.extend(columns.seconds[meets])

    @property
    def templates(self) -> Int64s:
        """Template of each instance so far, -1 for a rendezvous."""
        return self.rows.table()[:, 0].astype(np.int64)

    def sync_host(self, instance: int) -> None:
        """Makes the host block until `instance`, which already exists, has ended."""
        self.rows.table()[instance, 2] |= HOST_SYNC

    def scale(self, rows: Int64s) -> None:
        """Sets for each instance so far [n] its row of the builder's factors."""
        self.scales = rows

    def _append(self, template: int, times: int, flags: int, waits: Iterable[int]) -> int:
        awaited = tuple(waits)
        self.waits.append(awaited)
        self.rows.append((template, times, flags, len(awaited)))
        return len(self.rows) - 1


class ProgramBuilder:
    """Builds a program; about a microsecond per instance."""

    def __init__(self, categories: int, compute_tax: float = 0.0, host_window: int = 0, live_key: int | None = None) -> None:
        """`live_key`: the first key of calls inside templates whose end a network finds; None: there are none."""
        self.categories, self.compute_tax, self.host_window = categories, compute_tax, host_window
        self.live_key = live_key
        self._ranks: list[RankBuilder] = []
        self._sizes: list[int] = []
        self._numbers: list[Int32s] = []
        self._times: list[Floats] = []
        self._factors: list[Floats] = []

    def add_template(
        self,
        seconds: Sequence[float] | Floats,
        category: Sequence[int] | Int32s | int = 0,
        stream: Sequence[int] | Int32s | int = 0,
        host: Sequence[float] | Floats | float = 0.0,
        comm: Sequence[bool] | Uint8s | bool = False,
        wait0: Sequence[int] | Int32s | int = -1,
        wait1: Sequence[int] | Int32s | int = -1,
        sync: Sequence[bool] | Uint8s | bool = False,
        group: Sequence[int] | Int32s | int = 0,
        live: Sequence[int] | Int32s | int = -1,
    ) -> int:
        """Adds a list of operators that run in this order; a single value applies to all. Returns the template's number.

        `seconds` on the device, `host` seconds to enqueue; `wait0`, `wait1`: earlier operators of the template whose end each one
        waits for, -1 for none; `comm`: a communication kernel, which slows the computing beside it by the compute tax, or COPY;
        `sync`: the host blocks until the operator has ended; `group`: column of the factor that multiplies the operator's seconds;
        `live`: number of the call whose end a network finds, -1 where `seconds` are the operator's.
        """
        columns = (stream, category, comm, sync, wait0, wait1, group, live)
        numbers, times = np.empty((len(seconds), len(columns)), np.int32), np.empty((len(seconds), 2))
        sizes = [len(column) for column in (*columns, host) if isinstance(column, (Sequence, np.ndarray))]
        if any(size != len(seconds) for size in sizes):
            raise EngineError(f"template {len(self._sizes)}: columns of unequal length {[len(seconds), *sizes]}")
        for place, column in enumerate(columns):
            numbers[:, place] = column
        times[:, 0], times[:, 1] = seconds, host
        return self.add_rows(numbers, times)

    def add_rows(self, numbers: Int32s, times: Floats) -> int:
        """`add_template` of its columns as two tables: `numbers` [n, 8] are stream, category, comm, sync, wait0, wait1, group and
        live, `times` [n, 2] seconds and host."""
        self._sizes.append(len(times))
        self._numbers.append(numbers)
        self._times.append(times)
        return len(self._sizes) - 1

    def add_factors(self, factors: Floats) -> Int64s:
        """Rows [n, groups] of factors that instances may name; returns their numbers. The first row of a program has to be ones."""
        first = sum(len(rows) for rows in self._factors)
        self._factors.append(np.asarray(factors, np.float64))
        return first + np.arange(len(factors))

    def rank(self) -> RankBuilder:
        """The next rank, still empty."""
        self._ranks.append(RankBuilder())
        return self._ranks[-1]

    def build(self) -> Program:
        """The program's columns; the builder may continue afterwards. `run` checks them."""
        numbers = np.concatenate([np.zeros((0, 8), np.int32), *self._numbers])
        stream, category, comm, sync, wait0, wait1, group, live = np.ascontiguousarray(numbers.T)
        seconds, host = np.ascontiguousarray(np.concatenate([np.zeros((0, 2)), *self._times]).T)
        ranks = self._ranks

        tables = [(r.rows, r.meetings, r.keys, r.waits, r.hosts, r.seconds) for r in ranks or [RankBuilder()]]
        rows, meetings, keys, waits, hosts, parts = (GrowingTable.join(of) for of in zip(*tables, strict=True))

        def ints(column: npt.NDArray[np.generic]) -> Int32s:
            return np.ascontiguousarray(column, np.int32)

        return Program(
            template_start=_offsets(self._sizes),
            op_stream=stream, op_seconds=seconds, op_host=host, op_category=category,
            op_comm=comm.astype(np.uint8), op_sync=sync.astype(np.uint8), op_wait0=wait0, op_wait1=wait1,
            rank_start=_offsets([len(r) for r in ranks]),
            template=ints(rows[:, 0]), times=ints(rows[:, 1]), flags=np.ascontiguousarray(rows[:, 2], np.uint8),
            wait_start=_offsets(rows[:, 3]), waits=ints(waits.ravel()),
            rv_stream=ints(meetings[:, 0]), rv_host=hosts.ravel(),
            rv_cat_wait=ints(meetings[:, 1]), rv_cat_transfer=ints(meetings[:, 2]), part_start=_offsets(meetings[:, 3]),
            part_key=np.ascontiguousarray(keys[:, 0]), part_seconds=parts.ravel(),
            part_participants=ints(keys[:, 1]),
            op_group=group, scale=ints(np.concatenate([_scales(r) for r in ranks]) if self._factors else np.zeros(0)),
            scales=np.concatenate(self._factors).ravel() if self._factors else np.zeros(0),
            groups=self._factors[0].shape[1] if self._factors else int(group.max(initial=0)) + 1,
            op_live=live if self.live_key is not None else live[:0], live_key=self.live_key or 0,
            live_calls=int(live.max(initial=-1)) + 1,
            categories=self.categories, compute_tax=self.compute_tax, host_window=self.host_window,
        )  # fmt: skip


def _scales(rank: RankBuilder) -> Int64s:
    return np.zeros(len(rank), np.int64) if rank.scales is None else rank.scales


def _offsets(sizes: Sequence[int] | Int64s | Bools) -> Int64s:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, dtype=np.int64, out=offsets[1:])
    return offsets


BITS = 51
"""Of a float64's 53: rounding to the grid takes two."""


def finest(program: Program, more: Iterable[tuple[int, int, int]] = ()) -> float:
    """Seconds of the finest grid on which all times of a program are exact; 0 for a program that takes no time.

    `more`: instances `begin` to `end`, and how many times more they are to be counted. At any time something goes on at full rate,
    what is computed or what taxes it, so no time is later than the sum of all durations.
    """
    longer = float(program.scales.max(initial=1.0))
    try:
        each = np.append(0.0, np.cumsum(program.op_seconds * longer + program.op_host))
        totals = np.append(np.diff(each[program.template_start]), 0.0)  # -1, a rendezvous, is the last
        seconds: Floats = totals[program.template] * program.times
        parts = np.append(0.0, np.cumsum(program.part_seconds))[program.part_start]
        seconds[program.template < 0] += program.rv_host + np.diff(parts)
    except (IndexError, TypeError, ValueError):
        return 0.0  # the core says what is wrong with the columns
    total = float(seconds.sum()) + sum(times * float(seconds[begin:end].sum()) for begin, end, times in more)
    return math.ldexp(1.0, math.frexp(total)[1] - BITS) if 0.0 < total < math.inf else 0.0
