"""The steps of a run as its monitor has seen them, in a memory that stays the same: rings keep the last steps only.

The lengths of all steps are counted in bins of 1 %, the slowest steps are kept with their causes, and so are the parts of the last
steps of each rank, for what happens in some of them only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import FileError
from windtunnel.fleet.findings.rare import MOST_SLOW, SlowStep, StepSpread, step_times
from windtunnel.fleet.findings.slow_ranks import WARM_UP
from windtunnel.fleet.findings.steps import SERIES, StepTable, join_tables
from windtunnel.records.sections import Section

MOST_STEPS = 2048
MOST_CELLS = 1 << 18
"""Ranks times steps that are kept, where that is at least `FEWEST_KEPT` steps: 30 MB."""
FEWEST_KEPT = 64
BINS, FINEST, RATIO = 4096, 1e-6, 1.01


@dataclass
class StepHistory:
    """What is known of the steps so far; `add` the table of each look. `table`: the last steps."""

    table: StepTable | None = None
    first: int = -1
    last: int = -1
    """First and last step that were counted."""
    total: int = 0
    seconds: float = 0.0
    """Of the counted steps after the warm-up; `total` of them."""
    counts: Int64s = field(default_factory=lambda: np.zeros(BINS, np.int64))
    slowest: tuple[SlowStep, ...] = ()

    def add(self, table: StepTable, *, ended: bool = False) -> None:
        """Counts the steps that are new and that every rank has ended; all that some rank has with `ended`. A run that was started
        again from an earlier step begins anew."""
        known = np.isfinite(table.step)
        if not known.any():
            return
        latest = int(table.steps[known.any(axis=0)].max())
        if latest < self.first:
            self.__init__()  # type: ignore[misc]
        reached = [int(table.steps[row].max()) for row in known if row.any()]
        until = latest if ended else min(reached)
        new = (table.steps > self.last) & (table.steps <= until) & known.any(axis=0)
        if not new.any():
            return
        added = table.take(np.flatnonzero(new))
        self.first = int(added.steps[0]) if self.first < 0 else self.first
        self.last = int(added.steps[-1])
        joined = added if self.table is None else join_tables(self.table, added)
        kept = max(min(MOST_STEPS, MOST_CELLS // max(len(joined.ranks), 1)), FEWEST_KEPT)
        self.table = joined.take(np.arange(max(len(joined.steps) - kept, 0), len(joined.steps)))
        counted = added.steps >= self.first + WARM_UP
        length = np.nanmean(added.step[:, counted], axis=0) if counted.any() else np.zeros(0)
        self.total += len(length)
        self.seconds += float(length.sum())
        places = np.clip(np.log(np.maximum(length, FINEST) / FINEST) / np.log(RATIO), 0, BINS - 1).astype(np.int64)
        self.counts += np.bincount(places, minlength=BINS)
        slow = {one.step: one for one in (*self.slowest, *step_times(self.table).slowest)}
        self.slowest = tuple(sorted(slow.values(), key=lambda one: -one.seconds)[:MOST_SLOW])

    def times(self) -> StepSpread:
        """Of all steps that were counted."""
        if self.table is None:
            return StepSpread(0, *(float("nan"),) * 4, ())
        found = step_times(self.table)
        if self.total <= found.count:
            return found
        middle, high, highest = (self._quantile(share) for share in (0.5, 0.95, 0.99))
        return StepSpread(self.total, self.seconds / self.total, middle, high, highest, self.slowest)

    @property
    def steps_ended(self) -> int:
        """Number of steps that were counted, with those of the warm-up."""
        kept = 0 if self.table is None else self.table.steps_ended
        return max(kept, self.total + WARM_UP if self.total else 0)

    def _quantile(self, share: float) -> float:
        place = int(np.searchsorted(np.cumsum(self.counts), share * self.total))
        return float(FINEST * RATIO ** (place + 0.5))

    def copy(self) -> StepHistory:
        """One that can be added to while this stays."""
        return replace(self, counts=self.counts.copy())

    def save(self, path: Path) -> None:
        """Writes the file in one go. FileError if that fails."""
        if self.table is None:
            return
        arrays: dict[str, Any] = {f"work_{section.name}": values.astype(np.float32) for section, values in self.table.work.items()}
        arrays |= {name: getattr(self.table, name).astype(np.float32) for name in SERIES}
        slow = np.array([(one.step, one.seconds, one.rank, one.lost) for one in self.slowest], np.float64).reshape(-1, 4)
        beside = path.with_suffix(".new")
        try:
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                np.savez(
                    file, ranks=self.table.ranks, steps=self.table.steps, hosts=np.array(self.table.hosts, str),
                    roles=self.table.roles, counts=self.counts, slow=slow,
                    slow_parts=np.array([one.part for one in self.slowest], str),
                    scalars=np.array([self.first, self.last, self.total]), seconds=np.array(self.seconds), **arrays,
                )  # fmt: skip
            os.replace(beside, path)
        except OSError as error:
            raise FileError(str(path), error.strerror or str(error), "a file that can be written") from error


def load_history(path: Path) -> StepHistory | None:
    """What `StepHistory.save` wrote; None where there is no such file, or no whole one."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            series = {name: found[name].astype(np.float64) for name in SERIES}
            work = {Section[name[5:]]: found[name].astype(np.float64) for name in found.files if name.startswith("work_")}
            table = StepTable(
                found["ranks"], found["steps"], tuple(str(one) for one in found["hosts"]), found["roles"], work=work, **series
            )
            slow = [
                SlowStep(int(step), float(seconds), int(rank), str(part), float(lost))
                for (step, seconds, rank, lost), part in zip(found["slow"], found["slow_parts"], strict=True)
            ]
            first, last, total = (int(one) for one in found["scalars"])
            return StepHistory(table, first, last, total, float(found["seconds"]), found["counts"], tuple(slow))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
