"""Signing on at a proxy, which says in a header of each request who asks.

The header is believed from addresses of proxies alone. A request from another address that has it is refused, whether or not it has
a token: nobody else may name themselves.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from windtunnel.base.errors import SpecError
from windtunnel.service.web.errors import RequestError
from windtunnel.service.web.tokens import ROLES, Asker

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
