"""A recorded run: sections, device meshes and the last heartbeat of every rank. Read from a folder of rings, a collector's folder
or a collector's address.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.errors import FileError
from windtunnel.fleet.collector_client import ENDLESS, CollectedRun, CollectorClient
from windtunnel.fleet.findings.liveness import Beat
from windtunnel.fleet.query_results import Heartbeat
from windtunnel.fleet.ring import RingReader
from windtunnel.fleet.rings import attempt_of, newest_run_of, open_rings, ring_sections, unrecorded_work
from windtunnel.fleet.ship.shipper import ProcessState, ShipPolicy
from windtunnel.fleet.starting import starting_ranks
from windtunnel.records.sections import Sections, join_sections

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
