"""The result of a run: begin and end of every instance, time of every rank by category, and the critical path."""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats, Int32s, Uint8s
from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.program import Program

HOST = -2
"""Column of `Timeline.idle`: the host had not enqueued the next operator."""

TAIL = -1
"""Column of `Timeline.idle`: after the rank's last operator, until the slowest rank's end."""


class Cause(IntEnum):
    """The cause that determined a start."""

    BEGIN = 0  # the start of the step
    STREAM = 1  # the operator before it on its stream
    WAIT = 2  # an instance that it waits for
    INNER = 3  # an operator of its own template
    HOST = 4  # the host had not enqueued it yet
    WINDOW = 5  # the host's queue to the device was full
    PARTNER = 6  # the last participant of a rendezvous to post


class HopKind(IntEnum):
    """The kind of a stretch of the critical path."""

    OP = 0
    TRANSFER = 1
    HOST = 2


@dataclass(frozen=True)
class Hop:
    """One stretch of the critical path: consecutive operators of one instance, a transfer, or the host enqueuing up to `instance`.

    `op` is the first operator in the template, -1 for the other kinds; `cause` is what bound its start.
    """

    rank: int
    instance: int
    op: int
    kind: HopKind
    cause: Cause
    seconds: float


@dataclass(frozen=True)
class OpTimes:
    """Operators of the ranks `recorded` [R] of a program, in its order; a rendezvous from post to end. Seconds.

    What the rows are is read off the program on demand.
    """

    program: Program
    recorded: Uint8s
    start: Floats
    end: Floats

    @cached_property
    def rank(self) -> Int32s:
        """[n] rank of each row."""
        return self._rows[0]

    @cached_property
    def instance(self) -> Int32s:
        """[n] instance of each row, on its rank."""
        return self._rows[1]

    @cached_property
    def op(self) -> Int32s:
        """[n] operator of the instance's template; -1 for a rendezvous."""
        return self._rows[2]

    @cached_property
    def _rows(self) -> tuple[Int32s, Int32s, Int32s]:
        program, instances = self.program, np.diff(self.program.rank_start)
        rank = np.repeat(np.arange(len(instances)), instances)
        instance = np.arange(len(rank)) - np.repeat(program.rank_start[:-1], instances)
        size = np.append(np.diff(program.template_start), 1)[program.template]  # -1, a rendezvous, is the last
        events = np.where(self.recorded[rank] > 0, size * program.times, 0)
        row = np.repeat(np.arange(len(rank)), events)
        place = np.arange(len(row)) - np.repeat(np.cumsum(events) - events, events)
        op = np.where(program.template[row] < 0, -1, place % size[row])
        return rank[row].astype(np.int32), instance[row].astype(np.int32), op.astype(np.int32)


@dataclass(frozen=True)
class Timeline:
    """Seconds from the start of the step. R ranks, I instances (rows as in the program), S streams, C categories.

    On stream 0 of each rank `busy[r, 0].sum() + idle[r].sum() == makespan` to rounding: idle time goes to the category of what
    the next operator waited for, to HOST, or to TAIL.
    """

    makespan: float
    ops: int
    """Operators and rendezvous executed."""
    recalled: int
    """Those of instances that began as an earlier one had, and so took its times."""
    outcome: Int32s
    """[I] instances of one number went alike from their first operator on, -1: not known; empty if they were not to be named."""
    rank_start: npt.NDArray[np.int64]
    """[R+1] first instance of each rank."""
    begin: Floats
    """[I] first start, or post of a rendezvous."""
    end: Floats  # [I]
    transfer_begin: Floats
    """[I] begin of the transfer that ended last; NaN where the instance is no rendezvous."""
    busy: Floats  # [R, S, C]
    idle: Floats
    """[R, C+2] stream 0; the last two columns are HOST and TAIL."""
    stretch: Floats
    """[R, C] seconds that the compute tax added (contained in busy)."""
    rank_end: Floats  # [R]
    host_end: Floats
    """[R] when the host had enqueued all (and seen the end of its last synchronisation)."""
    host_begin: Floats
    """[I] when the host came to the instance."""
    path: tuple[Hop, ...]
    """From the start to the end; seconds add up to the makespan; empty if it was not asked for."""
    recorded: OpTimes

    def of_rank(self, rank: int) -> slice:
        """The rows of `rank` in `begin`, `end` and `transfer_begin`."""
        return slice(int(self.rank_start[rank]), int(self.rank_start[rank + 1]))
