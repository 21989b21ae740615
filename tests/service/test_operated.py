"""The service in other hands: what a scraper, a log and an operator's commands tell of it."""

from __future__ import annotations

import asyncio
import csv
import http.client
import json
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update

from tests.service.served import PATIENCE, ServedProcess, error_of
from windtunnel.base.errors import FileError, SpecError
from windtunnel.service.store.blobs import Blobs
from windtunnel.service.store.database import jobs, open_database
from windtunnel.service.store.queue import (
    JobQueue,
    KeptAnswer,
    QueueLimits,
    QuotaSpent,
    StoredQuestion,
    wait_for_quota,
    work_after,
)
from windtunnel.service.store.shelf import AuditRow, Shelf
from windtunnel.service.web.errors import RequestError, error_response
from windtunnel.service.web.guard import STATIC, Guard, SeenRequest, proxy_sign_on, without_secrets
from windtunnel.service.web.log import LogFormatter, is_worth_a_line, log_request
from windtunnel.service.web.tokens import Asker, Tokens, add_token, list_tokens, read_tokens, revoke_tokens

JOB = "llama3-8b-8xh100"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A file of tokens, and one that may write."""
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    return file, add_token(str(file), "ann:write")


@pytest.fixture(scope="module")
def service(tokens: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    options = ["--token-file", str(tokens[0]), "--log", "json", "--log-level", "debug", "--per-minute", "1000000"]
    with ServedProcess(tmp_path_factory.mktemp("operated") / "data", options, token=tokens[1]) as served:
        yield served.ready()


def scrape(service: ServedProcess) -> Samples:
    status, headers, data = service.send("GET", "/metrics")
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(data.decode())
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples}


def test_metrics_tell_of_questions_by_verb_and_outcome(service: ServedProcess) -> None:
    before = scrape(service)
    asked = {"job": JOB, "seed": 51}
    assert service.ask("predict", **asked)[0] == 200 and service.ask("predict", **asked)[0] == 200
    assert service.ask("predict", job=JOB, nonsense=1)[0] == 422
    assert service.ask("predict", job="no-such-job")[0] == 422  # fails, or is refused before it runs
    after = scrape(service)

    def more(name: str, **labels: str) -> float:
        key = name, tuple(sorted(labels.items()))
        return after.get(key, 0.0) - before.get(key, 0.0)

    assert more("windtunnel_questions_total", verb="predict", outcome="done") == 1
    assert more("windtunnel_questions_total", verb="predict", outcome="kept") == 1
    wrong = [more("windtunnel_questions_total", verb="predict", outcome=outcome) for outcome in ("refused", "failed")]
    assert sum(wrong) == 2 and wrong[0] >= 1
    assert more("windtunnel_question_seconds_count", verb="predict") == 1
    assert more("windtunnel_question_seconds_sum", verb="predict") > 0
    assert more("windtunnel_requests_total", method="POST", status="200") == 2
    assert more("windtunnel_requests_total", method="POST", status="422") == 2
    assert more("windtunnel_request_seconds_count") == 5  # the first scrape is among them
    assert after["windtunnel_questions_waiting", ()] == after["windtunnel_questions_running", ()] == 0
    assert after["windtunnel_workers", ()] == 2
    assert all(after["windtunnel_memory_bytes", (("process", name),)] > 10e6 for name in ("server", "workers"))


def test_a_cancelled_question_is_counted_once(service: ServedProcess) -> None:
    label = ("outcome", "cancelled"), ("verb", "search")
    before = scrape(service).get(("windtunnel_questions_total", label), 0.0)
    table = {"job": JOB, "gpus": "8,16,32,64", "limit": 300}
    status, _, data = service.send("POST", "/api/v1/search", table, {"Prefer": "respond-async"})
    assert status == 202, data
    job = json.loads(data)["id"]
    service.send("DELETE", f"/api/v1/jobs/{job}")
    service.until(job, "cancelled")
    service.send("DELETE", f"/api/v1/jobs/{job}")
    assert scrape(service)["windtunnel_questions_total", label] == before + 1


def test_metrics_need_a_token_unless_they_are_open(service: ServedProcess, tokens: tuple[Path, str], tmp_path: Path) -> None:
    service.token, kept = None, service.token
    try:
        assert service.send("GET", "/metrics")[0] == 401
    finally:
        service.token = kept
    with ServedProcess(tmp_path / "open", ["--token-file", str(tokens[0]), "--open-metrics"], workers=1) as served:
        assert served.send("GET", "/metrics")[0] == 200 and served.send("GET", "/api/v1/jobs")[0] == 401


def test_the_log_has_a_line_for_each_request_and_no_secret(tokens: tuple[Path, str], tmp_path: Path) -> None:
    options = ["--token-file", str(tokens[0]), "--log", "json"]
    with ServedProcess(tmp_path / "data", options, workers=1, token=tokens[1]) as service:
        service.ready()
        assert service.ask("catalog", kind="gpus")[0] == 200
        assert service.send("GET", f"/api/v1/answers/{tokens[1]}")[0] == 404
        assert service.send("GET", f"/api/v1/jobs?token={tokens[1]}")[0] == 400
        with socket.create_connection(("127.0.0.1", service.port), PATIENCE) as half:  # leaves in the middle of its question
            head = f"POST /api/v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {tokens[1]}\r\nContent-Length: 9999"
            half.sendall(head.encode() + b'\r\n\r\n{"job"')
        assert service.send("GET", "/api/v1/jobs")[0] == 200
    text = service.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    seen = {(line["who"], line["method"], line["path"], line["status"]) for line in lines if "path" in line}
    assert ("ann", "POST", "/api/v1/catalog", 200) in seen and ("nobody", "GET", "/api/v1/jobs", 400) in seen
    (asked,) = (line for line in lines if line.get("path") == "/api/v1/catalog")
    assert len(asked["key"]) == 64 and asked["sent"] > 100 and asked["level"] == "info" and asked["came_from"] == "127.0.0.1"
    assert "healthz" not in text and "readyz" not in text and "Traceback" not in text
    assert tokens[1] not in text and "…" in text


def test_lines_are_one_line_and_levels_choose(caplog: pytest.LogCaptureFixture) -> None:
    def seen(path: str, status: int) -> SeenRequest:
        return SeenRequest("ann", "GET", path, "::1", status, 0.25, 7, "", False)

    with caplog.at_level(logging.INFO, "windtunnel.access"):
        for path, status in (("/a\nb", 200), ("/healthz", 200), ("/c", 499), ("/c", 404), ("/c", 500)):
            log_request(seen(path, status))
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "ERROR"]
    assert LogFormatter(False).format(caplog.records[0]).endswith("::1 ann GET /a%0Ab 200 0.250 s 7 bytes")
    assert json.loads(LogFormatter(True).format(caplog.records[0]))["path"] == "/a\nb"


def test_secrets_are_left_out() -> None:
    assert without_secrets("at postgresql://wt:hidden@db/x with Bearer abc.def") == "at postgresql://…@db/x with Bearer …"
    token = "wt_" + "aB-_9" * 8
    assert token not in without_secrets(f"GET /{token}/x")


@pytest.mark.parametrize(
    ("name", "message", "error", "is_kept"),
    [
        ("nicegui", "Client has been deleted but is still being used. This is most likely a bug", None, False),
        ("nicegui", "x", RuntimeError("The client this element belongs to has been deleted."), False),
        ("nicegui", "x", RuntimeError("The parent slot of Label(id=4) has been deleted."), False),
        ("nicegui", "An element has been deleted but is still being used.", None, True),
        ("nicegui", "x", RuntimeError("something else"), True),
        ("uvicorn.error", "Client has been deleted", None, True),
    ],
)
def test_a_closed_tab_is_no_line(name: str, message: str, error: Exception | None, is_kept: bool) -> None:
    trace = None if error is None else (type(error), error, None)
    assert is_worth_a_line(logging.LogRecord(name, logging.ERROR, "f", 1, message, (), trace)) == is_kept


def serve_command(*words: str) -> str:
    """What `windtunnel serve` prints and ends."""
    command = [sys.executable, "-m", "windtunnel", "serve", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_token_ends_at_its_time_and_is_listed(tmp_path: Path) -> None:
    file, day = tmp_path / "tokens", 86400.0
    token = add_token(str(file), "ann:write", days=2, clock=lambda: 10 * day)
    add_token(str(file), "bob:read", clock=lambda: 11 * day)
    now = [12 * day - 1]
    tokens = Tokens(file.read_text().splitlines(), clock=lambda: now[0])
    asker = tokens.asker(f"Bearer {token}".encode())
    assert asker == Asker("ann", "write") and tokens.refusal(asker) is None
    now[0] = 12 * day
    assert tokens.refusal(asker) == ("TokenExpired", "the token of ann expired on 1970-01-13 00:00 UTC.")
    head, *lines = list_tokens(tokens, {asker.token: 11.5 * day}).splitlines()
    assert head.split() == ["NAME", "ROLE", "HASH", "MADE", "LAST", "USED", "EXPIRES", "STATE"]
    first = f"ann write {asker.token[:12]} 1970-01-11 00:00 UTC 1970-01-12 12:00 UTC 1970-01-13 00:00 UTC expired"
    assert lines[0].split() == first.split() and lines[1].split()[-3:] == ["-", "-", "valid"]
    assert token not in file.read_text() and file.stat().st_mode & 0o777 == 0o600


def test_tokens_are_revoked_by_name_or_hash(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"old write {'ab' * 32}  # a line of an earlier version\n")
    file.chmod(0o600)
    first, second = add_token(str(file), "ann"), add_token(str(file), "ann")
    tokens = read_tokens(str(file))
    askers = [tokens.asker(f"Bearer {token}".encode()) for token in (first, second)]
    assert askers[0] is not None and askers[1] is not None and [known.made for known in tokens.all_tokens()][0] is None
    assert revoke_tokens(str(file), askers[0].token[:12], clock=lambda: 0.0) == 1
    tokens.refresh()
    assert tokens.refusal(askers[0]) == ("TokenRevoked", "the token of ann was revoked.") and tokens.refusal(askers[1]) is None
    assert revoke_tokens(str(file), "ann", clock=lambda: 86400.0) == 1
    tokens.refresh()
    assert tokens.refusal(askers[1]) == ("TokenRevoked", "the token of ann was revoked on 1970-01-02 00:00 UTC.")
    with pytest.raises(SpecError, match="old"):
        revoke_tokens(str(file), "ann")
    file.write_text("nonsense\n")
    tokens.refresh()
    assert len(tokens) == 3  # as they were
    file.write_text(f"old write {'ab' * 32}\n")
    tokens.refresh()
    assert tokens.refusal(askers[1]) == ("TokenNeeded", "the token is no longer known.")


@pytest.mark.parametrize("more", ["made=yesterday", "since=2026-01-01", "expires="])
def test_a_line_with_other_words_is_refused(more: str) -> None:
    with pytest.raises(FileError, match="line 1"):
        Tokens([f"ann write {'ab' * 32} {more}"])


def test_a_running_service_refuses_a_token_from_its_end_on(tmp_path: Path) -> None:
    file, folder = tmp_path / "tokens", tmp_path / "data"
    options = ["--token-file", str(file)]
    live = serve_command("--new-token", "ann:write", *options).strip()
    dead = serve_command("--new-token", "bob:write", *options, "--expires", "0").strip()
    with ServedProcess(folder, options, workers=1, token=live) as service:
        service.ready()
        form = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
        talk = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)
        talk.request("POST", "/ui/sign-in", f"token={live}", form)
        entered = talk.getresponse()
        cookie = (entered.getheader("Set-Cookie") or "").partition(";")[0]
        assert entered.read() == b"" and entered.status == 303
        talk.close()
        assert service.send("GET", "/api/v1/jobs")[0] == 200
        service.token = None
        assert service.send("GET", "/api/v1/jobs", headers={"Cookie": cookie})[0] == 200
        service.token = dead
        refused = service.send("GET", "/api/v1/jobs")
        assert refused[0] == 401 and "bob expired on" in error_of(refused)["message"]
        assert "invalid_token" in refused[1]["www-authenticate"]
        assert "revoked" in serve_command("--revoke-token", "ann", *options)
        service.token = live
        refused = service.send("POST", "/api/v1/catalog", {"kind": "gpus"})
        assert refused[0] == 401 and "ann was revoked on" in error_of(refused)["message"]
        service.token = None
        assert error_of(service.send("GET", "/api/v1/jobs", headers={"Cookie": cookie}))["kind"] == "TokenRevoked"
        status, _, page = service.send("POST", "/ui/sign-in", raw=f"token={live}".encode(), headers=form)
        assert status == 401 and b"This token was revoked" in page
    _, ann, bob = serve_command("--list-tokens", *options, "--dir", str(folder)).splitlines()
    assert ann.split()[-1] == "revoked" and ann.split().count("UTC") == 2  # made and used; it has no end
    assert bob.split()[-1] == "expired" and " - " in bob
    assert live not in ann and live.encode() not in (folder / "service.db").read_bytes()


def test_the_audit_log_is_read_by_name_verb_and_time(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shelf = Shelf(open_database(folder, None), Blobs(folder / "blobs"))
    day = 86400.0
    shelf.note(
        [
            AuditRow(1 * day, "ann", "POST /api/v1/fit/kernels", "::1", 200, 1.5),
            AuditRow(2 * day, "bob", "PAGE predict", "page", 422, 0.25),
            AuditRow(3 * day, "ann", "POST /api/v1/predict", "::1", 200, None),
            AuditRow(4 * day, "ann", "DELETE /api/v1/jobs/x", "::1", 404, 0.1),
        ]
    )
    shelf.database.close()

    def read(*words: str) -> list[list[str]]:
        head, *rows = csv.reader(serve_command("--audit", "-", "--dir", str(folder), *words).splitlines())
        assert head == ["time", "who", "verb", "what", "from", "status", "seconds"]
        return rows

    rows = read()
    assert rows[0] == ["1970-01-02T00:00:00.000Z", "ann", "fit kernels", "POST /api/v1/fit/kernels", "::1", "200", "1.500"]
    assert [row[2] for row in rows] == ["fit kernels", "predict", "predict", ""] and rows[2][-1] == ""
    assert [row[1] for row in read("--verb", "predict")] == ["bob", "ann"]
    assert [row[5] for row in read("--who", "ann", "--since", "1970-01-02", "--until", "1970-01-05T00:00+00:00")] == ["200", "200"]
    assert read("--verb", "fit kernels") == rows[:1]
    assert serve_command("--audit", str(tmp_path / "a.csv"), "--dir", str(folder)).startswith("4 rows in ")
    assert (tmp_path / "a.csv").stat().st_mode & 0o777 == 0o600
    command = [sys.executable, "-m", "windtunnel", "serve", "--audit", "-", "--dir", str(tmp_path / "none")]
    failed = subprocess.run(command, capture_output=True, text=True)
    assert failed.returncode != 0 and "There is no service.db in it" in failed.stderr and not (tmp_path / "none").exists()


def test_work_of_a_day_is_bounded_and_says_when_it_is_free() -> None:
    """Two pieces of 10 s, at 100 and 200 s; the window's edge is at 50 s, and moves on."""
    spans = [(100.0, 110.0), (200.0, 210.0)]
    assert work_after(spans, 50.0) == 20.0 and work_after(spans, 105.0) == 15.0 and work_after(spans, 300.0) == 0.0
    assert wait_for_quota(spans, 50.0, 20.0) == 51.0  # a second of the first piece has gone
    assert wait_for_quota(spans, 50.0, 10.0) == 151.0  # the first piece, and a second of the other one
    assert wait_for_quota(spans, 50.0, 30.0) == 0.0


