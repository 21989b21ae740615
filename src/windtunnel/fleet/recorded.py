"""A recorded run: sections, device meshes and the last heartbeat of every rank. Read from a folder of rings, a collector's folder
or a collector's address.

Client for the queries of a collector, over HTTP, HTTPS or a Unix socket, for processes without access to its folder.

It uses the connections of `ship.post`, which are those of the standard library. httpx was measured instead: imports take 182 ms and
22 MiB instead of 22 ms and 8 MiB, an answer of 200 MiB 0.35 s and 434 MiB instead of 0.18 s and 233 MiB (two cores, loopback), and
`fleet run` and its monitor use this client beside the ranks.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.fleet.batch import Stamps
from windtunnel.fleet.findings.liveness import Beat
from windtunnel.fleet.query_results import Heartbeat, IdSelection, OpenSection
from windtunnel.fleet.ring import RingReader
from windtunnel.fleet.rings import attempt_of, newest_run_of, open_rings, ring_sections, unrecorded_work
from windtunnel.fleet.ship.post import connection_to
from windtunnel.fleet.ship.shipper import ProcessState, ShipPolicy
from windtunnel.fleet.starting import starting_ranks
from windtunnel.records.sections import COLUMNS, Sections, join_sections

TIMEOUT = 120.0
"""Timeout of one query in seconds."""
ENDLESS = 1 << 40
"""End of an open range of steps."""


class CollectedRun(Protocol):
    """Queries that `RunStore` and `CollectorClient` both answer."""

    def sections(self, steps: IdSelection = None, ranks: IdSelection = None) -> Sections: ...

    def heartbeats(self) -> list[Heartbeat]: ...

    def overview(self) -> dict[str, Any]: ...

    def exchanges(self, since: float | None = None) -> dict[str, list[Stamps]]: ...

    def close(self) -> None: ...


class CollectorClient:
    """A run at `http://host:port`, `https://host:port` (secrets: $WINDTUNNEL_FLEET_SECRETS) or `unix:PATH`.

    FileError if the collector does not answer or refuses the query.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = TIMEOUT) -> None:
        self.url = url
        self._connection, self._headers = connection_to(url, timeout, token)
        self._clock_offset = 0.0  # the collector's clock minus this machine's

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def now(self) -> float:
        """Unix seconds on the collector's clock, as of the last `overview`."""
        return time.time() + self._clock_offset

    def overview(self) -> dict[str, Any]:
        """As `RunStore.overview`."""
        overview: dict[str, Any] = json.loads(self._get("/v1/overview"))
        self._clock_offset = float(overview.pop("now", time.time())) - time.time()
        return overview

    def heartbeats(self) -> list[Heartbeat]:
        """As `RunStore.heartbeats`."""
        beats = json.loads(self._get("/v1/heartbeats"))
        return [Heartbeat(**{**one, "open": tuple(OpenSection(**inside) for inside in one["open"])}) for one in beats]

    def exchanges(self, since: float | None = None) -> dict[str, list[Stamps]]:
        """As `RunStore.exchanges`."""
        found = json.loads(self._get("/v1/exchanges" + ("" if since is None else f"?since={since!r}")))
        return {node: [Stamps(*one) for one in rows] for node, rows in found.items()}

    def sections(self, steps: IdSelection = None, ranks: IdSelection = None) -> Sections:
        """As `RunStore.sections`. A result that is too large for one answer is requested in halves of its steps."""
        rank_query = f"&ranks={','.join(map(str, sorted(ranks)))}" if ranks is not None else ""
        if isinstance(steps, range) and abs(steps.step) != 1 and steps:
            low, high = min(steps[0], steps[-1]), max(steps[0], steps[-1])
            found = self._span(low, high + 1, rank_query)
            return found.where((found.step - low) % abs(steps.step) == 0)
        if steps is not None and not isinstance(steps, range):
            return self._sections(",".join(map(str, sorted(steps))), rank_query)
        low, high = (steps.start, steps.stop) if steps is not None else (-1, ENDLESS)
        return self._span(low, high, rank_query)

    def _span(self, low: int, high: int, rank_query: str) -> Sections:
        try:
            return self._sections(f"{low}:{high}", rank_query)
        except _TooMuch:
            last = max((beat.step for beat in self.heartbeats()), default=low)
            high = min(high, last + 1)
            middle = (low + high) // 2
            if not low < middle < high:
                raise  # one step has more rows than an answer
            return join_sections(
                [self._span(low, middle, rank_query), self._span(middle, high if high <= last else ENDLESS, rank_query)]
            )

    def _sections(self, steps: str, rank_query: str) -> Sections:
        import pyarrow as pa

        table = pa.ipc.open_stream(self._get(f"/v1/sections?steps={steps}{rank_query}&format=arrow")).read_all()
        tables = json.loads(table.schema.metadata[b"windtunnel"])
        return Sections.of(
            **{name: table.column(name).to_numpy(zero_copy_only=False) for name in COLUMNS},
            names=tuple(tables["names"]), groups=tuple(tuple(one) for one in tables["groups"]),
            group_names=tuple(tables["group_names"]), hosts={int(rank): host for rank, host in tables["hosts"].items()},
            zero=float(tables["zero"]),
        )  # fmt: skip

    def _get(self, path: str) -> bytes:
        try:
            self._connection.request("GET", path, headers=self._headers)
            response = self._connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise FileError(self.url, str(error) or "no answer", "a collector that runs", _TRY) from error
        if response.status == 401:
            raise FileError(self.url, "a token is needed", "the collector's token", "Set WINDTUNNEL_FLEET_TOKEN.")
        if response.status == 400 and b"rows" in raw:
            raise _TooMuch(self.url, "more rows than one answer may have", "fewer steps", "Type --last 20.")
        if response.status != 200:
            raise FileError(self.url, f"status {response.status}", "a collector of this version of windtunnel", _TRY)
        return raw


