"""Rules of the service's queue, its kept answers and its limits, in one process: who may end a job, what waits, what goes first."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select, update

from windtunnel.service.store.blobs import Blobs
from windtunnel.service.store.database import Database, answers, audit, jobs, open_database
from windtunnel.service.store.queue import (
    LOG_BYTES,
    MOST_ATTEMPTS,
    MOST_CRASHES,
    Claim,
    JobQueue,
    KeptAnswer,
    QueueFull,
    QueueLimits,
    StoredQuestion,
    error_table,
)
from windtunnel.service.store.shelf import AuditRow, Shelf
from windtunnel.service.web.guard import RateLimit, host_name


def question_of(number: int) -> StoredQuestion:
    return StoredQuestion(f"{number:064x}", "catalog", ("catalog",), {}, {}, True, "windtunnel catalog")


def answer_of(question: StoredQuestion) -> KeptAnswer:
    return KeptAnswer(question.key, "catalog", question.command, "1", "0" * 64, "application/json", {}, "", 0.1, 10)


def claimed(queue: JobQueue, owner: str = "worker", short_only: bool = False) -> Claim:
    claim = queue.claim(owner, short_only)
    assert claim is not None
    return claim


def column_of(database: Database, job: str, name: str) -> object:
    with database.reading() as connection:
        return connection.execute(select(jobs.c[name]).where(jobs.c.id == job)).scalar_one()


def test_the_fence_keeps_a_late_worker_out(tmp_path: Path) -> None:
    """Both go by the same name, as a worker that was started again does: only the count of claims tells them apart."""
    database = open_database(tmp_path, None)
    queue = JobQueue(database, lease=-1.0)  # passed when it is given
    job, _ = queue.submit(question_of(1), "a", True)
    late = queue.claim("worker")
    assert late is not None and queue.reap() == 1
    other = JobQueue(database, lease=60.0).claim("worker")
    assert other is not None and other.job == late.job == job and other.fence > late.fence
    assert not queue.fail(late, {"kind": "x"}) and not queue.give_back(late)
    assert not queue.finish(late, answer_of(late.question)) and queue.beat(late, 0.5, "x", "") == "lost"
    assert queue.finish(other, answer_of(other.question)) and not queue.finish(other, answer_of(other.question))
    assert queue.submit(question_of(1), "a", True) == (None, True)
    assert Shelf(database, Blobs(tmp_path / "blobs")).counts() == {"done": 1, "answers": 1}


def test_too_many_questions_are_refused(tmp_path: Path) -> None:
    queue = JobQueue(open_database(tmp_path, None), limits=QueueLimits(of_one=2, of_all=3))
    for number in range(2):
        queue.submit(question_of(number), "a", True)
    with pytest.raises(QueueFull, match="2 questions of yours"):
        queue.submit(question_of(5), "a", True)
    queue.submit(question_of(2), "b", True)
    with pytest.raises(QueueFull, match="as many questions as it may"):
        queue.submit(question_of(6), "c", True)


def test_short_questions_go_first_and_then_the_earlier_ones(tmp_path: Path) -> None:
    database = open_database(tmp_path, None)
    queue, shelf = JobQueue(database), Shelf(database, Blobs(tmp_path / "blobs"))
    asked = [str(queue.submit(question_of(number), "a", short)[0]) for number, short in enumerate((False, True, False, True))]
    rows = [shelf.job(job) for job in asked]
    assert [row.position for row in rows if row is not None] == [2, 0, 3, 1]
    assert [claimed(queue).job for _ in range(3)] == [asked[1], asked[3], asked[0]]
    assert queue.claim("worker", short_only=True) is None and claimed(queue).job == asked[2]
    row = shelf.job(asked[2])
    assert row is not None and row.position is None and queue.claim("worker") is None


def test_the_same_question_is_one_job(tmp_path: Path) -> None:
    """Its asker's limit does not count it twice, and numbers go up by one for each job."""
    database = open_database(tmp_path, None)
    queue, shelf = JobQueue(database, limits=QueueLimits(of_one=2, of_all=9)), Shelf(database, Blobs(tmp_path / "blobs"))
    first, second, again = (queue.submit(question_of(number), "a", True) for number in (1, 2, 1))
    assert first == again and first != second and shelf.job_of(question_of(1).key) == first[0]
    assert column_of(database, str(second[0]), "number") == 1 + int(str(column_of(database, str(first[0]), "number")))
    rows, page = shelf.jobs(limit=1)
    assert [row.id for row in rows] == [second[0]] and page is not None
    rows, page = shelf.jobs(before=page, limit=1)
    assert [row.id for row in rows] == [first[0]] and page is None


