"""The way to the collector: HTTP/1.1 over one connection that stays open, TCP or a Unix socket."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from windtunnel.base.errors import SpecError
from windtunnel.fleet.batch import Stamps

_RETRY = 2.0
_MOST_ANSWER = 1 << 20


@dataclass(frozen=True)
class Reply:
    """What the collector said. `status` 0: nobody answered."""

    status: int
    value: dict[str, Any]
    retry_after: float = 0.0
    stamps: Stamps | None = None


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connection_to(url: str, timeout: float) -> http.client.HTTPConnection:
    """A connection, not yet open, to a collector at `http://host:port` or `unix:PATH`. SpecError for another address."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if parts.scheme == "unix" and parts.path:
        return _UnixConnection(parts.path, timeout)
    if parts.scheme == "http" and host:
        return http.client.HTTPConnection(host, port or 8470, timeout=timeout)
    raise SpecError("--collector", url, "http://HOST:PORT or unix:PATH", "`windtunnel fleet collect` prints its address.")


class Poster:
    """Posts to a collector at `http://host:port` or `unix:PATH`. SpecError for another address; no other error leaves it."""

    def __init__(self, url: str, token: str | None, timeout: float, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection = connection_to(url, timeout)

    def post(self, path: str, body: bytes) -> Reply:
        """Sends `body` and waits for the answer."""
        sent = self._clock()
        try:
            self._connection.request("POST", path, body, self._headers)
            response = self._connection.getresponse()
            raw = response.read(_MOST_ANSWER)
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return Reply(0, {})
        back = self._clock()
        try:
            value = json.loads(raw)
        except ValueError:
            value = {}
        value = value if isinstance(value, dict) else {}
        received, answered = value.get("received"), value.get("answered")
        stamps = Stamps(sent, received, answered, back) if isinstance(received, int) and isinstance(answered, int) else None
        return Reply(response.status, value, _seconds(response.getheader("Retry-After")), stamps)

    def close(self) -> None:
        self._connection.close()


def _seconds(text: str | None) -> float:
    return min(60.0, float(text)) if text and text.isdigit() else _RETRY
