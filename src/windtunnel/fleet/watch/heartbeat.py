"""Heartbeat of a process: a thread that writes the current time into the ring."""

from __future__ import annotations

import threading

from windtunnel.fleet.ring import RingWriter


class BeatThread:
    """Writes a heartbeat every `seconds` while Python threads can run.

    A stopped process, or one that holds the interpreter lock, stops beating; one that waits in a collective does not.
    """

    def __init__(self, ring: RingWriter, seconds: float) -> None:
        self._ring, self._seconds = ring, seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="windtunnel-beat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread."""
        self._ended.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._ring.beat()