_TRY = "`windtunnel fleet collect` prints its address; name its folder if it has ended."


class _TooMuch(FileError):
    """The answer would have too many rows."""


_STILL_NEW = 60.0
"""Seconds after the last received heartbeat during which a stored run counts as still running."""


_EXCHANGED = 120.0
"""Seconds of clock exchanges that are read before the first step that is asked for; clocks are less than that apart."""


@dataclass(frozen=True)
class Recorded:
    """A run as it was recorded."""

    run: str
    world: int
    sections: Sections
    meshes: tuple[Mapping[str, Any], ...]
    beats: Mapping[int, Beat]
    facts: Mapping[str, Any]
    now: float
    """Unix seconds at which it was read."""
    lost: int = 0
    """Records that the rings overwrote before they were read."""
    pids: Mapping[int, int] = field(default_factory=dict)
    """Process ids, by rank, of ranks on this machine."""
    starting: Mapping[int, int] = field(default_factory=dict)
    """Ranks of this machine that have begun and have no records yet: rank → process id, 0 if it has ended."""
    exchanges: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    """Clock timestamps exchanged between shippers and the collector, by machine."""


def recorded_of_rings(folder: Path, rows: int | None = None) -> Recorded:
    """Reads the rings of a folder (the last `rows` records of each), while the ranks run or afterwards. FileError if there are
    none.
    """
    now = time.time()
    with open_rings(folder) as found:
        readers = newest_run_of(found)
        parts: list[Sections] = []
        beats: dict[int, Beat] = {}
        meshes: dict[str, Mapping[str, Any]] = {}
        pids: dict[int, int] = {}
        lost = 0
        for reader in readers:
            tail = reader.read(0 if rows is None else max(reader.head() - rows, 0))
            parts.append(ring_sections(reader, tail.rows))
            lost += tail.lost if rows is None else 0
            meta = reader.meta
            here = meta.host == socket.gethostname()
            alive = ProcessState(meta.pid).state() if here else ""
            if here:
                pids[meta.rank] = meta.pid
            progress = tail.first + len(tail.rows)
            beats[meta.rank] = Beat(
                meta.rank, max(now - tail.beat_ns * 1e-9, 0.0), progress, tail.step, alive, tail.ended, meta.host
            )
            meshes.update({str(value): value for kind, value in reader.lines() if kind == "mesh"})
        first = readers[0].meta
        return Recorded(
            first.run, first.world, join_sections(parts), tuple(meshes.values()), beats, _facts(readers), now, lost, pids,
            starting_ranks(folder, beats, attempt_of(readers)),
        )  # fmt: skip


