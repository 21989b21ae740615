"""Our own job file as JSON."""

from __future__ import annotations

import tomllib

from windtunnel.base.json_text import json_text
from windtunnel.exports.exporters import Written
from windtunnel.spec import Job, dump_job


def export(job: Job, options: dict[str, str]) -> Written:
    """JSON with the keys of the TOML."""
    return Written({f"{job.name}.json": json_text(tomllib.loads(dump_job(job))) + "\n"})
