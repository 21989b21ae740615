"""What every request passes first: the name it calls the service by, its token, where it comes from, how often it comes, its size.

And what every response gets: headers that keep a browser from guessing, framing, caching and running what is none of ours; a line
of the audit log for whatever changes something or is refused.

Signing on at a proxy, which says in a header of each request who asks.

The header is believed from addresses of proxies alone. A request from another address that has it is refused, whether or not it has
a token: nobody else may name themselves.

What is known of a request when it has its response.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.fleet.collect.door import VISITOR
from windtunnel.service.web.errors import RequestError, error_response
from windtunnel.service.web.tokens import LOCAL, ROLES, Asker, BrowserSessions, Tokens

_SECRET = re.compile(r"wt_[A-Za-z0-9_-]{16,}|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)|(?<=[Bb]earer )\S+")


@dataclass(frozen=True)
class SeenRequest:
    """A request and its response. `who`: name of its token; `came_from`: address; `path`: without the query, which may have
    secrets; `status`: 101 for a WebSocket, 499 where the client left first; `sent`: bytes of the response; `key`: of its
    question, or ''."""

    who: str
    method: str
    path: str
    came_from: str
    status: int
    seconds: float
    sent: int
    key: str
    is_stream: bool


def without_secrets(text: str) -> str:
    """The text without tokens, and without passwords in URLs."""
    return _SECRET.sub("…", text)


_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_PERSON = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
_OURS = ("authorization", "cookie", "host", "origin", "content-type", "content-length")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class ProxySignOn:
    """`header`: its name in lower case; `proxies`: addresses that are believed; `role`: of whoever comes through them."""

    header: bytes
    proxies: Sequence[Network]
    role: str

    def asker(self, headers: Iterable[tuple[bytes, bytes]], came_from: str) -> Asker | None:
        """Who a request names in the header; None where it has none. RequestError from an address that is no proxy, and for what
        is no name."""
        values = [value for name, value in headers if name == self.header]
        if not values:
            return None
        if not self.believes(came_from):
            instead = f"Ask through the proxy, or without the header {self.header.decode()}."
            raise RequestError(403, "UntrustedProxy", "this address may not say who asks.", instead)
        name = values[0].decode("latin-1").strip()
        if len(values) > 1 or not _PERSON.fullmatch(name):
            raise RequestError(400, "BadName", "the proxy's header is not one name of letters, digits and . _ @ + - alone.")
        return Asker(name, self.role)

    def believes(self, came_from: str) -> bool:
        """Whether a request comes from a proxy."""
        try:
            address = ipaddress.ip_address(came_from)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in self.proxies)


def proxy_sign_on(header: str | None, proxies: Sequence[str], role: str = "write") -> ProxySignOn | None:
    """What options say; None where they name no header. SpecError for a header without proxies, or proxies without a header."""
    if header is None:
        if proxies:
            raise SpecError("--trusted-proxy", proxies[0], "--sign-on-header NAME beside it")
        return None
    if not _HEADER.fullmatch(header) or header.lower() in _OURS:
        raise SpecError("--sign-on-header", header, "a header of the proxy, such as X-Forwarded-User")
    if not proxies:
        raise SpecError("--sign-on-header", header, "--trusted-proxy ADDRESS beside it")
    if role not in ROLES:
        raise SpecError("--sign-on-role", role, "read or write")
    return ProxySignOn(header.lower().encode(), tuple(map(_network, proxies)), role)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise SpecError("--trusted-proxy", text, "an address such as 10.0.0.5, or a network such as 10.0.0.0/24") from error


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Note = Callable[[str, str, str, int, float], None]

ASKER = "windtunnel.asker"
"""Key of the `Asker` in the state of a request."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer our own form comes with `Origin: null`, like one of another site
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
CONTENT_POLICY = b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
PAGE_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; font-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""Of a page that a verb wrote: its own scripts and styles, in an origin of its own, from where it reaches nothing of the
service."""
_SECRETS = ("token", "access_token", "api_key", "apikey", "authorization", "key_token", "bearer")
_READS = ("GET", "HEAD", "OPTIONS")
_MOST_ASKERS = 10_000
SIGN_IN = "/ui/sign-in"
"""Where a browser without a session is sent."""
STATIC = "/ui/_nicegui/"
"""Scripts and styles of the page, tens of files of every opening: they do not count as requests."""
SOCKET = "/ui/_nicegui_ws/"
"""Where the page talks to its server, by WebSocket or by polling: no other site may, not even to read."""
HEALTH_PATHS = ("/healthz", "/readyz")
METRICS = "/metrics"
OPEN_PATHS = (*HEALTH_PATHS, SIGN_IN)
"""Paths that need no token: they say whether the service is well, or take one."""


class RateLimit:
    """At most `per_minute` requests of one asker in a minute, a tenth of them at once (and ten at least)."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._most, self._clock = per_minute / 60.0, max(10.0, per_minute / 10.0), clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, who: str) -> float:
        """Counts a request; returns 0 if it may pass, else after how many seconds the next one may."""
        now = self._clock()
        left, since = self._left.pop(who, (self._most, now))
        left = min(self._most, left + (now - since) * self._rate)
        passes = left >= 1.0
        self._left[who] = (left - 1.0 if passes else left, now)
        while len(self._left) > _MOST_ASKERS:
            self._left.popitem(last=False)
        return 0.0 if passes else (1.0 - left) / self._rate


