"""The service over PostgreSQL: Debian's server, started by the test on a socket of its own. `make test-postgres` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest

from tests.service.served import ServedProcess
from tests.service.test_faults import KILLS, check_all_counted, kill_and_ask
from windtunnel.service.settings import ServiceSettings
from windtunnel.service.store.backup import back_up, restore_copy
from windtunnel.service.store.database import Database, open_database

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(postgres.MISSING, reason="no PostgreSQL: initdb and pg_ctl are not on the path"),
]
JOB = "llama3-8b-8xh100"


@pytest.fixture
def server() -> Iterator[postgres.PostgresServer]:
    with postgres.PostgresServer() as started:
        yield started


def test_kills_lose_nothing_and_double_nothing(tmp_path: Path, server: postgres.PostgresServer) -> None:
    """Kills of the database itself are among them."""
    options = ["--per-minute", "1000000", "--lease", "2", "--database", server.url]
    with ServedProcess(tmp_path / "kept", options) as service:
        accepted = kill_and_ask(service, 40 * KILLS, KILLS, 2)
        server.kill()
        server.start()
        database = Database(tmp_path / "kept", server.url)
        check_all_counted(database, accepted)
        database.close()


def test_it_answers_and_moves_to_and_from_sqlite(tmp_path: Path, server: postgres.PostgresServer) -> None:
    with ServedProcess(tmp_path / "first", workers=1) as service:
        answer = service.ask("predict", job=JOB)[2]
    back_up(ServiceSettings(str(tmp_path / "first")), tmp_path / "copy.tar")
    moved = ServiceSettings(str(tmp_path / "second"), server.url)
    assert "1 answers" in restore_copy(moved, tmp_path / "copy.tar")
    with ServedProcess(tmp_path / "second", ["--database", server.url], workers=1) as service:
        status, headers, data = service.ask("predict", job=JOB)
        assert (status, data, headers["x-windtunnel-cached"]) == (200, answer, "true")
        assert service.ask("predict", job=JOB, seed=2)[0] == 200
    assert "2 answers" in back_up(moved, tmp_path / "back.tar")
    open_database(tmp_path / "second", server.url).close()
    assert "2 answers" in restore_copy(ServiceSettings(str(tmp_path / "third")), tmp_path / "back.tar")
