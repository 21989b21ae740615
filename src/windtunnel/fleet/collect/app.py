"""HTTP interface of the collector: accepts batches, answers queries. Ingest is plain ASGI, the rest Starlette.

| path | what |
|---|---|
| POST /v1/batches | a batch; 200 when durable, 400 malformed, 401, 409 unknown rings, 413 too large, 429 or 503 with Retry-After |
| POST /v1/rings | {"rings": [id]} → {"rings": {id: {"next", "waiting"}}}: how much of each the collector has, for a new shipper |
| GET /v1/sections, summaries, heartbeats, groups, hosts, facts, overview, findings, exchanges | the run (below) |
| GET /metrics | Prometheus |
| GET / | a page for a browser |

The page of a collector: what the run is and what stands out, without scripts. `fleet show URL --html` draws more.

HTTP queries of a run. Each is answered by another process, within a limited time (`collect.answer_process`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from windtunnel.fleet.collect.answer_process import BODY, SIZE, message
from windtunnel.fleet.collect.answers import JSON, QUESTIONS, QuestionReply
from windtunnel.fleet.collect.collector import Collector, Receipt
from windtunnel.fleet.collect.door import VISITOR
from windtunnel.fleet.collect.policy import CollectPolicy

LOG = logging.getLogger("windtunnel.fleet.collect")
_START_SECONDS = 60.0


def query_routes(desk: QuestionDesk) -> list[Route]:
    """Routes that answer from the collector's folder."""

    def route(name: str) -> Route:
        async def endpoint(request: Request) -> Response:
            found = await desk.ask(name, {key: value for key, value in request.query_params.items() if key != "token"})
            headers = {"Retry-After": "5"} if found.status == 503 else {}
            return Response(found.body, found.status, headers, media_type=found.media)

        return Route(f"/v1/{name}", endpoint)

    return [route(name) for name in QUESTIONS]