def recorded_of_store(folder: Path, last: int | None = None) -> Recorded:
    """Reads a collector's folder (the last `last` steps), while the collector runs or afterwards. FileError if there is no run."""
    from windtunnel.fleet.collect.store import open_run  # imported here: rings do not need SQLAlchemy, which is slow to import

    run = open_run(folder)
    try:
        return _read_collected(run, str(folder), last, None)
    finally:
        run.close()


def recorded_of_url(url: str, token: str | None = None, last: int | None = None) -> Recorded:
    """Reads from the collector at `url` (the last `last` steps). FileError if it does not answer or has received nothing yet."""
    run = CollectorClient(url, token)
    try:
        return _read_collected(run, url, last, run.now)
    finally:
        run.close()


def _read_collected(run: CollectedRun, where: str, last: int | None, clock: Callable[[], float] | None) -> Recorded:
    """`clock`: time of a live collector. Without it the run is dated by its last heartbeat, unless that is recent."""
    overview, beats = run.overview(), run.heartbeats()
    if not beats:
        raise FileError(
            where, "a run of which nothing has come yet", "a run whose shippers have sent", "Look at `windtunnel fleet ship`."
        )
    newest = max(beat.received for beat in beats)
    now = clock() if clock else time.time() if 0 <= time.time() - newest < _STILL_NEW else newest
    step = max(beat.step for beat in beats)
    sections = run.sections(None if last is None else range(max(step - last + 1, -1), ENDLESS))
    exchanges = run.exchanges(_exchanges_since(sections, last))
    here = socket.gethostname()
    pids = {beat.rank: beat.pid for beat in beats if beat.host == here and ProcessState(beat.pid).state() != "gone"}
    ahead = {
        node: float(np.median([(one[1] - one[0] + one[2] - one[3]) / 2 for one in rows])) / 1e9 for node, rows in exchanges.items()
    }
    every = 2 * ShipPolicy().seconds(int(overview["world"])) + 1.0
    signs = {beat.rank: _beat_of(beat, ahead.get(beat.host, 0.0), now, every) for beat in beats}
    return Recorded(
        str(overview["run"]), int(overview["world"]), sections, tuple(overview["meshes"]), signs, overview["facts"], now,
        int(overview["lost"]), pids, exchanges=exchanges,
    )  # fmt: skip


def _exchanges_since(sections: Sections, last: int | None) -> float | None:
    """Unix time from which clock exchanges are read: of a run's last steps, those of their time, with at least a few minutes."""
    if last is None or not len(sections):
        return None
    end = sections.zero + float(sections.begin.max())
    return min(sections.zero + float(sections.begin.min()), end - _EXCHANGED) - _EXCHANGED


def _beat_of(beat: Heartbeat, ahead: float, now: float, every: float) -> Beat:
    """Converts a stored heartbeat. `ahead`: the collector's clock minus the machine's; `every`: seconds without a message after
    which the shipper itself counts as silent.
    """
    silent = max(beat.received - (beat.beat + ahead), 0.0)
    unheard = now - beat.received
    return Beat(
        beat.rank, silent + (unheard if unheard > every else 0.0), beat.head, beat.step, beat.process, beat.ended, beat.host
    )  # fmt: skip


def _facts(readers: list[RingReader]) -> dict[str, Any]:
    """Facts on which all ranks agree, plus the list of devices."""
    shared = dict(readers[0].meta.facts)
    for reader in readers[1:]:
        shared = {key: value for key, value in shared.items() if reader.meta.facts.get(key) == value}
    overview = {one for reader in readers for kind, value in reader.lines() if kind == "fact" for one in unrecorded_work(value)}
    return {
        **shared,
        "devices": sorted({reader.meta.device for reader in readers}),
        **({"unseen": sorted(overview)} if overview else {}),
    }
