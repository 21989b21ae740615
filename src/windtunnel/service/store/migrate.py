"""Migrations of the database, by alembic: from nothing and from any earlier version to this one."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from windtunnel.base.errors import FileError

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
