"""Persistent state of a driver in SQLite or PostgreSQL: who owns the job, and its state.

If the database server is unavailable, the store waits for it: no order is given that a later driver would not know of.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from windtunnel.base.errors import FileError, WindtunnelError

META = sa.MetaData()
LEASE = sa.Table(
    "wt_lease", META, sa.Column("job", sa.String(200), primary_key=True), sa.Column("owner", sa.String(80)),
    sa.Column("fence", sa.BigInteger), sa.Column("expires", sa.Float),
)  # fmt: skip
FACTS = sa.Table(
    "wt_driver", META, sa.Column("job", sa.String(200), primary_key=True), sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.Text),
)  # fmt: skip
PATIENCE = 300.0
"""Seconds that a database server may be unavailable."""
_GONE = (sa.exc.OperationalError, sa.exc.InterfaceError)
_T = TypeVar("_T")


class FencedError(WindtunnelError):
    """Another driver has taken over the job: this one must stop."""


class DriverStore:
    """The database at a SQLAlchemy URL, which several jobs may share. FileError if it cannot be opened or stays unavailable for
    `patience` seconds.
    """

    def __init__(self, url: str, job: str = "job", patience: float = PATIENCE) -> None:
        self.url, self.job, self.patience = url, job, patience
        self.on_reconnect: Callable[[], object] = lambda: None  # called after an outage, during which this thread was blocked
        try:
            self.engine = sa.create_engine(url, pool_pre_ping=True)
            if self.engine.dialect.name == "sqlite":
                self.patience = 0.0  # a file: waiting would not help
                sa.event.listen(self.engine, "connect", _configure_sqlite)
                sa.event.listen(self.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
            META.create_all(self.engine)
        except (sa.exc.SQLAlchemyError, ImportError) as error:
            raise self._to_file_error(error, "a database that SQLAlchemy can open, such as sqlite:///driver.db") from error

    def acquire(self, owner: str, seconds: float, now: float) -> int | None:
        """Takes the lease until `now + seconds` (unix) and returns the next fencing number; None while another owner's lease has
        not expired.
        """

        def take(connection: sa.Connection) -> int | None:
            row = connection.execute(sa.select(LEASE).where(LEASE.c.job == self.job).with_for_update()).first()
            if row is not None and row.expires > now and row.owner != owner:
                return None
            fence = 1 if row is None else int(row.fence) + 1
            values = {"owner": owner, "fence": fence, "expires": now + seconds}
            if row is None:
                connection.execute(sa.insert(LEASE).values(job=self.job, **values))
            else:
                connection.execute(sa.update(LEASE).where(LEASE.c.job == self.job).values(**values))
            return fence

        return self._transact(take)

    def renew(self, fence: int, seconds: float, now: float) -> bool:
        """Extends the lease; False if another driver holds it."""
        mine = (LEASE.c.job == self.job) & (LEASE.c.fence == fence)
        prolong = sa.update(LEASE).where(mine).values(expires=now + seconds)
        return self._transact(lambda connection: connection.execute(prolong).rowcount == 1)

    def release(self, fence: int) -> None:
        """Releases the lease; no effect if another driver holds it."""
        self.renew(fence, -1.0, 0.0)

    def put(self, fence: int, name: str, value: Any) -> None:
        """Stores plain data. Raises FencedError, and writes nothing, if the fencing number is not the newest."""
        text = msgspec.json.encode(value).decode()

        def keep(connection: sa.Connection) -> None:
            newest = connection.scalar(sa.select(LEASE.c.fence).where(LEASE.c.job == self.job).with_for_update())
            if newest != fence:
                raise FencedError(f"driver {fence} has lost the job to driver {newest}")
            connection.execute(sa.delete(FACTS).where((FACTS.c.job == self.job) & (FACTS.c.name == name)))
            connection.execute(sa.insert(FACTS).values(job=self.job, name=name, value=text))

        self._transact(keep)

    def get(self, name: str, kind: Any = Any) -> Any:
        """The value that was stored last under `name`; None if there is none."""
        fact = sa.select(FACTS.c.value).where((FACTS.c.job == self.job) & (FACTS.c.name == name))
        text: str | None = self._transact(lambda connection: connection.scalar(fact))
        return None if text is None else msgspec.json.decode(text, type=kind)

    def close(self) -> None:
        self.engine.dispose()

    def _transact(self, work: Callable[[sa.Connection], _T]) -> _T:
        """Runs `work` in a transaction and retries until the server accepts it. It may run twice: the server's answer can be
        lost.
        """
        until, gone = time.monotonic() + self.patience, False
        while True:
            try:
                with self.engine.begin() as connection:
                    answer = work(connection)
                break
            except _GONE as error:
                if time.monotonic() >= until:
                    raise self._to_file_error(error, "a database that answers") from error
                gone = True
                time.sleep(0.2)
        if gone:
            self.on_reconnect()
        return answer

    def _to_file_error(self, error: Exception, allowed: str) -> FileError:
        try:
            url = sa.make_url(self.url).render_as_string(hide_password=True)
        except sa.exc.ArgumentError:
            url = self.url
        return FileError(url, str(error).splitlines()[0][:200], allowed)


def _configure_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = (
        None  # transactions begin with BEGIN IMMEDIATE above, so that readers and writers do not interleave
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA busy_timeout=10000")
