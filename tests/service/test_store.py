"""Migrations from nothing and from every version; a copy of a service, and a service from it."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, select, text

from tests.service.served import ServedProcess
from windtunnel.base.errors import FileError, SpecError
from windtunnel.service.settings import ServiceSettings
from windtunnel.service.store.backup import back_up, restore_copy
from windtunnel.service.store.blobs import Blobs
from windtunnel.service.store.database import Database, database_url, jobs, meta, open_database, revisions, upgrade
from windtunnel.service.store.shelf import AuditRow, Shelf

JOB = "llama3-8b-8xh100"


@pytest.mark.parametrize("first", [None, *revisions()])
def test_migrations_lead_to_the_tables(first: str | None, tmp_path: Path) -> None:
    """From nothing, and from every version with a row in it."""
    database = Database(tmp_path)
    if first is not None:
        with database.transaction() as connection:
            upgrade(connection, first)
            connection.execute(text("insert into active (key, job) values ('k', 'j')"))
    database.migrate()
    database.migrate()
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), meta) == []
        assert connection.execute(text("select count(*) from active")).scalar_one() == (0 if first is None else 1)
    database.close()


def test_a_database_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    open_database(tmp_path, None).close()
    with closing(sqlite3.connect(tmp_path / "service.db")) as connection:
        connection.execute("update alembic_version set version_num = '9999'")
        connection.commit()
    with pytest.raises(FileError, match="A later windtunnel has used it"):
        open_database(tmp_path, None)


@pytest.mark.parametrize("url", ["mysql://x/y", "no url", "oracle://", "sqlite://"])
def test_other_databases_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="postgresql://"):
        database_url(tmp_path, url)


def test_a_copy_is_the_same_service(tmp_path: Path) -> None:
    """Made while the service runs; answers are given again from it, without being worked out."""
    with ServedProcess(tmp_path / "first", workers=1) as service:
        service.ready()
        answers = {seed: service.ask("predict", job=JOB, seed=seed, files={"note": "x"})[2] for seed in (1, 2)}
        assert "2 answers" in back_up(ServiceSettings(str(tmp_path / "first")), tmp_path / "copy.tar")
    assert (tmp_path / "copy.tar").stat().st_mode & 0o777 == 0o600
    assert "2 answers and 2 jobs" in restore_copy(ServiceSettings(str(tmp_path / "second")), tmp_path / "copy.tar")
    with ServedProcess(tmp_path / "second", workers=1) as service:
        for seed, answer in answers.items():
            status, headers, data = service.ask("predict", job=JOB, seed=seed, files={"note": "x"})
            assert (status, data, headers["x-windtunnel-cached"]) == (200, answer, "true")
    with pytest.raises(FileError, match="an empty --dir"):
        restore_copy(ServiceSettings(str(tmp_path / "second")), tmp_path / "copy.tar")


@pytest.mark.parametrize("version", revisions()[:-1])
def test_a_service_starts_on_the_database_of_an_earlier_version(version: str, tmp_path: Path) -> None:
    """With answers, jobs and audit rows in it: all are kept, and answers are given again without being worked out."""
    folder = tmp_path / "service"
    with ServedProcess(folder, workers=1) as service:
        service.ready()
        answer = service.ask("predict", job=JOB, files={"note": "x"})[2]
    asked = _as_in_version(version, folder / "service.db", tmp_path)
    with ServedProcess(folder, workers=1) as service:
        status, headers, data = service.ask("predict", job=JOB, files={"note": "x"})
        assert (status, data, headers["x-windtunnel-cached"]) == (200, answer, "true")
    with closing(sqlite3.connect(folder / "service.db")) as connection:
        assert connection.execute("select version_num from alembic_version").fetchone()[0] == revisions()[-1]
        assert connection.execute("select count(*) from audit").fetchone()[0] > asked > 0
        assert connection.execute("select count(*) from jobs where state = 'done'").fetchone()[0] >= 1


def _as_in_version(version: str, path: Path, folder: Path) -> int:
    """Puts the rows of a database into one of an earlier version, as far as it has their columns; its number of audit rows."""
    (folder / "earlier").mkdir()
    earlier = Database(folder / "earlier")
    with earlier.transaction() as connection:
        upgrade(connection, version)
    earlier.close()
    with closing(sqlite3.connect(folder / "earlier" / "service.db", isolation_level=None)) as connection:
        connection.execute("attach ? as later", (str(path),))
        tables = [name for (name,) in connection.execute("select name from main.sqlite_master where type = 'table'")]
        for table in set(tables) - {"alembic_version", "sqlite_sequence"}:
            columns = ", ".join(row[1] for row in connection.execute(f"pragma main.table_info({table})"))
            connection.execute(f"delete from main.{table}")
            connection.execute(f"insert into main.{table} ({columns}) select {columns} from later.{table}")
        count = int(connection.execute("select count(*) from main.audit").fetchone()[0])
        connection.execute("pragma wal_checkpoint(truncate)")
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    (folder / "earlier" / "service.db").rename(path)
    return count


def test_jobs_that_ran_wait_again_in_a_copy(tmp_path: Path) -> None:
    database = open_database(tmp_path / "first", None)
    row = {"id": "a", "number": 1, "key": "k", "verb": "catalog", "asker": "x", "short": 1, "attempt": 1, "crashes": 0, "fence": 1}
    question = json.dumps({"words": [], "files": {}, "outputs": {}, "json": True, "command": ""})
    with database.transaction() as connection:
        connection.execute(
            insert(jobs).values(
                **row, question=question, state="running", owner="w", completions=0, cancel=False, log="", created=1.0
            )
        )
    Shelf(database, Blobs(tmp_path / "first" / "blobs")).note([AuditRow(1.0, "ann", "POST /x", "::1", 200)])
    back_up(ServiceSettings(str(tmp_path / "first")), tmp_path / "copy.tar")
    with tarfile.open(tmp_path / "copy.tar") as tar:
        assert {member.mode for member in tar} == {0o600}  # answers are for their owner alone
    restore_copy(ServiceSettings(str(tmp_path / "second")), tmp_path / "copy.tar")
    with Database(tmp_path / "second").reading() as connection:
        assert connection.execute(select(jobs.c.state, jobs.c.owner)).one() == ("queued", None)
        assert connection.execute(text("select who from audit")).scalar_one() == "ann"


def test_a_copy_that_is_damaged_is_refused(tmp_path: Path) -> None:
    settings = ServiceSettings(str(tmp_path / "first"))
    digest = Blobs(settings.blobs).put(b"whole")
    open_database(tmp_path / "first", None).close()
    back_up(settings, tmp_path / "copy.tar")
    (tmp_path / "text.tar").write_text("no tar")
    (tmp_path / "other").write_bytes(b"damaged")
    with tarfile.open(tmp_path / "damaged.tar", "w") as tar, tarfile.open(tmp_path / "copy.tar") as good:
        tar.addfile(good.getmember("rows.json"), good.extractfile("rows.json"))
        tar.add(tmp_path / "other", f"blobs/{digest}")
    for name in ("text.tar", "missing.tar", "damaged.tar"):
        with pytest.raises(FileError, match="--restore"):
            restore_copy(ServiceSettings(str(tmp_path / f"from-{name}")), tmp_path / name)
