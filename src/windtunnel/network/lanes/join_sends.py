"""Joins sends of a file into lanes: sends of one source, destination and channel that wait slice by slice become one lane.

Sends of a connection are one lane if they have equal sizes (the last may be shorter) and each waits for the next slice of another
lane, or for a complete other lane. Otherwise each send is a separate lane, ordered only by `after`.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.engine.lanes import ALL
from windtunnel.network.algorithms.pattern import deps
from windtunnel.network.lanes.send_files import Send, Sends

Key = tuple[int, int, int]


@dataclass(frozen=True)
class Joined:
    """K lanes: `first` send of each, `bytes`, `slice`, dependencies, and the lane's group."""

    first: Int32s
    bytes: Int64s
    slice: Int64s
    group: Int32s
    dep_start: Int64s
    dep_lane: Int32s
    dep_lead: Int64s


def join(sends: Sends) -> Joined:
    """Lanes of the sends, in the order of their first sends."""
    lines: dict[Key, list[int]] = {}
    for at, send in enumerate(sends.sends):
        lines.setdefault((send.src, send.dst, send.channel), []).append(at)
    members = list(lines.values())
    while True:
        place = {at: (lane, j) for lane, group in enumerate(members) for j, at in enumerate(group)}
        waits = [_waits(group, sends.sends, place, members) for group in members]
        split = [len(group) > 1 and (waits[lane] is None or not _even(group, sends.sends)) for lane, group in enumerate(members)]
        if not any(split):
            break
        members = [part for group, cut in zip(members, split, strict=True) for part in ([[at] for at in group] if cut else [group])]
    members_at = np.array([group[0] for group in members], dtype=np.int32)
    pairs = [(lane, on, lead) for lane, leads_of_lane in enumerate(waits) for on, lead in (leads_of_lane or {}).items()]
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 3)
    start, dep_lane, lead = deps(len(members), columns[:, 0], columns[:, 1], columns[:, 2])
    total = np.array([sum(sends.sends[at].bytes for at in group) for group in members], dtype=np.int64)
    slices = np.array([max(sends.sends[at].bytes for at in group) for group in members], dtype=np.int64)
    return Joined(members_at, total, slices, _groups(len(members), columns), start, dep_lane, lead)


def _even(group: list[int], sends: tuple[Send, ...]) -> bool:
    sizes = [sends[at].bytes for at in group]
    first = sends[group[0]]
    same = all((sends[at].delay_s, sends[at].rate, sends[at].begin_s) == (first.delay_s, first.rate, first.begin_s) for at in group)
    return same and all(size == sizes[0] for size in sizes[:-1]) and sizes[-1] <= sizes[0]


def _waits(
    group: list[int], sends: tuple[Send, ...], place: dict[int, tuple[int, int]], members: list[list[int]]
) -> dict[int, int] | None:
    """Lane -> lead, or None if the sends' waits do not advance slice by slice."""
    sends_per_lane: dict[int, list[int]] = {}
    for j, at in enumerate(group):
        for other in sends[at].after:
            lane, index = place[other]
            counts = sends_per_lane.setdefault(lane, [0] * len(group))
            counts[j] = max(counts[j], index + 1)
    leads = {}
    for lane, counts in sends_per_lane.items():
        slices = len(members[lane])
        if all(count == slices for count in counts):
            leads[lane] = ALL
            continue
        j = next(i for i, count in enumerate(counts) if count)
        lead = j + 1 - counts[j]
        if any(count != max(0, min(slices, i + 1 - lead)) for i, count in enumerate(counts)):
            return None
        leads[lane] = lead
    return leads


def _groups(lanes: int, pairs: Int64s) -> Int32s:
    """Group of each lane: lanes that wait for each other slice by slice form one; if groups then wait in a circle, all form one."""
    group = np.arange(lanes)
    together = pairs[pairs[:, 2] != ALL]
    if len(together):
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        graph = coo_array((np.ones(len(together)), (together[:, 0], together[:, 1])), shape=(lanes, lanes))
        _, group = connected_components(graph, directed=False)
    waits: dict[int, set[int]] = {}
    for waiting, on in group[pairs[:, :2]].tolist():
        if waiting != on:
            waits.setdefault(waiting, set()).add(on)
    try:
        TopologicalSorter(waits).prepare()
    except CycleError:
        return np.zeros(lanes, dtype=np.int32)
    return np.asarray(np.unique(group, return_inverse=True)[1], dtype=np.int32)
