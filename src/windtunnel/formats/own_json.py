"""Our own job file as JSON."""

from __future__ import annotations

import tomllib

from windtunnel.formats.exporters import Written
from windtunnel.report.json import dumps
from windtunnel.spec import Job, dump_job


def export(job: Job, options: dict[str, str]) -> Written:
    """JSON with the keys of the TOML."""
    return Written({f"{job.name}.json": dumps(tomllib.loads(dump_job(job))) + "\n"})
