"""State of each rank of a node, read from its ring, to diagnose a stalled job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from windtunnel.base.errors import FileError
from windtunnel.fleet.findings.hang import NO_LIFE, RankState
from windtunnel.fleet.findings.liveness import Beat, group_labels, rank_states
from windtunnel.fleet.ring import RingReader
from windtunnel.fleet.rings import ring_path, ring_sections
from windtunnel.fleet.wire.messages import CallReport, PendingReport, RankStatus
from windtunnel.records.sections import Section, Sections, join_sections

MOST_CALLS = 32
"""Last collectives of each group that a rank's status holds."""


def read_rank_status(
    folder: Path, pids: Mapping[int, int], states: Mapping[int, str], codes: Mapping[int, int] | None = None
) -> tuple[tuple[RankStatus, ...], dict[str, tuple[int, ...]]]:
    """Status of each rank in `pids` (rank → process id) that has a ring of that process, and the groups by label.

    `states`: state letter in /proc of each process that runs. `codes`: exit status of each that has ended.
    """
    now, parts, beats = time.time(), [], {}
    for rank, pid in pids.items():
        try:
            reader = RingReader(ring_path(folder, rank))
        except FileError:
            continue
        if reader.meta.pid == pid:
            tail = reader.read(0)
            parts.append(ring_sections(reader, tail.rows))
            process = NO_LIFE[0] if states.get(rank) == "T" else ""
            silent = max(0.0, now - tail.beat_ns * 1e-9)
            ended = tail.ended if tail.ended is not None else (codes or {}).get(rank)
            beats[rank] = Beat(rank, silent, tail.first + len(tail.rows), tail.step, process, ended)
        reader.close()
    sections = join_sections(parts)
    found, _ = rank_states(sections, beats, now)
    groups = dict(zip(group_labels(sections), sections.groups, strict=True))
    return tuple(_to_message(state, _last_calls(sections, state.rank)) for state in found.values()), groups


def _last_calls(sections: Sections, rank: int) -> tuple[CallReport, ...]:
    """The last collectives of a rank in each of its groups."""
    labels = group_labels(sections)
    mine = (sections.rank == rank) & (sections.section == Section.CALL) & (sections.peer < 0) & (sections.call >= 0)
    found = []
    for group, label in enumerate(labels):
        rows = np.flatnonzero(mine & (sections.group == group))
        for row in rows[np.argsort(sections.call[rows], kind="stable")][-MOST_CALLS:].tolist():
            name, size = int(sections.name[row]), sections.bytes[row]
            text = sections.names[name] if 0 <= name < len(sections.names) else ""
            known = int(size) if np.isfinite(size) else -1
            found.append(CallReport(label, int(sections.call[row]), int(sections.comm[row]), text, known))
    return tuple(found)


def _to_message(state: RankState, calls: tuple[CallReport, ...]) -> RankStatus:
    pending = tuple(
        PendingReport(call.group, call.number, int(call.comm), call.name, call.peer, call.sends) for call in state.pending
    )
    since = state.since if state.since == state.since else -1.0
    return RankStatus(
        state.rank, pending, dict(state.begun), dict(state.finished), state.silent, state.process, state.doing, since,
        state.threads, calls,
    )  # fmt: skip
