"""HTTP interface of the collector: accepts batches, answers queries. Ingest is plain ASGI, the rest Starlette.

| path | what |
|---|---|
| POST /v1/batches | a batch; 200 when durable, 400 malformed, 401, 409 unknown rings, 413 too large, 429 or 503 with Retry-After |
| POST /v1/rings | {"rings": [id]} → {"rings": {id: {"next", "waiting"}}}: how much of each the collector has, for a new shipper |
| GET /v1/sections, summaries, heartbeats, groups, hosts, facts, overview, findings, exchanges | the run (`collect.queries`) |
| GET /metrics | Prometheus |
| GET / | a page for a browser |

The page of a collector: what the run is and what stands out, without scripts. `fleet show URL --html` draws more.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from html import escape
from typing import Any
from urllib.parse import parse_qs, quote

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from windtunnel.fleet.collect.collector import Collector, Receipt
from windtunnel.fleet.collect.door import VISITOR
from windtunnel.fleet.collect.queries import QuestionDesk, query_routes

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
