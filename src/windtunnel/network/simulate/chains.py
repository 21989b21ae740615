"""Seconds that links between switches add to calls whose slices wait for slices of other lanes."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats, Int32s
from windtunnel.engine.lanes import Lanes
from windtunnel.network.lanes.timing import slices_of

_DEEPEST = 64
"""Slices that follow each other in a tree, at most: a call with more is a ring or a chain of many ranks."""


def chain_seconds(lanes: Lanes, extra: Floats, steps: int) -> Floats:
    """[groups] what `extra` [K] seconds of each lane add to the lanes of a group, in which `steps` slices follow each other.

    Down and up a tree slices follow each other, so the longest way through it counts once. In a ring each slice waits for one of
    the lane before it, so slices pass all lanes in turn, of which few leave a node; so do those of a chain. Lanes that wait for
    none count once.
    """
    groups = int(lanes.group.max(initial=-1)) + 1
    waits = np.repeat(np.arange(len(lanes)), np.diff(lanes.dep_start))
    same = lanes.group[waits] == lanes.group[lanes.dep_lane]
    if not extra.any() or not same.any():
        return find_most(extra, lanes.group, groups)
    if steps > _DEEPEST or (slices_of(lanes) == steps).all():
        weight = np.bincount(lanes.group, lanes.bytes, groups)
        mean: Floats = np.bincount(lanes.group, lanes.bytes * extra, groups) / np.maximum(weight, 1.0)
        return steps * mean
    waits, before = waits[same], lanes.dep_lane[same]
    way = extra.astype(np.float64)
    for _ in range(_DEEPEST):
        longer = extra.astype(np.float64)
        np.maximum.at(longer, waits, extra[waits] + way[before])
        if not (longer > way * (1 + 1e-12)).any():
            break
        way = longer
    return find_most(way, lanes.group, groups)


def find_most(values: Floats, group: Int32s, groups: int) -> Floats:
    """[groups] the largest of the `values` [K] of each group; at least 0."""
    largest = np.zeros(groups)
    np.maximum.at(largest, group, values)
    return largest
