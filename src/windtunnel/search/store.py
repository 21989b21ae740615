"""Outcomes of a search on disk, so that a search that was stopped goes on where it was: one Parquet file, one row a predicted
plan."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.search.change import Change
from windtunnel.search.outcome import PlanOutcome
from windtunnel.spec import Job, dump_job

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
