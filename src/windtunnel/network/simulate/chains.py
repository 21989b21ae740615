"""Seconds that links between switches add to calls whose slices wait for slices of other lanes."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats, Int32s
from windtunnel.engine.lanes import Lanes
from windtunnel.network.lanes.timing import slices_of

_LONGEST = 256
"""Lanes of a chain, at most: a tree is shallower, and a longer chain is a ring."""


def chain_seconds(lanes: Lanes, extra: Floats) -> Floats:
    """[groups] what `extra` [K] seconds of each lane add to the lanes of a group.

    Down and up a tree slices follow each other, so the longest way through it counts once. In a ring each slice waits for one of
    the lane before it, so slices pass all lanes in turn, of which few leave a node. Lanes that wait for none count once.
    """
    groups = int(lanes.group.max(initial=-1)) + 1
    waits = np.repeat(np.arange(len(lanes)), np.diff(lanes.dep_start))
    same = lanes.group[waits] == lanes.group[lanes.dep_lane]
    waits, before = waits[same], lanes.dep_lane[same]
    way = extra.astype(np.float64)
    turns = np.zeros(groups, np.bool_)
    for _ in range(_LONGEST):
        longer = extra.astype(np.float64)
        np.maximum.at(longer, waits, extra[waits] + way[before])
        changed = longer > way * (1 + 1e-12)
        if not changed.any():
            break
        way = longer
    else:
        turns[lanes.group[changed]] = True
    weight = np.bincount(lanes.group, lanes.bytes, groups)
    mean = np.bincount(lanes.group, lanes.bytes * extra, groups) / np.maximum(weight, 1.0)
    return np.where(turns, _most(slices_of(lanes).astype(np.float64), lanes.group, groups) * mean, _most(way, lanes.group, groups))


def _most(values: Floats, group: Int32s, groups: int) -> Floats:
    largest = np.zeros(groups)
    np.maximum.at(largest, group, values)
    return largest
