"""Cancel, restart, limits of a question, kills of everything, a full disk: no accepted question is lost, and none counts twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.service.served import PATIENCE, ServedProcess, error_of
from windtunnel.service.settings import ServiceSettings
from windtunnel.service.store.database import Database, jobs
from windtunnel.service.store.queue import JobQueue

JOB = "llama3-8b-8xh100"
LONG: dict[str, Any] = {"fabric": "fat_tree:k=16,link=400Gb/s", "flows": "all_to_all:bytes=1GiB", "network": "packet"}
"""A question that takes minutes."""


def submitted(service: ServedProcess, verb: str, **arguments: Any) -> str:
    status, _, data = service.ask(verb, wait=0, **arguments)
    assert status == 202, data
    return str(json.loads(data)["id"])


def test_a_long_question_is_a_job_with_progress_that_can_be_cancelled(service: ServedProcess) -> None:
    job = submitted(service, "flows", **LONG)
    service.until(job, "running")
    until = time.monotonic() + PATIENCE
    while service.job(job)["doing"] is None:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert submitted(service, "flows", **LONG) == job  # the same question is one job
    assert job in [one["id"] for one in json.loads(service.send("GET", "/api/v1/jobs?state=running")[2])["jobs"]]
    assert service.send("DELETE", f"/api/v1/jobs/{job}")[0] == 200
    found = service.until(job, "cancelled")
    assert found["error"]["kind"] == "Cancelled" and found["answer"] is None
    assert b"event: end" in service.send("GET", f"/api/v1/jobs/{job}/events")[2]


def test_jobs_come_in_pages(service: ServedProcess) -> None:
    for seed in range(5):
        assert service.ask("predict", job=JOB, seed=100 + seed)[0] == 200
    seen, following = [], ""
    while True:
        page = json.loads(service.send("GET", f"/api/v1/jobs?limit=2{following}")[2])
        seen += [one["id"] for one in page["jobs"]]
        if page["next"] is None:
            break
        following = f"&before={page['next']}"
    assert len(seen) == len(set(seen)) >= 5


def test_a_question_over_its_memory_says_so(tmp_path: Path) -> None:
    with ServedProcess(tmp_path / "kept", ["--job-memory", "40MB"], workers=1) as service:
        answer = service.ask("flows", fabric="fat_tree:k=32,link=400Gb/s", flows="all_to_all:bytes=1MiB", network="flow")
        if answer[0] == 202:
            error = service.until(json.loads(answer[2])["id"], "failed")["error"]
        else:
            assert answer[0] == 422, answer
            error = error_of(answer)
        assert error["kind"] == "MemoryLimit"
        assert service.ask("catalog", kind="gpus")[0] in (200, 202)  # the worker lives


def test_a_question_over_its_time_says_so(tmp_path: Path) -> None:
    with ServedProcess(tmp_path / "kept", ["--job-seconds", "2"], workers=1) as service:
        found = service.until(submitted(service, "flows", **LONG), "failed")
    assert found["error"]["kind"] == "TimeLimit" and found["attempt"] == 1


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in (task / "children").read_text().split()]
    return found


def test_a_worker_forks_with_one_thread(service: ServedProcess) -> None:
    for worker in children(service.pid):
        assert "Threads:\t1\n" in Path(f"/proc/{worker}/status").read_text(encoding="ascii")


def test_a_restart_goes_on_with_what_ran(tmp_path: Path) -> None:
    with ServedProcess(tmp_path / "kept", workers=1) as service:
        job = submitted(service, "flows", **LONG)
        service.until(job, "running")
        waiting = submitted(service, "predict", job=JOB)
        service.end()
        service.start()
        assert service.until(job, "running", "queued")["attempt"] <= 1  # a stop is no attempt
        service.send("DELETE", f"/api/v1/jobs/{job}")
        service.until(job, "cancelled")
        service.until(waiting, "done")


def test_a_process_that_is_killed_is_tried_again_and_then_fails(tmp_path: Path) -> None:
    with ServedProcess(tmp_path / "kept", workers=1) as service:
        job, killed, until = submitted(service, "flows", **LONG), 0, time.monotonic() + PATIENCE
        seen: set[int] = set()
        while service.job(job)["state"] in ("queued", "running"):
            assert time.monotonic() < until
            for worker in children(service.pid):
                for child in set(children(worker)) - seen:
                    seen.add(child)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                        killed += 1
            time.sleep(0.02)
        found = service.job(job)
    assert found["state"] == "failed" and found["error"]["kind"] == "WorkerKilled" and killed == 3


def kill_and_ask(service: ServedProcess, total: int, kills: int, seed: int) -> dict[str, int]:
    """Asks `total` questions and kills servers and workers meanwhile. Returns how often each accepted question was asked."""
    draw = random.Random(seed)
    every = max(1, total // kills)
    accepted: Counter[str] = Counter()
    for number in range(total):
        body = {"kind": "gpus", "name": "h100-sxm-80gb"} if number % 50 == 0 else {"kind": "gpus", "name": f"no-such-{number}"}
        until = time.monotonic() + PATIENCE
        while True:
            try:
                status, _, data = service.send("POST", "/api/v1/catalog", body, {"Prefer": "wait=0"})
                break
            except (urllib.error.URLError, ConnectionError, OSError):
                assert time.monotonic() < until
                time.sleep(0.02)
        assert status in (200, 202, 422), (status, data)
        if status == 202:
            accepted[str(json.loads(data)["id"])] += 1
        if number % every == every - 1:
            workers = children(service.pid)
            if workers and draw.random() < 0.6:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(draw.choice(workers), signal.SIGKILL)
            else:
                service.end(signal.SIGKILL)
                service.start()
    return accepted


def check_all_counted(database: Database, accepted: dict[str, int]) -> None:
    """Every accepted question has ended, once, and none waits for ever."""
    queue, until = JobQueue(database), time.monotonic() + 4 * PATIENCE
    while True:
        with database.reading() as connection:
            rows = connection.execute(select(jobs.c.id, jobs.c.key, jobs.c.state, jobs.c.completions, jobs.c.error)).all()
        if all(row.state in ("done", "failed") for row in rows):
            break
        assert time.monotonic() < until, Counter(row.state for row in rows)
        queue.reap()
        time.sleep(0.2)
    assert set(accepted) <= {row.id for row in rows}, "lost"
    for row in rows:
        if row.state == "done":
            assert row.completions == 1, "counted twice"
        else:
            assert json.loads(row.error)["kind"] == "UnknownName" and row.completions == 0, row.error
    ended = Counter(row.key for row in rows if row.state == "done")
    assert ended and max(ended.values()) == 1


KILLS = int(os.environ.get("SERVICE_KILLS", "4"))
"""`make service-faults` asks 2,000 questions through 50 kills; `make test` a cut of that."""


def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    options = ["--per-minute", "1000000", "--lease", "2"]
    with ServedProcess(tmp_path / "kept", options) as service:
        accepted = kill_and_ask(service, 40 * KILLS, KILLS, 1)
        database = Database(tmp_path / "kept")
        check_all_counted(database, accepted)
        database.close()


FULL = """
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from windtunnel.service.store.blobs import Blobs
from windtunnel.service.store.database import StoreFull, open_database
folder = Path(sys.argv[1])
database = open_database(folder, None)
blobs = Blobs(folder / "blobs")
kept = blobs.put(b"before")
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    blobs.put(b"x" * 100_000)
except StoreFull as error:
    print("full:", error)
assert blobs.get(kept) == b"before"
print("files", sum(1 for _ in blobs.all()))
"""


def test_a_full_disk_says_so_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "full: the disk of the service is full" in done.stdout and "files 1" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system")
def test_a_service_on_a_full_disk_answers_again_when_there_is_room(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with ServedProcess(folder, workers=1) as service:
            assert service.ready().ask("predict", job=JOB)[0] == 200
            filler = folder / "filler"
            with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
                while True:
                    file.write(b"\0" * 4096)
            statuses = {service.ask("predict", wait=10, job=JOB, seed=seed)[0] for seed in range(2, 5)}
            assert 507 in statuses or statuses <= {202, 422, 503}, statuses
            assert statuses.isdisjoint({500, 200})
            filler.unlink()
            until = time.monotonic() + PATIENCE
            while service.ask("predict", job=JOB, seed=9)[0] != 200:
                assert time.monotonic() < until
                time.sleep(0.5)
            assert service.ask("predict", job=JOB)[1]["x-windtunnel-cached"] == "true"
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_settings_travel_to_a_worker() -> None:
    settings = ServiceSettings("x", job_memory=5, database="postgresql://u:p@h/d")
    assert ServiceSettings.of_json(settings.to_json()) == settings
