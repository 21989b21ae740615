"""What a search keeps of a predicted plan: a few numbers that can be sent between processes and stored.

Outcomes of a search on disk, so that a search that was stopped goes on where it was: one Parquet file, one row a predicted
plan.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, WindtunnelError
from windtunnel.memory import memory_of
from windtunnel.search.change import Change, facts_of
from windtunnel.spec import Job, check, dump_job
from windtunnel.workload import build


@dataclass(frozen=True)
class PlanOutcome:
    """A tried plan. Seconds, bytes, US dollars, joules; `missing` bytes are beyond the GPU's memory less the margin.

    `refused`: why the plan contradicts itself; then all numbers are 0. A plan that does not fit is predicted only if asked for.
    `breakdown`: parts of the step, as in a prediction.
    """

    step_time_s: float = 0.0
    tokens_per_s: float = 0.0
    mfu: float = 0.0
    memory: float = 0.0
    missing: float = 0.0
    cost_per_step: float | None = None
    energy_j_per_step: float | None = None
    breakdown: Mapping[str, float] | None = None
    refused: str = ""

    @property
    def fits(self) -> bool:
        return not self.refused and self.missing <= 0.0


class Trial(NamedTuple):
    """A plan to predict: the `number` by which the caller knows it, its frame, its change, and whether to predict it if it does not
    fit."""

    number: int
    frame: int
    change: Change
    anyway: bool = False


def outcome_of(job: Job, change: Change, margin: float = 0.0, anyway: bool = False) -> PlanOutcome:
    """The outcome of a changed job; `margin`: share of the usable memory to keep free. `anyway`: predict it even if it does not
    fit."""
    try:
        tried = check(change.apply_unchecked(job))
        workload = build(tried)
        stages = memory_of(tried, workload)
        missing = max(stage.missing + margin * stage.usable for stage in stages)
        fullest = max(stage.total for stage in stages)
        if missing > 0.0 and not anyway:
            return PlanOutcome(memory=fullest, missing=missing)
        found = facts_of(tried, workload)
    except WindtunnelError as error:
        return PlanOutcome(refused=str(error).split("\n")[0])
    return PlanOutcome(
        found.step_time_s,
        found.tokens_per_s,
        found.mfu,
        fullest,
        missing,
        found.cost_per_step,
        found.energy_j_per_step,
        found.breakdown,
    )


BETWEEN = 5.0
"""Seconds between writes."""

NUMBERS = ("step_time_s", "tokens_per_s", "mfu", "memory", "missing", "cost_per_step", "energy_j_per_step")


class Store:
    """Outcomes by frame and change. `path`: a Parquet file, which may exist."""

    def __init__(self, path: str | Path, frames: Sequence[Job], margin: float) -> None:
        self.path, self.margin = Path(path), margin
        self.digests = [_digest(job, margin) for job in frames]
        self.known: dict[tuple[str, str], PlanOutcome] = {}
        self.written = time.monotonic()
        if self.path.exists():
            self._read()

    def get(self, frame: int, change: Change) -> PlanOutcome | None:
        return self.known.get((self.digests[frame], _key(change)))

    def add(self, frame: int, change: Change, outcome: PlanOutcome) -> None:
        self.known[self.digests[frame], _key(change)] = outcome
        if time.monotonic() - self.written > BETWEEN:
            self.write()

    def write(self) -> None:
        """Writes all outcomes; the old file stays until the new one is whole."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [
            {"job": job, "plan": plan}
            | {name: getattr(outcome, name) for name in NUMBERS}
            | {"refused": outcome.refused, "breakdown": json.dumps(outcome.breakdown)}
            for (job, plan), outcome in self.known.items()
        ]
        columns = [("job", pa.string()), ("plan", pa.string()), *((name, pa.float64()) for name in NUMBERS)]
        schema = pa.schema([*columns, ("refused", pa.string()), ("breakdown", pa.string())])
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            pq.write_table(pa.Table.from_pylist(rows, schema), beside)
            os.replace(beside, self.path)
        except OSError as error:
            raise FileError("--out", str(self.path), "a file that can be written", f"{error.strerror}.") from error
        self.written = time.monotonic()

    def _read(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(self.path)
            rows = table.select(["job", "plan", *NUMBERS, "refused", "breakdown"]).to_pylist()
        except (OSError, pa.ArrowException, KeyError) as error:
            reason = str(error).split("\n")[0]
            raise FileError("--out", str(self.path), "a file that `windtunnel search` wrote, or a new one", f"{reason}.") from error
        for row in rows:
            job, plan, breakdown = row.pop("job"), row.pop("plan"), json.loads(row.pop("breakdown"))
            self.known[job, plan] = PlanOutcome(**row, breakdown=breakdown)


def _key(change: Change) -> str:
    return " ".join(sorted(change.sets))


def _digest(job: Job, margin: float) -> str:
    return hashlib.sha256(f"{dump_job(job)}|{margin}".encode()).hexdigest()[:16]
