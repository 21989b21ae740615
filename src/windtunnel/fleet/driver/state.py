"""What a driver must not forget, in SQLite or PostgreSQL: who owns the job, and where the job stands."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from windtunnel.base.errors import FileError, WindtunnelError

META = sa.MetaData()
LEASE = sa.Table(
    "wt_lease", META, sa.Column("name", sa.String(16), primary_key=True), sa.Column("owner", sa.String(80)),
    sa.Column("fence", sa.BigInteger), sa.Column("expires", sa.Float),
)  # fmt: skip
FACTS = sa.Table("wt_driver", META, sa.Column("name", sa.String(32), primary_key=True), sa.Column("value", sa.Text))
_NAME = "job"


class Fenced(WindtunnelError):
    """Another driver has taken the job over: this one must stop."""


class DriverStore:
    """The database at a SQLAlchemy URL. FileError if it cannot be opened."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self.engine = sa.create_engine(url)
            if self.engine.dialect.name == "sqlite":
                sa.event.listen(self.engine, "connect", _of_sqlite)
                sa.event.listen(self.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
            META.create_all(self.engine)
        except (sa.exc.SQLAlchemyError, ImportError) as error:
            reason = str(error).splitlines()[0][:200]
            raise FileError(url, reason, "a database that SQLAlchemy can open, such as sqlite:///driver.db") from error

    def acquire(self, owner: str, seconds: float, now: float) -> int | None:
        """Takes the lease until `now + seconds` (unix) and returns the next fencing number; None while another owner's has not
        expired."""
        with self.engine.begin() as connection:
            row = connection.execute(sa.select(LEASE).where(LEASE.c.name == _NAME).with_for_update()).first()
            if row is not None and row.expires > now and row.owner != owner:
                return None
            fence = 1 if row is None else int(row.fence) + 1
            values = {"owner": owner, "fence": fence, "expires": now + seconds}
            if row is None:
                connection.execute(sa.insert(LEASE).values(name=_NAME, **values))
            else:
                connection.execute(sa.update(LEASE).where(LEASE.c.name == _NAME).values(**values))
            return fence

    def renew(self, fence: int, seconds: float, now: float) -> bool:
        """Prolongs the lease; False where another driver has it."""
        mine = (LEASE.c.name == _NAME) & (LEASE.c.fence == fence)
        with self.engine.begin() as connection:
            return connection.execute(sa.update(LEASE).where(mine).values(expires=now + seconds)).rowcount == 1

    def release(self, fence: int) -> None:
        """Gives the lease back; nothing where another driver has it."""
        self.renew(fence, -1.0, 0.0)

    def put(self, fence: int, name: str, value: Any) -> None:
        """Keeps plain data. Raises Fenced, and writes nothing, where the fencing number is not the newest."""
        text = msgspec.json.encode(value).decode()
        with self.engine.begin() as connection:
            newest = connection.scalar(sa.select(LEASE.c.fence).where(LEASE.c.name == _NAME).with_for_update())
            if newest != fence:
                raise Fenced(f"driver {fence} has lost the job to driver {newest}")
            connection.execute(sa.delete(FACTS).where(FACTS.c.name == name))
            connection.execute(sa.insert(FACTS).values(name=name, value=text))

    def get(self, name: str, kind: Any = Any) -> Any:
        """What was put last; None without."""
        with self.engine.connect() as connection:
            text = connection.scalar(sa.select(FACTS.c.value).where(FACTS.c.name == name))
        return None if text is None else msgspec.json.decode(text, type=kind)

    def close(self) -> None:
        self.engine.dispose()


def _of_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # SQLAlchemy's own "begin" below decides, so that readers and writers do not cross
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA busy_timeout=10000")
