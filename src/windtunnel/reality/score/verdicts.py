"""Whether what is called out of memory did fail, and whether what ran is called fitting.

Looked at where a table has runs that failed (column `status`), for the rows of the families that have some. A run may fail for
other reasons than memory, so not every failure should be called out of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import WindtunnelError
from windtunnel.reality.jobs.blanks import Memory
from windtunnel.reality.jobs.cuts import memory_alone
from windtunnel.reality.jobs.job import draft
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.table import TrainingRow

FAILED = ("fail", "oom", "out of memory")
"""Words of a `status` that say that a run did not finish."""


def run_failed(row: TrainingRow) -> bool:
    """Whether the row says that its run failed."""
    return any(word in (row.status or "").lower() for word in FAILED)


@dataclass(frozen=True)
class Verdicts:
    """Runs of a family: those that ran, of which `fit` are called fitting, and those that failed, of which `out` are called out of
    memory; `refused` are no jobs for the model (a plan that does not divide)."""

    family: str
    ran: int
    fit: int
    failed: int
    out: int
    refused: int

    @property
    def called_out(self) -> int:
        """Runs that are called out of memory."""
        return self.out + self.ran - self.fit

    def as_dict(self) -> dict[str, Any]:
        """Also the two shares in percent: of what ran, called fitting; of what is called out of memory, failed."""
        fitting = 100.0 * self.fit / self.ran if self.ran else None
        right = 100.0 * self.out / self.called_out if self.called_out else None
        return dict(vars(self)) | {"ran_called_fitting_pct": fitting, "called_out_failed_pct": right}


def verdicts(rows: Iterable[TrainingRow], memory: Memory = memory_alone) -> tuple[Verdicts, ...]:
    """A line for each family with failed runs. A row with blank columns fits if any of its candidates does."""
    families: dict[str, list[TrainingRow]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    return tuple(_verdicts(name, listed, memory) for name, listed in families.items() if any(map(run_failed, listed)))


def _verdicts(family: str, rows: Sequence[TrainingRow], memory: Memory) -> Verdicts:
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    refused = 0
    for row in rows:
        fits = _fits(row, memory)
        if fits is None:
            refused += 1
        else:
            counts[run_failed(row), fits] += 1
    ran = counts[False, True] + counts[False, False]
    lost = counts[True, True] + counts[True, False]
    return Verdicts(family, ran, counts[False, True], lost, counts[True, False], refused)


def _fits(row: TrainingRow, memory: Memory) -> bool | None:
    drafted = draft(row)
    if isinstance(drafted, Skipped):
        return None
    try:
        return any(memory(job)[1] for job in drafted.jobs)
    except WindtunnelError:
        return None
