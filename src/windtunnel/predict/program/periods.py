"""The middle of a program that repeats: where it lies on each rank, and the same program with less of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Bools, Int32s, Int64s
from windtunnel.engine import Program
from windtunnel.predict.category import Task
from windtunnel.predict.program.stage import PASSES

_MOST_WAITS = 8
_OF_PASSES = (*PASSES.tolist(), int(Task.FORWARD_AND_BACKWARD))


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


def periods_of(program: Program, rank: int, labels: Int32s, step: int) -> Periods | None:
    """The repeating middle of a rank whose instances have these `labels` [n, 3]; None if none repeats.

    An instance repeats another one if it is the same `size` instances later, for micro batch + `step`, waits for those that repeat
    the other's, and meets at the key that follows.
    """
    passes = np.flatnonzero(np.isin(labels[:, 0], _OF_PASSES))
    if not len(passes):
        return None
    middle = int(passes[len(passes) // 2])
    later = np.flatnonzero((labels[middle + 1 :] == labels[middle] + np.array([0, step, 0], np.int32)).all(axis=1))
    columns = _columns(program, rank, labels)
    alike = (columns[0][middle + 1 + later] == columns[0][middle]).all(axis=1)
    for ahead in (later[alike] + 1).tolist():  # a pass may be several instances
        same = _find_repeats(columns, labels[:, 1], ahead, step)
        if same[max(0, middle - ahead) : middle + 1].all():
            return _find_ends(same, middle, ahead, step)
    return None


def _find_ends(same: Bools, middle: int, size: int, step: int) -> Periods:
    differs = np.flatnonzero(~same)
    place = int(np.searchsorted(differs, middle))
    first = int(differs[place - 1]) + 1 if place else 0
    behind = int(differs[place]) if place < len(differs) else len(same)
    return Periods(first, behind + size, size, step)


def _columns(program: Program, rank: int, labels: Int32s) -> tuple[npt.NDArray[np.float64], Int64s]:
    """Of a rank's instances what has to be the same [n, k], and the keys [n] that advance with micro batches; -1: none."""
    at = slice(int(program.rank_start[rank]), int(program.rank_start[rank + 1]))
    template, n = program.template[at], at.stop - at.start
    starts = program.wait_start[at.start : at.stop + 1]
    counts = np.diff(starts)
    waits = program.waits[starts[0] : starts[-1]] - np.repeat(np.arange(n), counts)
    nth = np.arange(len(waits)) - np.repeat(starts[:-1] - starts[0], counts)
    awaited = np.ones((n, _MOST_WAITS + 1))
    few = nth < _MOST_WAITS
    awaited[np.repeat(np.arange(n), counts)[few], nth[few]] = waits[few]
    awaited[:, -1] = np.where(counts > _MOST_WAITS, np.arange(n), -1)  # too many to compare: like no other
    meets = template < 0
    row = int((program.template[: at.start] < 0).sum()) + np.cumsum(meets)[meets] - 1
    part = program.part_start[row]
    key, met = np.full(n, -1, np.int64), np.zeros((n, 7))
    key[meets] = program.part_key[part]
    met[meets] = np.stack(
        [
            program.rv_stream[row], program.rv_host[row], program.rv_cat_wait[row], program.rv_cat_transfer[row],
            program.part_seconds[part], program.part_participants[part], program.part_start[row + 1] - part,
        ],
        axis=1,
    )  # fmt: skip
    alike = np.stack([template, program.times[at], program.flags[at], counts, labels[:, 0], labels[:, 2]], axis=1)
    return np.concatenate([alike, awaited, met], axis=1), key


def _find_repeats(columns: tuple[npt.NDArray[np.float64], Int64s], micro_batch: Int32s, size: int, step: int) -> Bools:
    """Which instances the one `size` later repeats."""
    alike, key = columns
    same = (alike[size:] == alike[:-size]).all(axis=1)
    for column, none in ((micro_batch, -1), (key, -1)):
        ahead, behind = column[size:], column[:-size]
        same &= np.where(behind == none, ahead == none, ahead == behind + step)
    result: Bools = same
    return result


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
