"""One process a job: takes batches over HTTP, makes them durable before it says so, stores them, answers questions."""

from __future__ import annotations

from windtunnel.fleet.collect.store import RunStore, open_run

__all__ = ["RunStore", "open_run"]
