"""HTTP client of the shipper: HTTP/1.1 over one open connection, by TCP, TLS with one pinned certificate, or a Unix socket.

It uses only the standard library: a shipper runs beside the ranks of every node, where its memory and start-up time count.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import Nothing, SpecError
from windtunnel.fleet.batch import Stamps
from windtunnel.fleet.wire.secrets import FILE, NAME, VARIABLE, Secrets, local_token, read_secrets

_RETRY = 2.0
_MOST_ANSWER = 1 << 20


@dataclass(frozen=True)
class Reply:
    """Answer of the collector. `status` 0: no answer."""

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


class _PinnedConnection(http.client.HTTPSConnection):
    """TLS 1.3 with the owner of the one certificate, independent of its host name."""

    def __init__(self, host: str, port: int, timeout: float, certificate: str) -> None:
        self._pinned_connection = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._pinned_connection.minimum_version = ssl.TLSVersion.TLSv1_3
        self._pinned_connection.load_verify_locations(cadata=certificate)
        super().__init__(host, port, timeout=timeout, context=self._pinned_connection)

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._pinned_connection.wrap_socket(self.sock, server_hostname=NAME)


def secrets_at(path: str | Path | None = None) -> Secrets:
    """The secrets in a file, or in the folder that contains it; by default those of $WINDTUNNEL_FLEET_SECRETS. SpecError if none is
    given, FileError if the file cannot be read, or others can read it.
    """
    named = path or os.environ.get(VARIABLE)
    if not named:
        raise SpecError("--secrets", Nothing(), "the secrets of an https collector", f"Give --secrets DIR, or set {VARIABLE}.")
    where = Path(named)
    return read_secrets(where / FILE if where.is_dir() else where)


def connection_to(
    url: str, timeout: float, token: str | None = None, secrets: str | Path | None = None
) -> tuple[http.client.HTTPConnection, dict[str, str]]:
    """An unopened connection to a collector at `http://host:port`, `https://host:port` or `unix:PATH`, and the headers of each
    request. `secrets`: for https, whose token is used. Without `token`, that of a collector which this user runs on this machine.
    SpecError for another address.
    """
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        known = secrets_at(secrets)
        return _pinned_connection(url, timeout, known.certificate), _authorization(known.token)
    token = token or local_token(url)
    return _plain_connection(url, timeout), _authorization(token) if token else {}


def _authorization(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _pinned_connection(url: str, timeout: float, certificate: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    try:
        return _PinnedConnection(parts.hostname or "", parts.port or 8470, timeout, certificate)
    except ValueError as error:  # an invalid port
        raise SpecError("--collector", url, "https://HOST:PORT", "`windtunnel fleet collect` prints its address.") from error


def _plain_connection(url: str, timeout: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if parts.scheme == "unix" and parts.path:
        return _UnixConnection(parts.path, timeout)
    if parts.scheme == "http" and host:
        return http.client.HTTPConnection(host, port or 8470, timeout=timeout)
    raise SpecError(
        "--collector", url, "http://HOST:PORT, https://HOST:PORT or unix:PATH", "`windtunnel fleet collect` prints its address."
    )


class Poster:
    """Posts to the collector at an address as in `connection_to`. SpecError for another address, or if the collector has another
    certificate; it raises no other error.
    """

    def __init__(
        self, url: str, token: str | None, timeout: float, clock: Callable[[], int], secrets: str | Path | None = None
    ) -> None:
        self._clock, self._url, self._found = clock, url, token is None
        self._connection, self._headers = connection_to(url, timeout, token, secrets)

    def post(self, path: str, body: bytes) -> Reply:
        """Sends `body` and waits for the answer."""
        reply = self._post(path, body)
        token = local_token(self._url) if reply.status == 401 and self._found else None
        if token is not None and self._headers != _authorization(token):
            self._headers = _authorization(token)  # the collector started after the shipper, or anew in another folder
            reply = self._post(path, body)
        return reply

    def _post(self, path: str, body: bytes) -> Reply:
        sent = self._clock()
        try:
            self._connection.request("POST", path, body, self._headers)
            response = self._connection.getresponse()
            raw = response.read(_MOST_ANSWER)
        except ssl.SSLCertVerificationError as error:
            self._connection.close()
            raise SpecError(
                "--collector", self._url, "the collector whose secrets these are", f"{error.verify_message}."
            ) from error
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
