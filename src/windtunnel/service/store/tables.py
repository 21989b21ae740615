"""The tables of the service. A change of one is a migration in `migrations/versions/`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text

meta = MetaData()
_ID = BigInteger().with_variant(Integer, "sqlite")

jobs = Table(
    "jobs",
    meta,
    Column("id", String(32), primary_key=True),
    Column("number", _ID, nullable=False, unique=True),
    Column("key", String(64), nullable=False),
    Column("verb", String(64), nullable=False),
    Column("question", Text, nullable=False),
    Column("asker", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("short", Integer, nullable=False),
    Column("owner", String(64)),
    Column("lease_until", Float),
    Column("attempt", Integer, nullable=False),
    Column("crashes", Integer, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("completions", Integer, nullable=False),
    Column("cancel", Boolean, nullable=False),
    Column("progress", Float),
    Column("doing", Text),
    Column("log", Text, nullable=False),
    Column("error", Text),
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("ended", Float),
    Index("jobs_waiting", "state", "short", "number"),
    Index("jobs_key", "key"),
    Index("jobs_asker", "asker", "ended"),
)
"""Questions that were accepted. `number` orders them; `fence` counts claims, so that a worker that lost its lease cannot end a job;
`completions` counts how often its answer was kept, which is once."""

active = Table("active", meta, Column("key", String(64), primary_key=True), Column("job", String(32), nullable=False))
"""The job of each question that waits or runs: the same question is one job."""

counters = Table("counters", meta, Column("name", String(32), primary_key=True), Column("value", _ID, nullable=False))

answers = Table(
    "answers",
    meta,
    Column("key", String(64), primary_key=True),
    Column("verb", String(64), nullable=False),
    Column("command", Text, nullable=False),
    Column("version", String(32), nullable=False),
    Column("body", String(64), nullable=False),
    Column("media", String(64), nullable=False),
    Column("artefacts", Text, nullable=False),
    Column("log", Text, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("bytes", _ID, nullable=False),
    Column("created", Float, nullable=False),
    Column("used", Float, nullable=False),
    Index("answers_used", "used"),
)
"""Kept answers, by the key of their question. `body` and `artefacts` name blobs by their hash."""

audit = Table(
    "audit",
    meta,
    Column("number", _ID, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("who", String(64), nullable=False),
    Column("what", String(200), nullable=False),
    Column("came_from", String(64), nullable=False),
    Column("status", Integer, nullable=False),
    Column("seconds", Float),
    Index("audit_at", "at"),
)
"""Who asked what, when, from where, what came of it, and how long that took."""

token_uses = Table("token_uses", meta, Column("token", String(64), primary_key=True), Column("used", Float, nullable=False))
"""When each token, by its hash, was last used."""
