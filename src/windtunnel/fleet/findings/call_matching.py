"""Matches calls of different ranks that belong together: a collective of a group, a send and its receive."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.records.sections import Sections


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