def test_a_spent_quota_refuses_new_questions_and_gives_kept_answers(tmp_path: Path) -> None:
    database = open_database(tmp_path, None)
    queue = JobQueue(database, limits=QueueLimits(seconds_a_day=100.0))

    def question(number: int) -> StoredQuestion:
        return StoredQuestion(f"{number:064x}", "catalog", ("catalog",), {}, {}, True, "windtunnel catalog")

    job, _ = queue.submit(question(1), "ann", True)
    claim = queue.claim("worker")
    assert claim is not None
    kept = KeptAnswer(claim.question.key, "catalog", "", "1", "0" * 64, "application/json", {}, "", 0.1, 10)
    assert queue.finish(claim, kept)
    with database.transaction() as connection:
        ended = database.now(connection) - 3600.0
        connection.execute(update(jobs).where(jobs.c.id == job).values(started=ended - 100.0, ended=ended))
        before = database.now(connection)
    with pytest.raises(QuotaSpent, match="had 100 s of work in the last 24 hours, of 100 s .* ask again at 20.* UTC") as refused:
        queue.submit(question(2), "ann", True)
    with database.reading() as connection:
        after = database.now(connection)
    free = ended - 100.0 + 86_400.0  # when the work begins to leave the 24 hours
    assert before + refused.value.wait <= free + 2.0 and after + refused.value.wait >= free
    answer = error_response(refused.value)
    assert answer.status_code == 429 and answer.headers["retry-after"] == str(round(refused.value.wait))
    assert queue.submit(question(1), "ann", True) == (None, True)
    assert queue.submit(question(2), "bob", True)[0] is not None
    with database.transaction() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job).values(started=ended - 90_000.0, ended=ended - 86_000.0))
    assert queue.submit(question(3), "ann", True)[0] is not None
    database.close()


