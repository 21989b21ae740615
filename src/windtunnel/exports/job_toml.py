"""Our own job file, with nothing left to the catalogue."""

from __future__ import annotations

from windtunnel.exports.exporters import Written
from windtunnel.spec import Job, dump_job


def export(job: Job, options: dict[str, str]) -> Written:
    """TOML."""
    return Written({f"{job.name}.toml": dump_job(job)})