def test_a_lease_ends_when_nobody_extends_it(tmp_path: Path) -> None:
    database = open_database(tmp_path, None)
    queue = JobQueue(database, lease=60.0)
    queue.submit(question_of(1), "a", True)
    claim = claimed(queue)
    assert queue.beat(claim, 0.25, "halfway", "x" * (LOG_BYTES + 5)) == "go" and queue.reap() == 0
    assert column_of(database, claim.job, "progress") == 0.25 and len(str(column_of(database, claim.job, "log"))) == LOG_BYTES
    assert queue.reap(["another"]) == 0 and queue.reap(["worker"]) == 1
    assert queue.beat(claim, None, None, "") == "lost" and column_of(database, claim.job, "attempt") == 1
    assert claimed(queue).fence == claim.fence + 1


def test_a_job_fails_when_too_many_workers_were_lost_with_it(tmp_path: Path) -> None:
    database = open_database(tmp_path, None)
    queue = JobQueue(database, lease=-1.0)
    job, _ = queue.submit(question_of(1), "a", True)
    for _ in range(MOST_ATTEMPTS - 1):
        claimed(queue)
        assert queue.reap() == 1
    claimed(queue)
    assert queue.reap() == 0 and column_of(database, str(job), "state") == "failed"
    assert queue.submit(question_of(1), "a", True)[0] != job


def test_a_job_that_crashes_is_tried_a_few_times(tmp_path: Path) -> None:
    """One that is given back because its worker stops loses no try."""
    database = open_database(tmp_path, None)
    queue = JobQueue(database)
    job, _ = queue.submit(question_of(1), "a", True)
    assert queue.give_back(claimed(queue)) and column_of(database, str(job), "attempt") == 0
    tries = [queue.give_back(claimed(queue), crashed=True) for _ in range(MOST_CRASHES - 1)]
    assert tries == [True] * (MOST_CRASHES - 1) and column_of(database, str(job), "crashes") == MOST_CRASHES - 1
    last = claimed(queue)
    assert not queue.give_back(last, crashed=True) and queue.fail(last, error_table("Crash", "killed"))
    assert not queue.fail(last, {}) and column_of(database, str(job), "state") == "failed"


def test_cancelled_jobs_end_where_they_are(tmp_path: Path) -> None:
    """One that waits at once; one that runs is told, or ends when its worker is lost."""
    database = open_database(tmp_path, None)
    queue = JobQueue(database, lease=-1.0)
    running, waiting = (str(queue.submit(question_of(number), "a", True)[0]) for number in (1, 2))
    claim = claimed(queue)
    assert (queue.cancel(waiting), queue.cancel(running), queue.cancel("none")) == ("cancelled", "running", None)
    assert queue.beat(claim, None, None, "") == "cancel" and queue.claim("worker") is None
    assert queue.reap() == 0 and column_of(database, running, "state") == "cancelled"
    assert {queue.submit(question_of(number), "a", True)[0] for number in (1, 2)}.isdisjoint({running, waiting})


def test_answers_are_bounded(tmp_path: Path) -> None:
    """The answer that was not used for longest goes first; the blobs of others stay."""
    database, blobs = open_database(tmp_path, None), Blobs(tmp_path / "blobs")
    queue, shelf = JobQueue(database), Shelf(database, blobs)
    for number in range(20):
        question = question_of(number)
        queue.submit(question, "a", True)
        claim = queue.claim("w")
        assert claim is not None
        answer = answer_of(question)
        queue.finish(claim, KeptAnswer(**{**answer.__dict__, "body": blobs.put(str(number).encode() * 100), "bytes": 100}))
    assert shelf.make_room(500, 1e9, 1e9, stale=-1.0) > 0
    assert shelf.counts()["answers"] == 5 and sum(1 for _ in blobs.all()) == 5
    assert shelf.answer(question_of(19).key) is not None and shelf.answer(question_of(0).key) is None
    assert queue.submit(question_of(0), "a", True)[1] is False  # it is asked again
    shelf.make_room(500, -1.0, 1e9, stale=-1.0)
    assert shelf.counts().get("answers") == 0