def test_a_proxy_is_believed_from_its_addresses_alone() -> None:
    sign_on = proxy_sign_on("X-Forwarded-User", ["10.0.0.0/24", "::1"], "read")
    assert sign_on is not None and sign_on.asker([], "9.9.9.9") is None
    for address in ("10.0.0.7", "::1", "::ffff:10.0.0.7"):
        assert sign_on.asker([(b"x-forwarded-user", b"ann@example.org")], address) == Asker("ann@example.org", "read")
    for address in ("10.0.1.7", "127.0.0.1", ""):
        with pytest.raises(RequestError) as refused:
            sign_on.asker([(b"x-forwarded-user", b"ann")], address)
        assert refused.value.status == 403
    for name in (b"", b"ann, bob", b"=1+1", b"x" * 65, b"a\xe9"):
        with pytest.raises(RequestError) as refused:
            sign_on.asker([(b"x-forwarded-user", name)], "::1")
        assert refused.value.status == 400
    with pytest.raises(RequestError, match="not one name"):
        sign_on.asker([(b"x-forwarded-user", b"ann"), (b"x-forwarded-user", b"eve")], "::1")


def test_what_people_behind_a_proxy_ask_is_limited_but_for_files_of_the_page() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    said: list[int] = []

    async def asked(path: str) -> None:
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "client": ("10.0.0.7", 1),
                 "headers": [(b"host", b"here"), (b"x-user", b"ann")]}  # fmt: skip

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            if "status" in message:
                said.append(message["status"])

        await guard(scope, receive, send)

    sign_on = proxy_sign_on("X-User", ["10.0.0.0/24"], "read")
    guard = Guard(app, None, None, lambda *_: None, 2, 100, ("/ui",), sign_on=sign_on)
    for path in [f"{STATIC}a.js"] * 99 + ["/api/v1/jobs"] * 99:
        asyncio.run(asked(path))
    assert set(said[:99]) == {200} and said[99] == 200 and said[-1] == 429


