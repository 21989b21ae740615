"""What a watched run has left: its sections, its meshes, and the last sign of life of every rank. From the rings of a folder, or
from what a collector has."""

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
from windtunnel.fleet.rings import open_rings, ring_sections, unrecorded_work
from windtunnel.fleet.ship.policy import ShipPolicy
from windtunnel.fleet.ship.process_state import ProcessState
from windtunnel.records.sections import Sections, joined

_STILL_NEW = 60.0
"""Seconds after a collector's last news during which its run counts as running."""


@dataclass(frozen=True)
class Recorded:
    """A run as its records have it. `now`: unix seconds of the reading; `lost`: records that rings overtook before anybody read
    them."""

    run: str
    world: int
    sections: Sections
    meshes: tuple[Mapping[str, Any], ...]
    beats: Mapping[int, Beat]
    facts: Mapping[str, Any]
    now: float
    lost: int = 0
    pids: Mapping[int, int] = field(default_factory=dict)  # of ranks on this machine
    exchanges: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)  # of shippers with the collector, by machine


def recorded_of_rings(folder: Path, rows: int | None = None) -> Recorded:
    """What the rings of a folder hold (the last `rows` of each), while their ranks run or after. FileError where there is none."""
    now = time.time()
    with open_rings(folder) as readers:
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
        return Recorded(first.run, first.world, joined(parts), tuple(meshes.values()), beats, _facts(readers), now, lost, pids)


def recorded_of_store(folder: Path, last: int | None = None) -> Recorded:
    """What a collector has kept in `folder` (of the last `last` steps), while it runs or after. FileError where there is no run."""
    from windtunnel.fleet.collect.store import open_run  # here: rings need no SQLAlchemy, which is slow to import

    run = open_run(folder)
    try:
        return _read_collected(run, str(folder), last, None)
    finally:
        run.close()


def recorded_of_url(url: str, token: str | None = None, last: int | None = None) -> Recorded:
    """What the collector at `url` has, of the last `last` steps. FileError where nobody answers, or nothing has come yet."""
    run = CollectorClient(url, token)
    try:
        return _read_collected(run, url, last, run.now)
    finally:
        run.close()


def _read_collected(run: CollectedRun, where: str, last: int | None, clock: Callable[[], float] | None) -> Recorded:
    """`clock`: that of a collector that runs. Without one the run is seen as of the collector's last word, unless that is new."""
    overview, beats, exchanges = run.overview(), run.heartbeats(), run.exchanges()
    if not beats:
        raise FileError(
            where, "a run of which nothing has come yet", "a run whose shippers have sent", "Look at `windtunnel fleet ship`."
        )
    newest = max(beat.received for beat in beats)
    now = clock() if clock else time.time() if 0 <= time.time() - newest < _STILL_NEW else newest
    step = max(beat.step for beat in beats)
    sections = run.sections(None if last is None else range(max(step - last + 1, -1), ENDLESS))
    here = socket.gethostname()
    pids = {beat.rank: beat.pid for beat in beats if beat.host == here and ProcessState(beat.pid).state() != "gone"}
    ahead = {
        node: float(np.median([(one[1] - one[0] + one[2] - one[3]) / 2 for one in rows])) / 1e9 for node, rows in exchanges.items()
    }
    every = 2 * ShipPolicy().seconds(int(overview["world"])) + 1.0
    signs = {beat.rank: _beat_of(beat, ahead.get(beat.host, 0.0), now, every) for beat in beats}
    return Recorded(
        str(overview["run"]), int(overview["world"]), sections, tuple(overview["meshes"]), signs, overview["facts"], now, int(overview["lost"]), pids,
        exchanges,
    )  # fmt: skip


def _beat_of(beat: Heartbeat, ahead: float, now: float, every: float) -> Beat:
    """The beat of a rank as its shipper last told it. `ahead`: the collector's clock less the machine's; `every`: seconds after
    which a shipper that says nothing counts as silent too."""
    silent = max(beat.received - (beat.beat + ahead), 0.0)
    unheard = now - beat.received
    return Beat(
        beat.rank, silent + (unheard if unheard > every else 0.0), beat.head, beat.step, beat.process, beat.ended, beat.host
    )  # fmt: skip


def _facts(readers: list[RingReader]) -> dict[str, Any]:
    """Facts that all ranks agree on, and the devices."""
    shared = dict(readers[0].meta.facts)
    for reader in readers[1:]:
        shared = {key: value for key, value in shared.items() if reader.meta.facts.get(key) == value}
    overview = {one for reader in readers for kind, value in reader.lines() if kind == "fact" for one in unrecorded_work(value)}
    return {**shared, "devices": sorted({reader.meta.device for reader in readers}), **({"unseen": sorted(overview)} if overview else {})}