class QuestionDesk:
    """Hands questions to processes, at most `policy.questions` at a time, and ends a process whose question takes too long. Must be
    used from one event loop.
    """

    def __init__(self, folder: Path, db: str, policy: CollectPolicy) -> None:
        self._told = {"folder": str(folder), "db": db, "policy": asdict(policy), "parent": os.getpid()}
        self._policy = policy
        self._slots: asyncio.Semaphore | None = None
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._ended: list[subprocess.Popen[bytes]] = []
        self.given_up = 0
        """Questions that took too long."""

    async def ask(self, name: str, query: Mapping[str, str]) -> QuestionReply:
        """The answer; 503 if it takes longer than `policy.question_seconds`, or no process is free for as long."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._policy.questions)
        limit = self._policy.question_seconds
        try:
            async with asyncio.timeout(limit):
                await self._slots.acquire()
        except TimeoutError:
            return _error(503, f"other questions took more than {limit:g} s; ask again")
        try:
            return await self._ask(name, query)
        except TimeoutError:
            self.given_up += 1
            LOG.error("question %s: given up after %g s", name, limit)
            return _error(503, f"the question took more than {limit:g} s: ask for fewer steps or ranks")
        except (OSError, EOFError) as error:
            LOG.error("question %s: %s", name, error or type(error).__name__)
            return _error(503, "the process that answers has ended; ask again")
        finally:
            self._slots.release()

    async def _ask(self, name: str, query: Mapping[str, str]) -> QuestionReply:
        process = self._idle.pop() if self._idle else await _Process.start(self._told)
        self._busy.add(process)
        answered = False
        try:
            async with asyncio.timeout(_START_SECONDS):
                await process.is_ready()
            async with asyncio.timeout(self._policy.question_seconds):
                found = await process.ask(name, query)
            answered = True
        finally:
            self._busy.discard(process)
            if answered:
                process.since = time.monotonic()
                self._idle.append(process)
            else:
                self._end(process)
        return found

    def end_idle(self) -> None:
        """Ends processes that have had nothing to do for `policy.idle_seconds`, except one."""
        self._ended = [one for one in self._ended if one.poll() is None]
        now = time.monotonic()
        for process in self._idle[:-1]:
            if now - process.since > self._policy.idle_seconds:
                self._idle.remove(process)
                self._end(process)

    def close(self) -> None:
        """Ends all processes at once."""
        for process in [*self._idle, *self._busy]:
            self._end(process)
        self._idle, self._busy = [], set()
        for child in self._ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(1.0)

    def _end(self, process: _Process) -> None:
        process.end()
        self._ended.append(process.child)


class _Process:
    """One `answer_process` and the socket to it."""

    def __init__(
        self, child: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:  # fmt: skip
        self.child, self._reader, self._writer = child, reader, writer
        self.since = time.monotonic()
        self._ready = False

    @classmethod
    async def start(cls, told: Mapping[str, object]) -> _Process:
        ours, theirs = socket.socketpair()
        with theirs:
            module = "windtunnel.fleet.collect.answer_process"
            child = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", module, str(theirs.fileno())], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),),
            )  # fmt: skip
        try:
            reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
        except BaseException:
            ours.close()
            child.kill()
            raise
        writer.write(message(told))
        return cls(child, reader, writer)

    async def is_ready(self) -> None:
        """Waits until the process has imported what it needs, which takes a second or more and is no part of a question."""
        if not self._ready:
            await self._reader.readexactly(1)
            self._ready = True

    async def ask(self, name: str, query: Mapping[str, str]) -> QuestionReply:
        self._writer.write(message({"name": name, "query": dict(query)}))
        await self._writer.drain()
        (size,) = BODY.unpack(await self._reader.readexactly(BODY.size))
        (head,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
        told = msgspec.json.decode(await self._reader.readexactly(head))
        return QuestionReply(int(told["status"]), str(told["media"]), await self._reader.readexactly(size))

    def end(self) -> None:
        self._writer.close()
        self.child.kill()


def _error(status: int, text: str) -> QuestionReply:
    return QuestionReply(status, JSON, msgspec.json.encode({"error": text}))


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_MOST_ASKED = 4096


class CollectorApp:
    """ASGI application. With a token, each request must carry `Authorization: Bearer TOKEN`; a question may have `?token=TOKEN`
    instead, for browsers. `hosts`: names by which a request may call the collector; None: any.
    """

    def __init__(
        self, collector: Collector, desk: QuestionDesk, token: str | None = None, hosts: Collection[str] | None = None
    ) -> None:  # fmt: skip
        self._collector, self._desk, self._hosts = collector, desk, hosts
        self._token = token or ""
        self._read_at = float("-inf")
        self._secret = f"Bearer {token}".encode() if token else None
        self._rest = Starlette(
            routes=[
                Route("/v1/rings", self._post_rings, methods=["POST"]),
                Route("/metrics", self._metrics),
                Route("/", self._page),
                *query_routes(desk),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._rest(scope, receive, send)
        headers = dict(scope["headers"])
        if self._hosts is not None and _host_name(headers.get(b"host", b"")) not in self._hosts:
            return await _send_json(send, 421, {"error": "this collector is not called so: ask by its address"}, close=True)
        if not self._is_allowed(scope, headers):
            return await _send_json(send, 401, {"error": "a token is needed: Authorization: Bearer TOKEN"}, close=True)
        visitor = scope.get("state", {}).get(VISITOR)
        if visitor is not None:
            visitor.welcome()
        if scope["path"] == "/v1/batches" and scope["method"] == "POST":
            return await self._post_batch(headers, receive, send)
        return await self._rest(scope, receive, send)

    def _is_allowed(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        if self._secret is None or hmac.compare_digest(headers.get(b"authorization", b""), self._secret):
            return True
        if scope["method"] != "GET":
            return False
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return hmac.compare_digest(asked.encode(), self._token.encode())

    async def _page(self, request: Request) -> Response:
        found = [await self._desk.ask(name, {}) for name in ("overview", "heartbeats", "findings")]
        failed = next((one for one in found if one.status != 200), None)
        if failed is not None:
            return Response(failed.body, failed.status, media_type=failed.media)
        overview, beats, findings = (json.loads(one.body) for one in found)
        return HTMLResponse(collector_page(overview, beats, findings, self._token), headers=HEADERS)

    async def _post_batch(self, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        came = time.time_ns()
        most = self._collector.policy.body_bytes
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > most:
            return await _send_json(send, 413, {"error": f"a batch of more than {most} bytes"}, close=True)
        body = await _read_body(receive, most)
        if body is None:
            return await _send_json(send, 413, {"error": f"a batch of more than {most} bytes"}, close=True)
        receipt = await self._collector.take(body, came)
        await _send_json(send, receipt.status, _receipt_body(receipt, came), retry_after=receipt.retry_after)

    async def _post_rings(self, request: Request) -> Response:
        """How much of each known ring the collector has. Everything that it reports is durable."""
        try:
            asked = [str(key) for key in json.loads(await _read_limited(request))["rings"]][:_MOST_ASKED]
        except (ValueError, KeyError, TypeError, RecursionError):
            return JSONResponse({"error": 'a body such as {"rings": ["0123456789abcdef"]}'}, 400)
        try:
            await self._collector.log.append(b"", 0)
        except OSError as error:
            return JSONResponse({"error": str(error)}, 503, {"Retry-After": "5"})
        known = {key: self._collector.rings.by_key[key] for key in asked if key in self._collector.rings.by_key}
        return JSONResponse({
            "rings": {
                key: {"next": ring.beat.next, "waiting": ring.beat.waiting, "lost": ring.beat.lost, "reduced": ring.beat.reduced}
                for key, ring in known.items()
            }
        })  # fmt: skip

    async def _metrics(self, request: Request) -> Response:
        if time.monotonic() - self._read_at > self._collector.policy.metric_seconds:
            self._read_at = time.monotonic()
            found = await self._desk.ask("job", {})
            self._collector.metrics.job = json.loads(found.body) if found.status == 200 else None
        return Response(self._collector.metrics.text(), media_type="text/plain; version=0.0.4")


def _host_name(host: bytes) -> str:
    """The name in a Host header, without its port."""
    text = host.decode("latin-1").lower()
    return text[1 : text.find("]")] if text.startswith("[") else text.partition(":")[0]


def _receipt_body(receipt: Receipt, came: int) -> dict[str, Any]:
    if receipt.status == 200:
        return {"received": came}
    return {"received": came, "error": receipt.reason or "rings that are not known", "unknown": list(receipt.unknown)}


async def _read_body(receive: Receive, most: int) -> bytes | None:
    """The whole body; None if it is longer than `most`."""
    message = await receive()
    if not message.get("more_body"):  # the common case: one piece
        whole: bytes = message.get("body", b"")
        return whole if len(whole) <= most else None
    parts, size = [message.get("body", b"")], len(message.get("body", b""))
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            return None
    return b"".join(parts)


async def _read_limited(request: Request) -> bytes:
    raw = b""
    async for part in request.stream():
        raw += part
        if len(raw) > 1 << 20:
            raise ValueError("too long")
    return raw


async def _send_json(send: Send, status: int, value: dict[str, Any], *, retry_after: float = 0.0, close: bool = False) -> None:
    """Sends JSON; the collector's clock is read last."""
    headers = [(b"content-type", b"application/json")]
    if retry_after:
        headers.append((b"retry-after", str(max(1, round(retry_after))).encode()))
    if close:
        headers.append((b"connection", b"close"))
    value["answered"] = time.time_ns()
    body = msgspec.json.encode(value)
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


