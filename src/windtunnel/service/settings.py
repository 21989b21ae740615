"""What a service is told when it starts: where it keeps things, its limits. Bytes and seconds."""

from __future__ import annotations

import json
from pathlib import Path

from windtunnel.base.dataclasses import asdict, dataclass, fields


@dataclass(frozen=True)
class ServiceSettings:
    """Limits of a service. Each question runs in a process of its own under the `job_` ones."""

    folder: str
    """Where SQLite, blobs and scratch folders are."""
    database: str | None = None
    """URL of a PostgreSQL; None: SQLite in the folder."""
    workers: int = 2
    ray: str | None = None
    """Address of a Ray cluster that works instead of processes of this machine."""
    job_memory: int = 4 << 30
    """Bytes that a question may allocate."""
    job_seconds: float = 3600.0
    """Longest time of a question."""
    job_file: int = 1 << 30
    """Largest file that a question may write: its answer, an artefact, its log."""
    job_cores: int = 1
    """Processes or threads of a question that can use several."""
    wait_seconds: float = 5.0
    """How long a request waits for its answer, if it does not say."""
    most_wait: float = 60.0
    body_bytes: int = 64 << 20
    """Largest body of a request."""
    per_minute: int = 1200
    """Requests of one token, or address, in a minute."""
    of_one: int = 5000
    """Questions of one token that wait or run."""
    of_all: int = 20000
    seconds_a_day: float | None = None
    """Work of the questions of one token, or person, in 24 hours; None: no limit."""
    keep_bytes: int = 10_000_000_000
    """Answers that are kept; those that were not used for longest go first."""
    keep_seconds: float = 90 * 86400.0
    audit_seconds: float = 365 * 86400.0
    lease: float = 15.0
    """How long a worker that says nothing keeps a question."""

    @property
    def blobs(self) -> Path:
        return Path(self.folder) / "blobs"

    @property
    def scratch(self) -> Path:
        return Path(self.folder) / "scratch"

    def to_json(self) -> str:
        """One line, for a worker."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, line: str) -> ServiceSettings:
        """What `to_json` wrote."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in json.loads(line).items() if key in known})
