"""Collector: one process per job that accepts batches over HTTP, makes them durable before it acknowledges, stores them and answers
queries.
"""

from __future__ import annotations

from windtunnel.fleet.collect.store import RunStore, open_run

__all__ = ["RunStore", "open_run"]
