"""Collectors and rings for the tests of the fleet: a server process on loopback, killed by its id."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from forked_ranks import RankForge, forge_of

from windtunnel.fleet.batch import OPEN_ROWS, SUMMARIES, Batch, BatchMeta, BatchTable, RankBeat, RingIdentity, table_of_rows
from windtunnel.fleet.ring import ROW, RowState


class Server:
    """A collector in a process of its own, which is forked. `alone`: by a new interpreter, whose errors go where the test's go."""

    def __init__(self, folder: Path, *, alone: bool = False, **told: Any) -> None:
        self._place = tempfile.TemporaryDirectory() if alone else None
        script = Path(__file__).with_name("forked_collectors.py")
        self._forge = forge_of(script) if self._place is None else RankForge(script, Path(self._place.name))
        self._job = self._forge.started("collector", 1, [{"folder": str(folder), **told}], {})
        self._code: int | None = None
        until = time.monotonic() + 120
        while not (said := self._job.said()[0]):
            assert time.monotonic() < until, "the collector did not start"
            time.sleep(0.005)
        self.url: str = said[0]["address"]
        self.folder = folder
        self.port = int(self.url.rpartition(":")[2]) if self.url.startswith("http") else 0

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.suppress(FileNotFoundError):
            headers = {"Authorization": f"Bearer {(self.folder / 'token').read_text().strip()}", **headers}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        return response.status, json.loads(raw) if "json" in (response.getheader("content-type") or "") else raw

    def kill(self, number: int = signal.SIGKILL) -> int:
        if self._code is None:
            os.kill(self._job.pids[0], number)
            (self._code,) = self._forge.ended(self._job, 60)
            if self._place is not None:
                self._forge.close()
                self._place.cleanup()
        return self._code


@contextlib.contextmanager
def collecting(folder: Path, **told: Any) -> Iterator[Server]:
    server = Server(folder, **told)
    try:
        yield server
    finally:
        server.kill(signal.SIGTERM)


def rows_of(steps: Sequence[int], each: int = 5) -> Any:
    """Done rows of some steps, `each` a step; times are told by step and place."""
    rows = np.zeros(len(steps) * each, ROW)
    rows["step"] = np.repeat(steps, each)
    rows["begin"] = 1_700_000_000_000_000_000 + rows["step"].astype(np.int64) * 1_000_000_000 + np.tile(np.arange(each), len(steps))
    rows["nanos"] = rows["host_nanos"] = np.tile(np.arange(each), len(steps)) + 1000 * rows["step"]
    rows["section"] = np.tile(np.arange(each) % 5, len(steps))
    rows["name"] = np.tile(np.arange(each) % 2, len(steps))
    rows["group"] = np.where(rows["section"] == 4, 0, -1)
    rows["peer"] = rows["call"] = rows["micro_batch"] = -1
    rows["bytes"] = np.where(rows["section"] == 4, 4096, -1)
    rows["state"] = RowState.DONE
    return rows


def identity(rank: int, world: int = 8, node: str = "node0", pid: int = 1) -> RingIdentity:
    return RingIdentity("job", rank, world, rank % 8, node, pid, "cpu", 0, 65536, {"tp": 2})


def batch_of(
    node: int,
    sequence: int,
    steps: Sequence[int],
    *,
    ranks: int = 2,
    boot: bytes | None = None,
    introduce: bool = False,
    each: int = 5,
) -> Batch:
    """Batch number `sequence` of a node whose ranks have done `steps`."""
    identities = [identity(node * ranks + rank, node=f"node{node}", pid=node + 1) for rank in range(ranks)]
    first = steps[0] * each if len(steps) else 0
    rows = [rows_of(steps, each) for _ in range(ranks)]
    numbers = [np.arange(first, first + len(part)) for part in rows]
    lines: list[tuple[str, Any]] = [("name", "forward"), ("group", {"name": "dp", "ranks": [0, 1]}), ("name", f"of node {node}")]
    beats = [
        RankBeat(
            who.key(), first + len(rows[0]), steps[-1] if len(steps) else 0, 1_700_000_000_000_000_000 + sequence, "running",
            next=first + len(rows[0]), identity=who if introduce else None, lines_from=0 if introduce else 3,
            lines=[0, 1, 2] if introduce else [],
        )
        for who in identities
    ]  # fmt: skip
    return Batch(
        boot or node.to_bytes(16, "big"), sequence, BatchMeta(f"node{node}", sequence, beats, lines if introduce else []),
        table_of_rows(numbers, rows), BatchTable.empty(OPEN_ROWS, ranks), BatchTable.empty(SUMMARIES, ranks),
    )  # fmt: skip
