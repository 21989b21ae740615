"""Index of a run: files, rings, senders and texts, in SQLite or PostgreSQL through SQLAlchemy. One transaction per segment."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.fleet.batch import RankBeat, RingIdentity
from windtunnel.fleet.collect.registry import Rings, TextTable

META = sa.MetaData()
FILES = sa.Table(
    "wt_files", META,
    sa.Column("path", sa.String(200), primary_key=True), sa.Column("kind", sa.String(16)), sa.Column("segment", sa.BigInteger),
    sa.Column("rows", sa.BigInteger), sa.Column("bytes", sa.BigInteger),
    sa.Column("first_step", sa.BigInteger), sa.Column("last_step", sa.BigInteger),
    sa.Column("first_rank", sa.BigInteger), sa.Column("last_rank", sa.BigInteger),
    sa.Column("first_ns", sa.BigInteger), sa.Column("last_ns", sa.BigInteger),
)  # fmt: skip
BOOTS = sa.Table("wt_boots", META, sa.Column("boot", sa.String(32), primary_key=True), sa.Column("sequence", sa.BigInteger))
RINGS = sa.Table(
    "wt_rings", META,
    sa.Column("number", sa.BigInteger, primary_key=True), sa.Column("ring", sa.String(16), unique=True),
    sa.Column("identity", sa.Text), sa.Column("beat", sa.Text), sa.Column("received_ns", sa.BigInteger),
    sa.Column("texts", sa.Text), sa.Column("open_rows", sa.LargeBinary),
)  # fmt: skip
TEXTS = sa.Table(
    "wt_texts", META, sa.Column("kind", sa.String(8), primary_key=True), sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("value", sa.Text),
)  # fmt: skip
STATE = sa.Table("wt_state", META, sa.Column("name", sa.String(16), primary_key=True), sa.Column("value", sa.BigInteger))


@dataclass(frozen=True)
class RunFile:
    """A Parquet file of the run. Ranges of steps, ranks and times that it covers; -1 if it has none."""

    path: str
    """Relative to the run's folder."""
    kind: str
    """sections, summaries or exchanges."""
    segment: int
    rows: int
    bytes: int
    first_step: int = -1
    last_step: int = -1
    first_rank: int = -1
    last_rank: int = -1
    first_ns: int = -1
    last_ns: int = -1


@dataclass
class CompactedSegment:
    """Result of a compaction: what one transaction adds to the index."""

    segment: int
    files: list[RunFile] = field(default_factory=list)
    boots: dict[bytes, int] = field(default_factory=dict)
    beats: dict[str, tuple[RankBeat, int]] = field(default_factory=dict)
    """Ring → its last heartbeat and when it arrived."""
    open_rows: dict[str, bytes] = field(default_factory=dict)
    """Ring → its open rows, int64 [columns, n]."""


@dataclass(frozen=True)
class IndexState:
    """Contents of the index: rings, files, open rows by ring, and the last segment that it includes."""

    rings: Rings
    files: Sequence[RunFile]
    open_rows: Mapping[str, bytes]
    compacted: int


