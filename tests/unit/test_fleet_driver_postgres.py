"""The driver's state in PostgreSQL, whose server ends in between."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from tests.faults.recovery.kept import KeptJob
from tests.faults.soak.__main__ import PRELOAD, SCRIPT, strike
from tests.postgres import MISSING, PostgresServer
from windtunnel.base.errors import FileError
from windtunnel.fleet.driver.serve import DriverStore, FencedError

pytestmark = pytest.mark.skipif(MISSING, reason="PostgreSQL is not installed")


def test_a_server_that_is_gone_is_waited_for() -> None:
    pytest.importorskip("psycopg")
    with PostgresServer() as server:
        store, waited = DriverStore(server.url, "one"), []
        store.on_reconnect = lambda: waited.append(True)
        fence = store.acquire("a", 1000.0, 100.0)
        assert fence == 1
        store.put(fence, "state", {"x": 1})
        server.kill()
        back = threading.Thread(target=lambda: (time.sleep(1.0), server.start()))
        back.start()
        store.put(fence, "state", {"x": 2})
        back.join()
        assert waited
        assert store.get("state") == {"x": 2}
        other = DriverStore(server.url, "another job")
        assert other.get("state") is None
        assert other.acquire("b", 3.0, 100.0) == 1
        assert store.acquire("b", 3.0, 2000.0) == 2
        with pytest.raises(FencedError):
            store.put(fence, "state", {"x": 3})
        impatient = DriverStore(server.url, "one", patience=0.5)
        server.kill()
        with pytest.raises(FileError, match="a database that answers"):
            impatient.get("state")
        server.start()
        for one in (store, other, impatient):
            one.close()


def test_a_job_outlives_its_database(tmp_path: Path) -> None:
    """The database is gone for some seconds, longer than an agent may be silent; then a rank dies. Agents are not suspected."""
    pytest.importorskip("psycopg")
    words = ("--step", "0.02", "--apart", "50", "--save", "0.0")
    with PostgresServer() as server, KeptJob(tmp_path / "job", *words, script=SCRIPT, preload=PRELOAD, store=server.url) as job:
        job.drive()
        assert job.until(job.training)
        server.kill()
        time.sleep(4.0)
        server.start()
        assert job.until(job.training)
        strike(job, "crash", random.Random(1).randrange(4))
        assert job.until(lambda: len(job.incidents()) > 0 and job.training())
        assert [(one.what, one.outcome) for one in job.incidents()] == [("crash", "recovered")]
        job.kill_driver()
        job.drive()
        assert job.until(lambda: any("driver is back" in line for line in job.said()))
        assert job.until(job.training)
        assert job.attempts() == 2
