"""Who waits for whom: the ranks that come last to collectives, and for how long the others wait for them.

Matches calls of different ranks that belong together: a collective of a group, a send and its receive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Int64s
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


def complete_collectives(sections: Sections, calls: Int64s) -> tuple[Int64s, Int64s]:
    """Of the rows `calls`, those of collectives for which all ranks of the group have a row, grouped by collective, and the index
    at which each collective begins.
    """
    none = np.zeros(0, np.int64)
    calls = calls[(sections.peer[calls] < 0) & (sections.group[calls] >= 0) & (sections.call[calls] >= 0)]
    if not len(calls):
        return none, none
    order = calls[np.lexsort((sections.call[calls], sections.group[calls]))]
    new = (np.diff(sections.group[order]) != 0) | (np.diff(sections.call[order]) != 0)
    starts = np.concatenate([[0], np.flatnonzero(new) + 1])
    sizes = np.diff(np.append(starts, len(order)))
    members = np.array([len(ranks) for ranks in sections.groups], np.int64)[sections.group[order[starts]]]
    whole = (sizes == members) & (sizes > 1)
    complete_sizes = sizes[whole]
    return order[np.repeat(whole, sizes)], np.cumsum(complete_sizes) - complete_sizes


def match_collectives(sections: Sections, calls: Int64s) -> list[Int64s]:
    """Of the rows `calls`, the rows of each collective for which all ranks of the group have one."""
    rows, starts = complete_collectives(sections, calls)
    return np.split(rows, starts[1:]) if len(starts) else []


def match_sends(sections: Sections, calls: Int64s) -> Int64s:
    """Of the rows `calls`, each send with its receive [n, 2]: they have the same number among those from the sender to the
    receiver.
    """
    calls = calls[(sections.peer[calls] >= 0) & (sections.call[calls] >= 0)]
    sends = sections.sends[calls]
    source = np.where(sends, sections.rank[calls], sections.peer[calls])
    target = np.where(sends, sections.peer[calls], sections.rank[calls])
    order = np.lexsort((~sends, sections.call[calls], target, source))
    calls, source, target, sends = calls[order], source[order], target[order], sends[order]
    number = sections.call[calls]
    same = (np.diff(source) == 0) & (np.diff(target) == 0) & (np.diff(number) == 0)
    alone_before = np.append(True, ~same)[:-1] if len(calls) else same
    alone_after = np.append(~same, True)[1:] if len(calls) else same
    first = np.flatnonzero(same & alone_before & alone_after & sends[:-1] & ~sends[1:])
    return np.stack([calls[first], calls[first + 1]], axis=1)
