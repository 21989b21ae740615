"""All ranks of a watched run in one Perfetto trace: sections and calls as slices, arrows from senders to receivers.

A rank is a process; it has a track of its sections, one of its calls and one of its gaps. An arrow leads from a send to its
receive, and, within a collective, from the rank that came last to the others: they waited for it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.errors import FileError
from windtunnel.fleet.findings.steps import match_collectives, match_sends
from windtunnel.predict.answer.trace import Arrows, Track, chrome, perfetto
from windtunnel.predict.prediction import Span
from windtunnel.records.sections import Section, Sections

TRACKS = {
    Section.STEP: "steps", Section.CALL: "calls", Section.HOST_GAP: "gaps", Section.DATA: "loader", Section.RANGE: "ranges",
    Section.INFERENCE: "inference",
}  # fmt: skip
"""Sections to the tracks that they lie on; all others lie on "sections"."""

SHORT = 5e-5
"""Seconds of waiting below which a collective gets no arrows."""


def write_fleet_trace(sections: Sections, path: str | Path) -> int:
    """Writes the trace (Chrome's JSON where the name ends in .json) and returns its number of slices. Ranks must be on one clock.

    Sections that are still open end with the last record of the run. FileError if the file cannot be written.
    """
    target = Path(path)
    tracks = fleet_tracks(sections)
    names = {int(rank): _name(int(rank), sections.hosts.get(int(rank), "")) for rank in np.unique(sections.rank)}
    try:
        target.write_bytes(chrome(tracks, names) if target.suffix == ".json" else perfetto(tracks, names))
    except OSError as error:
        raise FileError("--trace", str(path), "a file that can be written", f"{error.strerror}.") from error
    return sum(len(track.spans) for track in tracks)


def _name(rank: int, host: str) -> str:
    return f"rank {rank} on {host}" if host else f"rank {rank}"


def fleet_tracks(sections: Sections) -> list[Track]:
    """Tracks by rank, with arrows."""
    if not len(sections):
        return []
    begin = sections.begin - float(sections.begin.min())
    end = begin + sections.seconds
    end = np.where(np.isfinite(end), end, max(float(np.nanmax(end)) if np.isfinite(end).any() else 0.0, float(begin.max())))
    arrows = _arrows(sections, begin, end)
    tracks: list[Track] = []
    label = [TRACKS.get(Section(int(code)), "sections") for code in range(len(Section))]
    for rank in np.unique(sections.rank):
        mine = np.flatnonzero(sections.rank == rank)
        for name in dict.fromkeys(label):
            rows = mine[[label[int(code)] == name for code in sections.section[mine]]]
            for lane, part in enumerate(_lanes(rows, begin, end)):
                title = name if lane == 0 else f"{name} ({lane + 1})"
                spans = [_span(sections, int(row), title, begin, end) for row in part]
                starts = np.rint(begin[part] * 1e9).astype(np.int64).tolist()
                ends = np.rint(end[part] * 1e9).astype(np.int64).tolist()
                marked = {place: arrows[int(row)] for place, row in enumerate(part) if int(row) in arrows}
                tracks.append(Track(int(rank), title, spans, starts, ends, marked, lands_at_end=True))
    return tracks


def _lanes(rows: Int64s, begin: Floats, end: Floats) -> list[Int64s]:
    """Rows in time order on as few lanes as keep each free of overlaps."""
    lanes: list[list[int]] = []
    free: list[float] = []
    for row in rows[np.lexsort((-end[rows], begin[rows]))]:
        lane = next((number for number, until in enumerate(free) if until <= begin[row] + 5e-10), len(free))
        if lane == len(free):
            free.append(0.0)
            lanes.append([])
        lanes[lane].append(int(row))
        free[lane] = float(end[row])
    return [np.array(lane, np.int64) for lane in lanes]


def _span(sections: Sections, row: int, track: str, begin: Floats, end: Floats) -> Span:
    kind = Section(int(sections.section[row]))
    name = sections.names[sections.name[row]] if 0 <= sections.name[row] < len(sections.names) else ""
    title = f"step {int(sections.step[row])}" if kind is Section.STEP else name or kind.name.lower().replace("_", " ")
    if kind is Section.CALL and sections.group[row] >= 0 and sections.group_names:
        title = f"{title} {sections.group_names[sections.group[row]]}".strip()
    if kind is Section.CALL and sections.peer[row] >= 0:
        title = f"{title} {'to' if sections.sends[row] else 'from'} {int(sections.peer[row])}"
    if not np.isfinite(sections.seconds[row]):
        title += " (not ended)"
    micro = int(sections.micro_batch[row])
    return Span(int(sections.rank[row]), track, title, kind.name.lower(), float(begin[row]), float(end[row]), micro)


def _arrows(sections: Sections, begin: Floats, end: Floats) -> dict[int, Arrows]:
    """Row → ids of arrows that leave it and that end on it."""
    out: dict[int, list[int]] = {}
    into: dict[int, list[int]] = {}
    ended = np.flatnonzero((sections.section == Section.CALL) & np.isfinite(sections.seconds))
    pairs: list[tuple[int, int]] = [(int(send), int(receive)) for send, receive in match_sends(sections, ended)]
    for members in match_collectives(sections, ended):
        last = int(members[np.argmax(begin[members])])
        pairs += [(last, int(row)) for row in members if row != last and begin[last] - begin[row] > SHORT]
    for number, (source, target) in enumerate(pairs, start=1):
        out.setdefault(source, []).append(number)
        into.setdefault(target, []).append(number)
    return {row: (tuple(out.get(row, ())), tuple(into.get(row, ()))) for row in {*out, *into}}