class RunIndex:
    """The index at a database URL. With `create` its writer; otherwise a reader, which writes nothing into the folder of an SQLite
    file, also where it could. FileError if it cannot be opened."""

    def __init__(self, url: str, *, create: bool) -> None:
        self.url = url
        try:
            where = sa.make_url(url)
            file = where.database if where.get_backend_name() == "sqlite" else None
            if file and not create:
                self.engine = sa.create_engine(url, creator=partial(_open_to_read, Path(file)), poolclass=sa.NullPool)
            else:
                self.engine = sa.create_engine(url)
            if create and file:
                Path(file).touch(mode=0o600)  # its journals get the same mode
            if create and self.engine.dialect.name == "sqlite":
                sa.event.listen(self.engine, "connect", _configure_sqlite)
            if create:
                META.create_all(self.engine)
            with self.engine.connect() as connection:
                connection.execute(sa.select(STATE)).all()
        except (sa.exc.SQLAlchemyError, ImportError, OSError) as error:
            reason = str(error).splitlines()[0][:200]
            raise FileError(url, reason, "a database that SQLAlchemy can open, such as sqlite:///index.db") from error

    def read(self) -> IndexState:
        """The whole index at one moment."""
        rings = Rings()
        with self.engine.connect() as connection:
            state = {name: value for name, value in connection.execute(sa.select(STATE.c.name, STATE.c.value))}
            files = [RunFile(*row) for row in connection.execute(sa.select(FILES).order_by(FILES.c.path))]
            for kind, _, value in connection.execute(sa.select(TEXTS).order_by(TEXTS.c.kind, TEXTS.c.number)):
                table = _table(rings, kind)
                table.numbers[value] = len(table.values)
                table.values.append(value)
            open_rows = {}
            for row in connection.execute(sa.select(RINGS).order_by(RINGS.c.number)):
                identity = msgspec.json.decode(row.identity, type=RingIdentity)
                ring = rings.add(row.ring, identity, msgspec.json.decode(row.beat, type=RankBeat), row.received_ns)
                ring.names, ring.groups, ring.lines = msgspec.json.decode(row.texts)
                open_rows[row.ring] = row.open_rows or b""
            for boot, sequence in connection.execute(sa.select(BOOTS)):
                rings.sequences[bytes.fromhex(boot)] = sequence
        return IndexState(rings, files, open_rows, state.get("compacted", 0))

    def add(self, what: CompactedSegment, rings: Rings) -> None:
        """Adds a segment in one transaction. `rings` supplies numbers and texts, and may know more than the segment."""
        with self.engine.begin() as connection:
            if what.files:
                connection.execute(sa.insert(FILES), [vars(file) for file in what.files])
            boots = {boot.hex(): sequence for boot, sequence in what.boots.items()}
            _upsert(connection, BOOTS, "boot", [{"boot": boot, "sequence": sequence} for boot, sequence in boots.items()])
            for kind in ("name", "group", "fact"):
                known = connection.scalar(sa.select(sa.func.count()).select_from(TEXTS).where(TEXTS.c.kind == kind)) or 0
                new = [
                    {"kind": kind, "number": number, "value": value}
                    for number, value in enumerate(_table(rings, kind).values[known:], known)
                ]
                if new:
                    connection.execute(sa.insert(TEXTS), new)
            _upsert(connection, RINGS, "number", [_ring_row(what, rings, key) for key in what.beats])
            _upsert(connection, STATE, "name", [{"name": "compacted", "value": what.segment}])

    def last_segment(self) -> int:
        """Number of the last segment in the index."""
        with self.engine.connect() as connection:
            return connection.scalar(sa.select(STATE.c.value).where(STATE.c.name == "compacted")) or 0

    def files(self) -> list[RunFile]:
        """The run's files."""
        with self.engine.connect() as connection:
            return [RunFile(*row) for row in connection.execute(sa.select(FILES).order_by(FILES.c.path))]

    def remove_files(self, paths: Sequence[str]) -> None:
        """Removes files from the index."""
        if paths:
            with self.engine.begin() as connection:
                connection.execute(sa.delete(FILES).where(FILES.c.path.in_(list(paths))))

    def close(self) -> None:
        self.engine.dispose()


def _open_to_read(file: Path) -> sqlite3.Connection:
    """A connection that only reads. A journal beside the file means that its writer lives or was killed; without one nobody writes,
    and SQLite, which would make a journal to read, is told so. Each query connects anew, as a writer may come in between."""
    still = "" if file.with_name(f"{file.name}-wal").exists() else "&immutable=1"
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro{still}", uri=True, timeout=10.0, check_same_thread=False)


def _configure_sqlite(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA busy_timeout=10000")


def _table(rings: Rings, kind: str) -> TextTable:
    return {"name": rings.names, "group": rings.groups}.get(kind, rings.facts)


def _ring_row(what: CompactedSegment, rings: Rings, key: str) -> dict[str, Any]:
    ring, (beat, received) = rings.by_key[key], what.beats[key]
    return {
        "number": ring.number, "ring": key, "identity": msgspec.json.encode(ring.identity).decode(),
        "beat": msgspec.json.encode(beat).decode(), "received_ns": received,
        "texts": msgspec.json.encode([ring.names, ring.groups, ring.lines]).decode(), "open_rows": what.open_rows.get(key, b""),
    }  # fmt: skip


def _upsert(connection: sa.Connection, table: sa.Table, key: str, rows: Sequence[dict[str, Any]]) -> None:
    """Inserts rows and replaces those with the same key. Deleting first works with every database."""
    for at in range(0, len(rows), 500):
        part = list(rows[at : at + 500])
        connection.execute(sa.delete(table).where(table.c[key].in_([row[key] for row in part])))
        connection.execute(sa.insert(table), part)


def default_url(folder: Path) -> str:
    """URL of the index in the run's own folder."""
    return f"sqlite:///{folder / 'index.db'}"
