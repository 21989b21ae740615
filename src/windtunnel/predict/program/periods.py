"""The middle of a program that repeats: where it lies on each rank, and the same program with less of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Int32s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.engine import Program
from windtunnel.engine.steady import find_periods
from windtunnel.predict.category import Task
from windtunnel.predict.program.stage import PASSES

IS_PASS = np.isin(np.arange(len(Task)), (*PASSES.tolist(), int(Task.FORWARD_AND_BACKWARD)))
"""By `Task`."""


@dataclass(frozen=True)
class Periods:
    """Instances `first` to `last` of a rank, counted on it, repeat every `size`; the number of micro batches that this takes on one
    virtual stage is `step`."""

    first: int
    last: int
    size: int
    step: int

    @property
    def number(self) -> int:
        """Whole periods."""
        return (self.last - self.first) // self.size


def periods_of(program: Program, labels: Sequence[Int32s], step: int) -> tuple[Periods, ...] | None:
    """The repeating middle of each rank, whose instances have these `labels` [n, 3]; None if a rank has none.

    What an instance repeats is the same for micro batch + `step`; see `engine.steady.find_periods`.
    """
    task, micro_batch, chunk = np.ascontiguousarray(np.concatenate(labels).T)
    kind = task * (chunk.max(initial=0) + 2) + chunk
    found = find_periods(program, IS_PASS[task], kind, micro_batch, step)
    return tuple(Periods(first, last, size, step) for first, last, size in found.tolist()) if found[:, 2].all() else None


def without_periods(program: Program, periods: tuple[Periods, ...], less: int) -> Program | None:
    """The program with `less` periods fewer on every rank, as if it had been written for fewer micro batches; None where a wait
    reaches from behind the periods to one that would not be there.

    Every rendezvous has one part.
    """
    keep = np.ones(len(program.template), np.bool_)
    key = program.part_key.copy()
    waits = program.waits.copy()
    meets = program.template < 0
    row = np.cumsum(meets)  # of rendezvous before the end of each instance
    for rank, of in enumerate(periods):
        begin, end = int(program.rank_start[rank]), int(program.rank_start[rank + 1])
        gone = less * of.size
        keep[begin + of.last - gone : begin + of.last] = False
        behind = slice(int(program.wait_start[begin + of.last]), int(program.wait_start[end]))
        awaited = waits[behind]
        inside = awaited >= of.first
        if (inside & (awaited < of.first + gone)).any():
            return None
        waits[behind] = np.where(inside, awaited - gone, awaited)
        keys = key[int(row[begin + of.last - 1]) : int(row[end - 1])]
        keys[keys >= 0] -= less * of.step
    counts = np.diff(program.wait_start)
    met = keep[meets]
    offsets = np.concatenate([[0], np.cumsum(keep)])
    return replace(
        program,
        rank_start=offsets[program.rank_start].astype(np.int64),
        template=program.template[keep], times=program.times[keep], flags=program.flags[keep],
        wait_start=np.concatenate([[0], np.cumsum(counts[keep])]).astype(np.int64), waits=waits[np.repeat(keep, counts)],
        rv_stream=program.rv_stream[met], rv_host=program.rv_host[met],
        rv_cat_wait=program.rv_cat_wait[met], rv_cat_transfer=program.rv_cat_transfer[met],
        part_start=np.arange(int(met.sum()) + 1, dtype=np.int64),
        part_key=key[met], part_seconds=program.part_seconds[met], part_participants=program.part_participants[met],
        scale=program.scale[keep] if len(program.scale) else program.scale,
    )  # fmt: skip
