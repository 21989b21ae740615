"""Lanes as variables of the flow engine: what is pipelined together is one fluid with a demand on every link of its lanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.engine.graph import Floats, Ints, Longs, Paths
from windtunnel.engine.lanes import Lanes
from windtunnel.network.timing import slices_of


@dataclass(frozen=True)
class Fluid:
    """V variables. Variable v moves `size[v]` units, each of which puts `demand` bytes on the links of row v (None: one byte each).

    It starts `delay` after the last of `deps` was delivered, not before `begin`, goes at no more than `bound` units a second and is
    delivered `latency` after its end. Seconds, B.
    """

    start: Longs
    links: Ints
    demand: Floats | None
    size: Floats
    bound: Floats
    begin: Floats
    latency: Floats
    delay: Floats
    dep_start: Longs
    deps: Ints

    def __len__(self) -> int:
        return len(self.size)


def fluid(lanes: Lanes, paths: Paths, extra: Floats, latency: float | None = None) -> Fluid:
    """One variable a group. `paths` row k is the way of lane k, `extra` [K] seconds that it takes beyond what delays contain.

    `latency`: of a call that is one group, its seconds that do not move bytes (launch, steps, fill); left out, those of its delays.
    """
    count = len(lanes)
    groups = int(lanes.group.max()) + 1 if count else 0
    no_wait = np.diff(lanes.dep_start) == 0
    if groups == count and bool((lanes.group == np.arange(count)).all()):
        begin = lanes.begin + np.where(no_wait, lanes.delay, 0.0)
        return Fluid(paths.start, paths.links, None, lanes.bytes.astype(np.float64), lanes.rate, begin, extra,
                     np.where(no_wait, 0.0, lanes.delay), lanes.dep_start, lanes.dep_lane)
    start, links, demand = _demands(lanes, paths, groups)
    waiting = np.repeat(np.arange(count), np.diff(lanes.dep_start))
    pairs = np.stack([lanes.group[waiting], lanes.group[lanes.dep_lane]], axis=1)
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    dep_start = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=groups))]).astype(np.int64)
    inside = np.zeros(groups, dtype=bool)
    inside[lanes.group[waiting[lanes.group[waiting] == lanes.group[lanes.dep_lane]]]] = True
    seconds = _most(lanes.bytes / lanes.rate, lanes.group, groups)
    steps = np.where(inside, _most(slices_of(lanes).astype(np.float64), lanes.group, groups), 1.0)
    begin = np.full(groups, np.inf)
    np.minimum.at(begin, lanes.group, lanes.begin)
    if groups == 1 and latency is not None:
        late = np.array([max(0.0, latency - begin[0]) + float(steps[0] * extra.max(initial=0.0))])
        first = np.zeros(1)
    else:
        late = (steps - 1) * _most(lanes.delay, lanes.group, groups) + steps * _most(extra, lanes.group, groups)
        first = _most(lanes.delay, lanes.group, groups)
        begin = begin + np.where(np.diff(dep_start) == 0, first, 0.0)
    with np.errstate(divide="ignore"):
        bound = np.where(seconds > 0, 1.0 / np.where(seconds > 0, seconds, 1.0), np.inf)
    return Fluid(start, links, demand, np.ones(groups), bound, begin, late, first, dep_start, pairs[:, 1].astype(np.int32))


def _demands(lanes: Lanes, paths: Paths, groups: int) -> tuple[Longs, Ints, Floats]:
    """Rows of (links, bytes) by group."""
    hops = np.diff(paths.start)
    group = np.repeat(lanes.group.astype(np.int64), hops)
    nbytes = np.repeat(lanes.bytes.astype(np.float64), hops)
    width = int(paths.links.max(initial=0)) + 1
    key, at = np.unique(group * width + paths.links, return_inverse=True)
    demand: Floats = np.bincount(at, weights=nbytes, minlength=len(key)).astype(np.float64)
    start = np.searchsorted(key // width, np.arange(groups + 1)).astype(np.int64)
    return start, (key % width).astype(np.int32), demand


def _most(values: Floats, group: Ints, groups: int) -> Floats:
    found = np.zeros(groups)
    np.maximum.at(found, group, values)
    return found
