"""What a service decides, by clocks that only these cases move: whose turn it is, who may ask, and what is kept."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from folding import folded
from varied import or_refused, said

from windtunnel.base.errors import SpecError


def _queue() -> Any:
    """Questions that two askers put, workers that come and go, and a clock that only this case moves."""
    from windtunnel.service.store import queue as room
    from windtunnel.service.store.blobs import Blobs
    from windtunnel.service.store.database import Database
    from windtunnel.service.store.shelf import AuditRow, Shelf

    class Clocked(Database):
        moment = 1e6

        def now(self, connection: Any) -> float:
            return self.moment

    told: list[Any] = []

    def tell(do: Callable[[], Any]) -> Any:
        """What it does, in numbers; ids are drawn."""
        try:
            found = do()
        except (room.QueueFull, room.QuotaSpent) as error:
            found = type(error).__name__, getattr(error, "wait", 0.0)
        told.append(found if isinstance(found, (int, float, str, tuple, dict)) else found is not None)
        return found

    with tempfile.TemporaryDirectory() as folder:
        database = Clocked(Path(folder))
        database.migrate()
        queue = room.JobQueue(database, 10.0, room.QueueLimits(of_one=4, of_all=6, seconds_a_day=100.0))
        shelf, ids = Shelf(database, Blobs(Path(folder) / "blobs")), list[str]()
        body = shelf.blobs.put(b"body")
        for number in range(8):
            question = room.StoredQuestion(f"k{number % 7}", "predict", ("a",), {"f": body}, {}, True, "predict a")
            found = tell(lambda question=question, number=number: (*queue.submit(question, f"asker{number % 2}", number % 3 == 0),))
            told[-1] = [bool(found[0]), found[1]]
            ids += [str(found[0])] if found[0] and found[0] not in ids and len(str(found[0])) == 24 else []
        for turn in range(9):
            claim = queue.claim(f"worker{turn % 2}", short_only=turn == 4)
            told.append(None if claim is None else [ids.index(claim.job), claim.fence, claim.question.key])
            if claim is None:
                continue
            database.moment += 7.0 * turn
            tell(lambda claim=claim: queue.beat(claim, 0.5, "x", "log"))
            kept = room.KeptAnswer(claim.question.key, "predict", "c", "1", body, "m", {}, "log", 3.0, 100 + turn)
            if turn % 4 == 0:
                tell(lambda claim=claim, kept=kept: queue.finish(claim, kept))
            elif turn % 4 == 1:
                tell(lambda claim=claim: queue.give_back(claim, crashed=True))
            elif turn % 4 == 2:
                tell(lambda claim=claim: queue.fail(claim, {"kind": "PlanError"}))
            else:
                database.moment += 20.0
                tell(lambda turn=turn: queue.reap([f"worker{turn % 3}"]))
        tell(lambda: queue.cancel(ids[-1]))
        tell(lambda: queue.submit(room.StoredQuestion("more", "predict", (), {}, {}, False, ""), "asker0", True))
        database.moment += 50000.0
        shelf.note([AuditRow(1e6 + 9.0 * n, f"who{n % 2}", "POST /api/v1/serve/predict", "here", 200, 1.0) for n in range(5)])
        rows = [
            list(shelf.audit_rows(**asked))
            for asked in ({}, {"who": "who1"}, {"verb": "serve predict"}, {"since": 1e6 + 9.0, "until": 1e6 + 27.0})
        ]
        told += [[len(one) for one in rows], shelf.counts(), [len(shelf.jobs(limit=n)[0]) for n in (2, 50)], shelf.jobs(limit=2)[1]]
        for one in filter(None, map(shelf.job, ids)):
            told.append([one.state, one.position, one.attempt, one.created, one.started, one.ended, one.progress])
        told.append(
            [
                [one.state, one.kind, one.ended - one.created]
                for one in sorted(shelf.ended_jobs(ids), key=lambda one: ids.index(one.id))
            ]
        )
        for room_left in (150.0, 0.0):
            told += [shelf.make_room(room_left, 60000.0, 1e4, 0.0), shelf.counts(), len(list(shelf.audit_rows()))]
        database.close()
    draw = np.random.default_rng(1)
    for most in (10.0, 100.0, 900.0, 1e9):
        spans = [(float(begin), float(begin + length)) for begin, length in draw.uniform(0, 9e4, (6, 2)) / (1, 200)]
        told.append([room.work_after(spans, 4e4), room.wait_for_quota(spans, 9e4 - 86400.0, most)])
    return [folded(one) for one in told]


def _askers() -> Any:
    """Limits of requests, tokens that expire and are revoked, sessions that end, and names that a proxy gives."""
    from windtunnel.service.web import guard, tokens

    now = [1e9]
    limit = guard.RateLimit(120, lambda: now[0])
    waits = []
    for turn in range(40):
        now[0] += 0.05 * (turn % 4)
        waits.append(round(limit.wait(f"asker{turn % 3 // 2}"), 9))
    told: list[Any] = [
        waits,
        [folded(vars(guard._too_often(wait))) for wait in (0.0, 0.4, 2.6)],
        said([guard.too_large(2_500_000)]),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tokens")
        made = [
            tokens.add_token(path, f"a{n}:{role}", days, lambda: now[0])
            for n, role, days in ((1, "read", 2.0), (2, "write", None), (3, "", 0.5))
        ]
        told.append([or_refused(lambda wanted=wanted: tokens.add_token(path, wanted)) for wanted in ("a b:read", "a:own")])
        now[0] += 86400.0
        told.append(tokens.revoke_tokens(path, "a2", lambda: now[0]))
        read = tokens.Tokens(Path(path).read_text(encoding="utf-8").splitlines(), clock=lambda: now[0])
        for later in (0.0, 2e5):
            now[0] += later
            askers = [read.asker(f"{scheme} {token}".encode()) for token in (*made, "x") for scheme in ("Bearer", "basic")]
            told.append([None if one is None else [one.name, one.may_write, read.refusal(one)] for one in askers])
            listed = tokens.list_tokens(read, {read.all_tokens()[0].asker.token: 1e9 + 7200.0})
            told.append([line.split("  ")[0] + line[-8:] + str(len(line)) for line in listed.splitlines()])
    sessions = tokens.BrowserSessions(lambda: now[0])
    cookies = [f"{tokens.COOKIE}={sessions.open(tokens.Asker(str(n), 'write'))}".encode() for n in range(3)]
    sessions.close(cookies[1])
    for later in (0.0, tokens.SECONDS, 1.0):
        now[0] += later
        told.append([getattr(sessions.asker(cookie), "name", None) for cookie in cookies])
    proxy = guard.proxy_sign_on("X-Forwarded-User", ["10.0.0.0/24", "::1"], "read")
    assert proxy is not None
    for value, origin in (("me", "10.0.0.9"), ("me", "10.0.1.9"), ("a b", "::ffff:10.0.0.1"), ("you", "::1"), ("me", "nowhere")):
        try:
            found = proxy.asker([(proxy.header, value.encode())], origin)
            told.append([found.name, found.may_write] if found else None)
        except Exception as error:
            told.append([getattr(error, "status", 0), getattr(error, "kind", "")])
    told += [proxy.asker([], "10.0.0.9"), [guard.host_name(host) for host in (b"[::1]:80", b"A.b:9", b"x")]]
    told += [
        or_refused(lambda asked=asked: guard.proxy_sign_on(*asked)) is None
        for asked in ((None, []), (None, ["10.0.0.1"]), ("Cookie", ["10.0.0.1"]), ("X-A", []))
    ]
    return told


def _many_askers() -> Any:
    """Of more askers than are remembered the one that asked first is forgotten."""
    from windtunnel.service.web import guard

    most, guard._MOST_ASKERS = guard._MOST_ASKERS, 3
    try:
        limit = guard.RateLimit(60, lambda: 0.0)
        return [round(limit.wait(f"asker{number % some}"), 9) for some in (3, 4) for number in range(50)]
    finally:
        guard._MOST_ASKERS = most


def _written() -> Any:
    """Audit rows, moments and files that a question wrote."""
    from windtunnel.service.store.shelf import AuditRow, read_moment, verb_of, write_audit
    from windtunnel.service.work.outcome import explain, media_of, read_written, text_media

    out = io.StringIO()
    rows = [
        AuditRow(1.5e9 + 0.1234 * n, "me", what, "here", 200 + n, None if n else 0.5)
        for n, what in enumerate(("PAGE serve predict", "GET /"))
    ]
    count = write_audit(rows, out)
    moments = [
        or_refused(lambda text=text: read_moment("--since", text)) for text in (None, "2026-11-28", "2026-11-28T18:00+02:00", "x")
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "d" / "e").mkdir(parents=True)
        for name, size in (("d/a.csv", 3), ("d/e/b.json", 10), ("d/c", 11), ("f", 10)):
            (root / name).write_bytes(b"x" * size)
        (root / "d" / "link").symlink_to(root / "f")
        found = [
            {name: len(data) for name, data in read_written(root, name, 10).items()} for name in ("d", "f", "d/c", "none", "d/link")
        ]
    error = explain(SpecError("--x", 3, "4", "5"))
    return [
        count,
        out.getvalue(),
        moments,
        verb_of("POST /api/v1/a/b"),
        found,
        error,
        [media_of(name, b"") for name in ("a.json", "a.csv", "a")],
        [text_media(data) for data in (b"a", bytes([255]))],
    ]


def _guarded() -> Any:
    """What passes a guard, and what each refusal says: drawn requests to services with tokens, a proxy, both or neither."""
    import asyncio

    from windtunnel.service.web import guard, tokens

    draw, told = np.random.default_rng(9), list[Any]()

    def pick(*values: Any) -> Any:
        return values[int(draw.integers(len(values)))]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        told.append([scope["state"][guard.ASKER].name, len((await receive()).get("body", b""))])
        headers = [
            (b"x-windtunnel-key", b"abc"),
            *pick([], [(b"Cache-Control", b"no-cache")], [(b"content-security-policy", b"x")]),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"12345"})

    with tempfile.TemporaryDirectory() as folder:
        made = [tokens.add_token(str(Path(folder) / "t"), name, None, lambda: 1e9) for name in ("reader:read", "writer:write")]
        read = tokens.Tokens((Path(folder) / "t").read_text(encoding="utf-8").splitlines(), clock=lambda: 1e9)
    sessions = tokens.BrowserSessions(lambda: 1e9)
    cookie = f"{tokens.COOKIE}={sessions.open(tokens.Asker('browser', 'write'))}".encode()
    proxy, used, seen, notes = guard.proxy_sign_on("X-User", ["10.0.0.0/24"]), list[str](), list[Any](), list[Any]()
    guards = [
        guard.Guard(
            app, known, hosts, lambda *note: notes.append(note[:4]), 600, 40, ("/page",), sessions, seen.append,
            note_use=used.append, sign_on=sign_on,
        )
        for known, hosts, sign_on in (
            (read, None, None), (None, ("here",), None), (read, ("here", "::1"), proxy), (None, None, proxy),
        )
    ]  # fmt: skip
    loop = asyncio.new_event_loop()
    for number in range(160):
        headers = [
            *pick([], [(b"host", b"here:8480")], [(b"host", b"[::1]:8480")], [(b"host", b"there")]),
            *pick([], [], [(b"authorization", b"Bearer " + made[number % 2].encode())], [(b"cookie", cookie)]),
            *pick([], [], [(b"origin", b"http://here")], [(b"origin", b"http://there")], [(b"sec-fetch-site", b"cross-site")]),
            *pick([], [], [(b"x-user", b"me")], [(b"x-user", b"me"), (b"x-user", b"you")], [(b"accept", b"text/html")]),
        ]
        scope = {
            "type": pick("http", "http", "http", "websocket"), "method": pick("GET", "POST", "DELETE"), "headers": headers,
            "path": pick("/", "/ui/x", "/healthz", "/ui/_nicegui/a", "/ui/_nicegui_ws/b", "/page/1", "/api/v1/jobs/1/events"),
            "query_string": pick(b"", b"", b"a=1", b"token=wt_1"), "client": pick(("10.0.0.5", 1), ("9.9.9.9", 1)),
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"x" * (100 if number % 9 == 0 else 5)}  # noqa: B023

        async def send(message: Any) -> None:
            sent.append([message.get("status"), sum(map(len, dict(message.get("headers", []))))])  # noqa: B023

        loop.run_until_complete(guards[number % 4](scope, receive, send))
        one = seen[-1]
        told.append(
            [one.who, one.status, one.sent if one.status == 200 else 0, one.key, one.is_stream, len(notes), len(used), sent[:1]]
        )
    loop.close()
    names = [guard.host_name(host) for host in (b"A.b:1", b"[::1]:8", b" x ", b"")]
    bad = [
        or_refused(lambda asked=asked: guard.proxy_sign_on(*asked) is None)
        for asked in ((None, []), (None, ["1"]), ("Host", ["::1"]), ("X", []), ("X", ["y"]), ("X", ["::1"], "own"))
    ]
    limit = guard.RateLimit(60, lambda: 5.0)
    waits = [limit.wait(f"asker {number}") for number in (*range(10_003), 0, *[10_002] * 10)][-14:]
    return [told, names, bad, waits, guard.without_secrets("wt_0123456789abcdef00 http://a:b@c Bearer x"), notes[:8], len(seen)]


def service_cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    return {"queue": _queue, "askers": _askers, "files of a service": _written, "many askers": _many_askers, "guarded": _guarded}