def test_what_was_read_lately_stays_and_what_is_old_goes(tmp_path: Path) -> None:
    database, blobs = open_database(tmp_path, None), Blobs(tmp_path / "blobs")
    queue, shelf = JobQueue(database), Shelf(database, blobs)
    for number in range(3):
        queue.submit(question_of(number), "a", True)
        queue.finish(claimed(queue), answer_of(question_of(number)))
    with database.transaction() as connection:
        now = database.now(connection)
        for number, used in ((0, now - 100.0), (1, now - 50.0), (2, now - 200.0)):
            connection.execute(update(answers).where(answers.c.key == question_of(number).key).values(used=used))
            connection.execute(update(jobs).where(jobs.c.key == question_of(number).key).values(ended=used))
    assert shelf.answer(question_of(2).key) is not None  # read: now the newest
    assert shelf.answer(question_of(1).key) is not None  # as well, but its use of 50 s ago is exact enough
    shelf.note([AuditRow(now - 100.0, "ann", "POST /x", "::1", 200), AuditRow(now, "ann", "POST /y", "::1", 200)])
    shelf.make_room(20, 1e9, 90.0)
    kept = [shelf.answer(question_of(number).key) is not None for number in range(3)]
    assert kept == [False, True, True] and shelf.counts() == {"done": 3, "answers": 2}
    with database.reading() as connection:
        assert connection.execute(select(audit.c.what)).scalars().all() == ["POST /y"]
    shelf.make_room(1e9, 90.0, 90.0)
    assert shelf.counts() == {"done": 1, "answers": 2}  # jobs that ended 100 and 200 s ago
    shelf.forget(question_of(1).key)
    assert shelf.answer(question_of(1).key) is None


def test_files_of_open_jobs_are_named(tmp_path: Path) -> None:
    database = open_database(tmp_path, None)
    queue, shelf = JobQueue(database), Shelf(database, Blobs(tmp_path / "blobs"))
    asked = StoredQuestion("1" * 64, "import", ("import",), {"a.json": "blob of a file"}, {}, True, "windtunnel import")
    queue.submit(asked, "a", True)
    assert shelf.named_blobs() == {"blob of a file"}
    claim = claimed(queue)
    assert shelf.named_blobs() == {"blob of a file"}
    artefacts = {"page": {"hash": "blob of a page", "media": "text/html", "bytes": 3}}
    assert queue.finish(claim, KeptAnswer(**{**answer_of(asked).__dict__, "body": "blob of an answer", "artefacts": artefacts}))
    assert shelf.named_blobs() == {"blob of an answer", "blob of a page"}


def test_requests_of_an_asker_are_limited() -> None:
    """120 a minute: twelve at once, then one each half second; who waits for an hour has twelve again, and no more."""
    now = [0.0]
    limit = RateLimit(120, lambda: now[0])
    assert [limit.wait("ann") for _ in range(12)] == [0.0] * 12
    assert limit.wait("ann") == pytest.approx(0.5) and limit.wait("bob") == 0.0
    now[0] = 0.25
    assert limit.wait("ann") == pytest.approx(0.25)
    now[0] = 1.0
    assert [limit.wait("ann") for _ in range(3)] == [0.0, 0.0, pytest.approx(0.5)]
    now[0] = 3600.0
    assert [limit.wait("ann") == 0.0 for _ in range(14)] == [True] * 12 + [False] * 2


def test_ten_requests_at_once_are_always_allowed() -> None:
    limit = RateLimit(6, lambda: 0.0)
    assert [limit.wait("ann") == 0.0 for _ in range(11)] == [True] * 10 + [False]
    assert limit.wait("ann") == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("host", "name"), [(b"Example.ORG:80", "example.org"), (b"[::1]:8080", "::1"), (b" localhost ", "localhost"), (b"", "")]
)
def test_the_name_in_a_host_header(host: bytes, name: str) -> None:
    assert host_name(host) == name