class Guard:
    """ASGI middleware. `tokens` None: everybody on this machine may ask; `hosts`: names by which a request may call the service,
    None for any; `own_policy`: paths below which responses set their content policy themselves; `sessions`: of browsers; `tell`: is
    called with each request that has its response; `open_paths`: need no token; `note_use`: is told the hash of each token used;
    `sign_on`: of a proxy."""

    def __init__(
        self, app: Any, tokens: Tokens | None, hosts: Collection[str] | None, note: Note, per_minute: int = 1200,
        body_bytes: int = 64 << 20, own_policy: Collection[str] = (), sessions: BrowserSessions | None = None,
        tell: Callable[[SeenRequest], None] = lambda _: None, open_paths: Collection[str] = OPEN_PATHS,
        note_use: Callable[[str], None] = lambda _: None, sign_on: ProxySignOn | None = None,
    ) -> None:  # fmt: skip
        self._app, self._tokens, self._hosts, self._note = app, tokens, hosts, note
        self._note_use, self._sign_on = note_use, sign_on
        self._sessions, self._tell, self._open_paths = sessions, tell, frozenset(open_paths)
        self._rate, self._body_bytes, self._own_policy = RateLimit(per_minute), body_bytes, tuple(own_policy)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        came_from = str((scope.get("client") or ("",))[0])
        asker, method = Asker("nobody", "none"), str(scope.get("method", "GET"))
        status, sent, key, began = 0, 0, "", time.monotonic()

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal status, sent, key
            if message["type"] == "http.response.start":
                status = int(message["status"])
                key = dict(message.get("headers", [])).get(b"x-windtunnel-key", b"").decode("ascii")
                message["headers"] = self._headers(scope, message.get("headers", []))
            elif message["type"] == "websocket.accept":
                status = 101
            sent += len(message.get("body", b""))
            await send(message)

        try:
            asker = self._admit(scope, came_from)
            scope.setdefault("state", {})[ASKER] = asker
            visitor = scope["state"].get(VISITOR)
            if visitor is not None:
                visitor.welcome()
            await self._app(scope, self._bound_body(receive), sending)
        except RequestError as error:
            if status == 0:
                response = RedirectResponse(SIGN_IN, 303) if self._may_sign_in(scope, error) else error_response(error)
                await response(scope, receive, sending)
        except ClientDisconnect:
            status = 499  # nobody is left to answer, and nothing of the service is wrong
        finally:
            path = without_secrets(str(scope.get("path", "")))
            is_stream = scope["type"] == "websocket" or path.startswith(SOCKET) or path.endswith("/events")
            seconds = time.monotonic() - began
            self._tell(SeenRequest(asker.name, method, path, came_from, status or 500, seconds, sent, key, is_stream))
            if method not in _READS or status in (400, 401, 403, 413, 421, 429):
                self._note(asker.name, f"{method} {path}", came_from, status, seconds)

    def _admit(self, scope: Scope, came_from: str) -> Asker:
        headers = dict(scope["headers"])
        host = host_name(headers.get(b"host", b""))
        if self._hosts is not None and host not in self._hosts:
            raise RequestError(
                421, "WrongHost", "the service is not called so.", "Ask by its address, or start it with --name NAME."
            )
        sign_on = self._sign_on
        by_proxy = sign_on is not None and sign_on.header in headers and sign_on.believes(came_from)
        if not by_proxy and not scope["path"].startswith(STATIC):  # everybody behind a proxy comes from its address
            wait = self._rate.wait(came_from)
            if wait:
                raise _too_often(wait)
        query = parse_qsl(bytes(scope.get("query_string", b"")).decode("latin-1"), keep_blank_values=True)
        if any(name.lower() in _SECRETS for name, _ in query):
            instead = "Send the header Authorization: Bearer TOKEN, and make a new token: this one may be in logs now."
            raise RequestError(400, "TokenInUrl", "a token may not be in a URL.", instead)
        origin = headers.get(b"origin")
        fetched = headers.get(b"sec-fetch-site", b"none")
        changes = scope["type"] == "websocket" or scope.get("method") not in _READS or scope["path"].startswith(SOCKET)
        if changes and (origin is not None and host_name(origin.partition(b"://")[2]) != host or fetched == b"cross-site"):
            raise RequestError(403, "WrongOrigin", "a page of another site may not ask this service.")
        person = None if sign_on is None else sign_on.asker(scope["headers"], came_from)
        if scope["path"] in self._open_paths or (self._tokens is None and sign_on is None):
            return LOCAL
        asker = self._token_asker(scope, headers, changes) if person is None else person
        if person is None or not scope["path"].startswith(STATIC):
            wait = self._rate.wait(f"token {asker.name}")
            if wait:
                raise _too_often(wait)
        return asker

    def _token_asker(self, scope: Scope, headers: Mapping[bytes, bytes], changes: bool) -> Asker:
        if self._tokens is None:
            raise RequestError(401, "SignOnNeeded", "the service is asked through its proxy.", "Sign on there.")
        self._tokens.refresh()
        asker = self._tokens.asker(headers.get(b"authorization", b""))
        if asker is None and self._sessions is not None and (not changes or scope["path"].startswith("/ui/")):
            asker = self._sessions.asker(headers.get(b"cookie", b""))
        if asker is None:
            raise RequestError(
                401,
                "TokenNeeded",
                "a token is needed.",
                "Send the header Authorization: Bearer TOKEN.",
                {"WWW-Authenticate": "Bearer"},
            )
        refusal = self._tokens.refusal(asker)
        if refusal is not None:
            instead = "Ask whoever runs the service for a new one."
            raise RequestError(401, *refusal, instead, {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        self._note_use(asker.token)
        return asker

    def _may_sign_in(self, scope: Scope, error: RequestError) -> bool:
        """Whether a refusal is better answered by the form for a token: somebody opened the page in a browser."""
        accepts = dict(scope["headers"]).get(b"accept", b"")
        page = str(scope.get("path", "")) in ("/", "/ui") or str(scope.get("path", "")).startswith("/ui/")
        asked = scope["type"] == "http" and scope.get("method") == "GET" and b"text/html" in accepts
        return self._sessions is not None and error.table["kind"].startswith("Token") and error.status == 401 and page and asked

    def _bound_body(self, receive: Receive) -> Receive:
        seen = 0

        async def receiving() -> MutableMapping[str, Any]:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._body_bytes:
                raise too_large(self._body_bytes)
            return message

        return receiving

    def _headers(self, scope: Scope, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        named = {name.lower() for name, _ in headers}
        added = [(name, value) for name, value in HEADERS if name not in named]
        own = any(str(scope["path"]).startswith(path) for path in self._own_policy)
        if b"content-security-policy" not in named and not own:
            added.append((b"content-security-policy", CONTENT_POLICY))
        if b"cache-control" not in named:
            added.append((b"cache-control", b"no-store"))
        return [*headers, *added]


def too_large(most: int) -> RequestError:
    """The refusal of a body."""
    return RequestError(413, "BodyTooLarge", f"a request has at most {most / 1e6:.3g} MB.", headers={"Connection": "close"})


def _too_often(wait: float) -> RequestError:
    return RequestError(429, "TooOften", "too many requests.", "Ask again later.", {"Retry-After": str(max(1, round(wait + 0.5)))})


def host_name(host: bytes) -> str:
    """The name in a Host header, without its port."""
    text = host.decode("latin-1").lower().strip()
    return text[1 : text.find("]")] if text.startswith("[") else text.partition(":")[0]
