"""A link with a long way: what a page far away from its service sees."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from types import TracebackType


class SlowLink:
    """Carries connections to a port of loopback; each piece arrives `delay_s` seconds after it was sent, in both directions."""

    def __init__(self, port: int, delay_s: float) -> None:
        self._to, self._delay = port, delay_s
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> SlowLink:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                for source, target in ((near, far), (far, near)):
                    pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                    threading.Thread(target=self._receive, args=(source, pieces), daemon=True).start()
                    threading.Thread(target=_send, args=(target, pieces), daemon=True).start()

    def _receive(self, source: socket.socket, pieces: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            pieces.put((time.monotonic() + self._delay, data))


def _send(target: socket.socket, pieces: queue.SimpleQueue[tuple[float, bytes]]) -> None:
    with contextlib.suppress(OSError), target:
        while True:
            due, data = pieces.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                return
            target.sendall(data)
