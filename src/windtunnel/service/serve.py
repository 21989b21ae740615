"""Runs a service until SIGTERM or SIGINT.

uvicorn behind a door that drops slow strangers, with the start and end of the application.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, SpecError
from windtunnel.fleet.collect.door import GuardedServer
from windtunnel.fleet.collect.policy import CollectPolicy
from windtunnel.service.settings import ServiceSettings

if TYPE_CHECKING:
    from windtunnel.service.web.guard import ProxySignOn

LOOPBACK = ("127.0.0.1", "localhost", "::1")
BACKLOG = 1024
_POLICY = CollectPolicy(question_seconds=600.0, body_seconds=60.0, head_seconds=10.0, strangers=256, connections=4096)
"""Limits of connections: heads, bodies and answers have so many seconds."""


@dataclass(frozen=True)
class ServePlace:
    """Where a service listens. `token_file`: its tokens; `names`: further names by which it may be called; `certificate` and `key`:
    files of TLS; `open_metrics`: /metrics needs no token; `log`: text or json, `log_level`: of the lines about requests;
    `sign_on`: of a proxy, in place of tokens or beside them."""

    host: str = "127.0.0.1"
    port: int = 8480
    token_file: str | None = None
    names: Sequence[str] = ()
    certificate: str | None = None
    key: str | None = None
    open_metrics: bool = False
    log: str = "text"
    log_level: str = "info"
    sign_on: ProxySignOn | None = None


def serve(
    settings: ServiceSettings, place: ServePlace = ServePlace(), ready: Callable[[str], None] = lambda _: None, extend: Any = None  # noqa: B008 frozen
) -> None:  # fmt: skip
    """Serves until it is told to end. `ready` is called with the address; `extend(app, door)` may mount more on the application,
    such as a page; `app.state` has `tokens` and `sessions` for it, or None. SpecError for an address of other machines without
    tokens; FileError for one that is in use."""
    import uvicorn

    from windtunnel.service.door import ServiceDoor
    from windtunnel.service.web.api import ServiceApi
    from windtunnel.service.web.guard import METRICS, OPEN_PATHS, Guard, SeenRequest
    from windtunnel.service.web.log import log_request, set_up_log
    from windtunnel.service.web.tokens import BrowserSessions, read_tokens

    tokens = read_tokens(place.token_file) if place.token_file is not None else None
    if tokens is None and place.sign_on is None and place.host not in LOOPBACK:
        raise SpecError(
            "--host", place.host, "an address of this machine alone, or tokens",
            "Type: windtunnel serve --new-token me:write --token-file tokens, then add --token-file tokens.",
        )  # fmt: skip
    listener, address = open_listener(place)
    with listener:
        door = ServiceDoor(settings)
        api = ServiceApi(door)
        app = api.app()
        set_up_log(place.log, place.log_level)

        def tell(seen: SeenRequest) -> None:
            api.metrics.count_request(seen)
            log_request(seen)

        sessions = BrowserSessions() if extend is not None and tokens is not None else None
        if extend is not None:
            app.state.tokens, app.state.sessions = tokens, sessions
            extend(app, door)
        guarded = Guard(
            app, tokens, allowed_hosts(place), door.note, settings.per_minute, settings.body_bytes, ("/ui",) if extend else (),
            sessions, tell, (*OPEN_PATHS, METRICS) if place.open_metrics else OPEN_PATHS, door.note_use, place.sign_on,
        )  # fmt: skip
        tls: dict[str, Any] = {"ssl_certfile": place.certificate, "ssl_keyfile": place.key} if place.certificate is not None else {}
        config = uvicorn.Config(
            guarded, http="httptools", loop="auto", log_level="warning", access_log=False, lifespan="on" if extend else "off",
            log_config=None, ws="auto" if extend else "none",
            backlog=BACKLOG, timeout_keep_alive=75, timeout_graceful_shutdown=5, server_header=False,
            date_header=False, proxy_headers=False, **tls,
        )  # fmt: skip
        config.load()
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        server = ServiceServer(config, _POLICY, listener)
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(_run(server, door, lambda: ready(address)))


async def _run(server: Any, door: Any, ready: Callable[[], None]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises what ended it once more, when there is still something to close
    await door.open()
    beside = asyncio.ensure_future(server.main_sweep())
    ready()
    try:
        await server.serve(sockets=[server.door._listener])
    finally:
        beside.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beside
        await door.close()


def allowed_hosts(place: ServePlace) -> Collection[str] | None:
    """Names by which a request may call the service; None, for any, where it listens on all addresses and no name was given."""
    if place.host in ("0.0.0.0", "::") and not place.names:
        return None
    return {*LOOPBACK, place.host.lower(), *(name.lower() for name in place.names)}


def open_listener(place: ServePlace) -> tuple[socket.socket, str]:
    """A socket that listens, and its address. FileError for an address that cannot be had."""
    host = place.host
    try:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, place.port))
        listener.listen(BACKLOG)
    except OSError as error:
        where = f"{host}:{place.port}"
        raise FileError(where, error.strerror or str(error), "an address that is free", "Name another --port.") from error
    shown = f"[{host}]" if ":" in host else host
    return listener, f"{'https' if place.certificate else 'http'}://{shown}:{listener.getsockname()[1]}"


class ServiceServer(GuardedServer):
    """Runs the application's own start and end too, which a mounted page needs."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """The application first, then the door."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        await super().startup(sockets)

    async def main_sweep(self) -> None:
        """Ends connections that are too slow, once a second."""
        while True:
            await asyncio.sleep(1.0)
            self.door.sweep()
