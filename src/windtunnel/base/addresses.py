"""Addresses of the network as people write them."""

from __future__ import annotations

from windtunnel.base.errors import SpecError


def host_port(text: str, option: str, allowed: str = "HOST:PORT", hint: str = "") -> tuple[str, int]:
    """Host (a name, an IPv4 address, or an IPv6 address in brackets, which are left out) and port of HOST:PORT. SpecError, which
    names the option, for another form."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SpecError(option, text, allowed, hint)
    return host.removeprefix("[").removesuffix("]"), int(port)