@pytest.mark.parametrize(
    ("header", "proxies", "role"),
    [(None, ["::1"], "write"), ("X-User", [], "write"), ("X-User", ["proxy"], "write"), ("X-User", ["::1"], "all"),
     ("Cookie", ["::1"], "write"), ("X User", ["::1"], "write")],
)  # fmt: skip
def test_options_of_a_proxy_that_do_not_fit_are_refused(header: str | None, proxies: list[str], role: str) -> None:
    with pytest.raises(SpecError):
        proxy_sign_on(header, proxies, role)


def test_people_sign_on_at_a_proxy(tokens: tuple[Path, str], tmp_path: Path) -> None:
    options = ["--sign-on-header", "X-User", "--trusted-proxy", "127.0.0.1", "--sign-on-role", "read"]
    with ServedProcess(tmp_path / "near", options, workers=1) as service:
        assert error_of(service.send("GET", "/api/v1/jobs"))["kind"] == "SignOnNeeded"
        assert service.send("GET", "/api/v1/jobs", headers={"X-User": "eve"})[0] == 200
        assert service.send("POST", "/api/v1/catalog", {"kind": "gpus"}, {"X-User": "eve"})[0] == 403
        assert service.send("GET", "/healthz")[0] == 200
    assert serve_command("--audit", "-", "--dir", str(tmp_path / "near"), "--who", "eve").count("POST /api/v1/catalog") == 1
    far = ["--sign-on-header", "X-User", "--trusted-proxy", "10.1.2.3", "--token-file", str(tokens[0])]
    with ServedProcess(tmp_path / "far", far, workers=1, token=tokens[1]) as service:
        assert service.send("GET", "/api/v1/jobs")[0] == 200
        assert error_of(service.send("GET", "/api/v1/jobs", headers={"X-User": "eve"}))["kind"] == "UntrustedProxy"
