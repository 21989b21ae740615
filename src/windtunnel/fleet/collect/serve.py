"""Runs a collector until SIGTERM or SIGINT: uvicorn on one event loop, compaction in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import FileError
from windtunnel.fleet.collect.policy import CollectPolicy
from windtunnel.fleet.wire.secrets import KEY, LOOPBACK, folder_token, make_secrets, publish_token

if TYPE_CHECKING:
    from windtunnel.fleet.collect.app import QuestionDesk
    from windtunnel.fleet.collect.collector import Collector
    from windtunnel.fleet.collect.door import GuardedServer

CERTIFICATE = "collector-cert.pem"
BACKLOG = 4096
"""Connections that may wait to be accepted: all nodes of a job start at the same time."""


def serve(
    folder: Path, host: str = "127.0.0.1", port: int = 8470, *, unix: Path | None = None, token: str | None = None,
    secrets: Path | None = None, db: str | None = None, policy: CollectPolicy | None = None, otlp: str | None = None,
    otlp_ranks: Sequence[int] = (0,), ready: Callable[[str], None] = lambda _: None,
) -> None:  # fmt: skip
    """Collects into `folder`. `port` 0 selects a free port; `ready` is called with the address. `secrets`: folder with a
    certificate, a key and a token for TLS, created if they are missing. Without secrets, `token` and `unix`, requests need the
    token in the folder's file `token`, which is made if it is missing and which processes of this user find by themselves.

    FileError if the folder, database or address is in use.
    """
    import uvicorn

    from windtunnel.fleet.collect.app import CollectorApp, QuestionDesk
    from windtunnel.fleet.collect.collector import Collector
    from windtunnel.fleet.collect.door import GuardedServer

    tls: dict[str, Any] = {}
    if secrets is not None:
        made = make_secrets(secrets)
        token, certificate = made.token, secrets / CERTIFICATE
        certificate.write_text(made.certificate, encoding="utf-8")
        tls = {"ssl_certfile": certificate, "ssl_keyfile": secrets / KEY}
    collector = Collector(folder, db, policy, otlp, otlp_ranks)
    desk = QuestionDesk(folder, collector.index.url, collector.policy)
    published = None
    try:
        if token is None and unix is None:
            token = folder_token(folder)
        listener, address = _open_listener(host, port, unix, "https" if tls else "http")
        published = publish_token(address, token) if token is not None else None
        hosts = {*LOOPBACK, host.lower()} if host in LOOPBACK and unix is None else None
        config = uvicorn.Config(
            CollectorApp(collector, desk, token, hosts), http="httptools", loop="auto", log_level="warning", access_log=False,
            lifespan="off", ws="none", backlog=BACKLOG, timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, round(collector.policy.close_seconds)), server_header=False, date_header=False,
            proxy_headers=False, **tls,
        )  # fmt: skip
        config.load()
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
        server = GuardedServer(config, collector.policy, listener)
        ready(address)
        with listener:
            config.get_loop_factory()  # fails early if the event loop is not installed
            with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                runner.run(_run_server(server, collector, desk, listener))
    finally:
        collector.close()
        if published is not None:
            published.unlink(missing_ok=True)
        if unix is not None:
            unix.unlink(missing_ok=True)


async def _run_server(server: GuardedServer, collector: Collector, desk: QuestionDesk, listener: socket.socket) -> None:
    async def ticking() -> None:
        while True:
            await asyncio.sleep(collector.policy.tick_seconds)
            desk.end_idle()
            server.door.sweep()
            try:
                await collector.tick()
            except OSError as error:
                logging.getLogger("windtunnel.fleet.collect").error("log: %s", error)

    beside = asyncio.ensure_future(ticking())
    try:
        await server.serve(sockets=[listener])
    finally:
        desk.close()
        beside.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beside


def _open_listener(host: str, port: int, unix: Path | None, scheme: str) -> tuple[socket.socket, str]:
    where = str(unix) if unix is not None else f"{host}:{port}"
    try:
        if unix is not None:
            unix.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(unix))
            unix.chmod(0o600)
            address = f"unix:{unix}"
        else:
            listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            shown = f"[{host}]" if ":" in host else host
            address = f"{scheme}://{shown}:{listener.getsockname()[1]}"
        listener.listen(BACKLOG)
    except OSError as error:
        raise FileError(where, error.strerror or str(error), "an address that is free", "Name another --port.") from error
    return listener, address