HEADERS = {
    "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}  # fmt: skip
"""The address has the token, so it goes nowhere: no referrer, no copy on disk."""
_RELOAD = 10


def collector_page(overview: Mapping[str, Any], beats: list[dict[str, Any]], findings: Mapping[str, Any], token: str) -> str:
    """The page. `token`: for its links, which ask for the same token."""
    steps = [int(beat["step"]) for beat in beats]
    living = sum(beat["ended"] is None and beat["process"] != "gone" for beat in beats)
    found = "".join(f"<li><b>{escape(str(one['verdict']))}</b>: {escape(str(one['text']))}</li>" for one in findings["findings"])
    asked = f"?token={quote(token)}" if token else ""
    links = " · ".join(
        f'<a href="{path}{asked}">{path}</a>' for path in ("/v1/overview", "/v1/heartbeats", "/v1/findings", "/metrics")
    )
    rows = "".join(
        f"<tr><td>{int(beat['rank'])}<td>{escape(str(beat['host']))}<td>{int(beat['step'])}<td>{escape(str(beat['process']))}</tr>"
        for beat in beats[:1000]
    )
    span = f"step {min(steps)}" + (f" to {max(steps)}" if max(steps) > min(steps) else "") if steps else "no rank has sent anything"
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="{_RELOAD}">
<title>{escape(str(overview["run"]) or "windtunnel")}</title>
<style>body{{font:15px system-ui,sans-serif;margin:2em;max-width:60em}}td,th{{padding:0 1em 0 0;text-align:left}}</style>
<h1>{escape(str(overview["run"]) or "A run that has not begun")}</h1>
<p>{int(overview["world"])} ranks, {living} of them alive; {span}.</p>
<ul>{found or "<li>Nothing stands out.</li>"}</ul>
<table><tr><th>rank<th>machine<th>step<th>process</tr>{rows}</table>
<p>{links}</p></html>"""
