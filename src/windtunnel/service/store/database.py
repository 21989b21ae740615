"""The database: SQLite in the folder of the service, or PostgreSQL; its clock, its transactions, and its migrations,
by alembic: from nothing and from any earlier version to this one. A change of a table is a migration in `migrations/versions/`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    text,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from windtunnel.base.errors import FileError, SpecError, WindtunnelError

FILE = "service.db"
BUSY_SECONDS = 30.0
_READS = "windtunnel_reads"
_FULL = ("disk is full", "disk I/O error", "No space left", "could not extend file", "disk full")


class StoreFull(WindtunnelError):
    """The disk of the service is full: nothing was lost, and nothing new can be kept."""


class Database:
    """A database of the service. `url`: of SQLAlchemy, or None for SQLite in `folder`. Not shared between processes."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        self.url = database_url(folder, url)
        self.sqlite = self.url.startswith("sqlite")
        self.engine = _make_engine(self.url, self.sqlite)
        seconds = "(julianday('now') - 2440587.5) * 86400.0" if self.sqlite else "extract(epoch from clock_timestamp())"
        self._now = text(f"select {seconds}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction that may write: it has SQLite's only write lock from its begin on. StoreFull where the disk is."""
        try:
            with self.engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            if any(words in str(error.orig) for words in _FULL):
                raise StoreFull("the disk of the service is full: nothing was lost; free some of it and ask again.") from error
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """One view of the database, which waits for nobody who writes."""
        with self.engine.connect().execution_options(**{_READS: True}) as connection:
            yield connection

    def now(self, connection: Connection) -> float:
        """Seconds since 1970 by the database's clock, which all servers and workers share."""
        return float(connection.execute(self._now).scalar_one())

    def migrate(self) -> None:
        """Brings the tables to this version. FileError for a database that cannot be opened, or of a later version."""

        try:
            with self.transaction() as connection:
                upgrade(connection)
        except OperationalError as error:
            raise FileError(
                "--database", _without_password(self.url), "a database that can be opened", f"{error.orig}".strip()
            ) from error

    def close(self) -> None:
        """Closes its connections."""
        self.engine.dispose()


def database_url(folder: Path, url: str | None) -> str:
    """The URL of SQLAlchemy. SpecError for a database of another kind."""
    if url is None:
        return f"sqlite:///{(folder / FILE).absolute()}"
    allowed = "postgresql://USER:PASSWORD@HOST/NAME, or leave it out for SQLite in --dir"
    try:
        made = make_url(url)
    except ArgumentError as error:
        raise SpecError("--database", "text that is no URL", allowed) from error
    if made.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return made.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    if made.drivername == "sqlite" and made.database:
        return made.render_as_string(hide_password=False)
    raise SpecError("--database", made.drivername, allowed)


def _without_password(url: str) -> str:
    return make_url(url).render_as_string(hide_password=True)


def _make_engine(url: str, sqlite: bool) -> Engine:
    if not sqlite:
        return create_engine(url, pool_pre_ping=True, pool_size=8, max_overflow=8, connect_args={"connect_timeout": 10})
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def settle(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver begins no transaction by itself
        for wish in (
            "journal_mode = WAL",
            "synchronous = FULL",
            f"busy_timeout = {round(BUSY_SECONDS * 1000)}",
            "foreign_keys = ON",
        ):
            connection.execute(f"pragma {wish}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        reads = connection.get_execution_options().get(_READS, False)
        connection.exec_driver_sql("begin" if reads else "begin immediate")

    return engine


def wait_for(database: Database, seconds: float) -> None:
    """Waits until the database answers: a server may start before its PostgreSQL. FileError after `seconds`."""
    until = time.monotonic() + seconds
    while True:
        try:
            with database.engine.connect():
                return
        except (OperationalError, sqlite3.Error) as error:
            if database.sqlite or time.monotonic() > until:
                hint = str(getattr(error, "orig", error)).strip().splitlines()[0]
                raise FileError("--database", _without_password(database.url), "a database that can be opened", hint) from error
            time.sleep(min(1.0, max(0.05, until - time.monotonic())))


def open_database(folder: Path, url: str | None, patience: float = 30.0) -> Database:
    """A database that answers and is of this version; its folder is made, for its owner alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o700)
    except OSError as error:
        raise FileError("--dir", str(folder), "a folder that can be written", f"{error.strerror}.") from error
    database = Database(folder, url)
    wait_for(database, patience)
    database.migrate()
    return database


SCRIPTS = Path(__file__).parent / "migrations"
_LOCK = 0x77696E64
"""Of PostgreSQL: two servers that start together migrate one after the other."""


def upgrade(connection: Connection, revision: str = "head") -> None:
    """To `revision`, in the transaction of `connection`. FileError if the database is of a later version of windtunnel, which this
    one cannot read."""
    settings = Config()
    settings.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(settings)
    if connection.dialect.name != "sqlite":
        connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and found not in {one.revision for one in scripts.walk_revisions()}:
        raise FileError(
            "--database", f"tables of version {found}", "a database of this version or an earlier one",
            "A later windtunnel has used it. Install that one, or restore a backup.",
        )  # fmt: skip
    settings.attributes["connection"] = connection
    command.upgrade(settings, revision)


def revisions() -> list[str]:
    """All versions of the tables, the first one first."""
    settings = Config()
    settings.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    return [one.revision for one in ScriptDirectory.from_config(settings).walk_revisions()][::-1]


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
