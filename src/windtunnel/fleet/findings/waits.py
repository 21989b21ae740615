"""Who waits for whom: the ranks that come last to collectives, and for how long the others wait for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.fleet.findings.call_matching import complete_collectives
from windtunnel.records.sections import Section, Sections

MOST_WAITS = 4
"""Ranks that a rank waits for, of which is told."""


def waits_of_ranks(sections: Sections, ranks: Sequence[int], steps: int) -> list[list[list[float]]]:
    """For each rank: [rank that came last, milliseconds of a step that this one waited for it], most first."""
    found: list[list[list[float]]] = [[] for _ in ranks]
    ended = np.flatnonzero((sections.section == Section.CALL) & np.isfinite(sections.seconds))
    rows, starts = complete_collectives(sections, ended)
    if not len(rows):
        return found
    sizes = np.diff(np.append(starts, len(rows)))
    begin, rank = sections.begin[rows], sections.rank[rows].astype(np.int64)
    latest = np.maximum.reduceat(begin, starts)
    meeting = np.repeat(np.arange(len(starts)), sizes)
    came_last = np.flatnonzero(begin == latest[meeting])
    last = rank[came_last[np.searchsorted(meeting[came_last], np.arange(len(starts)))]][meeting]
    lost = np.minimum(latest[meeting] - begin, sections.seconds[rows])
    places = np.full(int(max(rank.max(), *ranks)) + 1, -1, np.int64)
    places[np.asarray(ranks, np.int64)] = np.arange(len(ranks))
    waits = (rank != last) & (lost > 0) & (places[rank] >= 0)
    size = int(last.max()) + 1
    keys, which = np.unique(places[rank[waits]] * size + last[waits], return_inverse=True)
    total = np.bincount(which.ravel(), lost[waits], len(keys)) / max(steps, 1) * 1e3
    for at in np.lexsort((-total, keys // size)).tolist():
        mine = found[int(keys[at]) // size]
        if len(mine) < MOST_WAITS:
            mine.append([int(keys[at]) % size, round(float(total[at]), 3)])
    return found


def waited_for(sections: Sections, ranks: Sequence[int], steps: int) -> dict[int, float]:
    """Rank → seconds of a step that the rank which waits longest for it waits."""
    found: dict[int, float] = {}
    for waits in waits_of_ranks(sections, ranks, steps) if len(ranks) else ():
        for last, milliseconds in waits:
            found[int(last)] = max(found.get(int(last), 0.0), milliseconds * 1e-3)
    return found
