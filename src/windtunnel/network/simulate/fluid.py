"""Lanes as variables of the flow engine: pipelined lanes are one fluid with a demand on every link of its lanes."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.engine.flow import Demands, Variables
from windtunnel.engine.graph import Paths
from windtunnel.engine.lanes import Lanes
from windtunnel.network.lanes.timing import slices_of
from windtunnel.network.simulate.chains import chain_seconds, find_most


def fluid(lanes: Lanes, paths: Paths, extra: Floats, latency: float | None = None, in_turn: int = 1) -> tuple[Demands, Variables]:
    """One variable per group: a single lane moves its bytes along its path, lanes that advance together move one unit.

    `paths`: row k is the path of lane k; `extra` [K]: seconds in addition to the delays. `latency`: for a call whose
    groups do not wait for each other, the seconds that do not move bytes (launch, steps, fill); by default those of its delays.
    `in_turn`: its slices that follow each other.
    """
    count = len(lanes)
    groups = int(lanes.group.max()) + 1 if count else 0
    no_wait = np.diff(lanes.dep_start) == 0
    if groups == count and bool((lanes.group == np.arange(count)).all()):
        begin = lanes.begin + np.where(no_wait, lanes.delay, 0.0)
        return Demands.of_paths(paths), Variables(
            begin,
            lanes.bytes.astype(np.float64),
            bound=lanes.rate,
            latency=extra,
            delay=np.where(no_wait, 0.0, lanes.delay),
            dep_start=lanes.dep_start,
            deps=lanes.dep_lane,
        )
    waiting = np.repeat(np.arange(count), np.diff(lanes.dep_start))
    pairs = np.stack([lanes.group[waiting], lanes.group[lanes.dep_lane]], axis=1)
    inside = np.zeros(groups, dtype=bool)
    inside[pairs[pairs[:, 0] == pairs[:, 1], 0]] = True
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    dep_start = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=groups))]).astype(np.int64)
    seconds = find_most(lanes.bytes / lanes.rate, lanes.group, groups)
    # Slices of a group that waits within itself follow each other, each after its delay.
    steps = np.where(inside, find_most(slices_of(lanes).astype(np.float64), lanes.group, groups), 1.0)
    above = chain_seconds(lanes, extra, in_turn)
    delay, begin = find_most(lanes.delay, lanes.group, groups), np.full(groups, np.inf)
    np.minimum.at(begin, lanes.group, lanes.begin)
    if not len(pairs) and latency is not None:
        late = np.maximum(0.0, latency - begin) + above
        delay = np.zeros(groups)
    else:
        late = (steps - 1) * delay + above
        begin = begin + np.where(np.diff(dep_start) == 0, delay, 0.0)
    bound = np.divide(1.0, seconds, out=np.full(groups, np.inf), where=seconds > 0)
    return _demands(lanes, paths, groups), Variables(
        begin,
        np.ones(groups),
        bound=bound,
        latency=late,
        delay=delay,
        dep_start=dep_start,
        deps=pairs[:, 1].astype(np.int32),
    )


def at_once(lanes: Lanes, paths: Paths, share: Floats, extra: Floats, seconds: float) -> tuple[Demands, Variables]:
    """Approximates batches of sends by sends that all run at the same time, each at its share of the rate; exact for very many.

    `share` [K]: share of its rate that a lane gets; `seconds`: of the call without other traffic.
    """
    bound = lanes.rate * share
    late = max(0.0, seconds - float((lanes.begin + lanes.bytes / bound).max())) + extra
    return Demands.of_paths(paths), Variables(lanes.begin, lanes.bytes.astype(np.float64), bound=bound, latency=late)


def _demands(lanes: Lanes, paths: Paths, groups: int) -> Demands:
    """Rows of (links, bytes) by group."""
    hops = np.diff(paths.start)
    group = np.repeat(lanes.group.astype(np.int64), hops)
    nbytes = np.repeat(lanes.bytes.astype(np.float64), hops)
    width = int(paths.links.max(initial=0)) + 1
    key, at = np.unique(group * width + paths.links, return_inverse=True)
    demand: Floats = np.bincount(at, weights=nbytes, minlength=len(key)).astype(np.float64)
    start: Int64s = np.searchsorted(key // width, np.arange(groups + 1)).astype(np.int64)
    return Demands(start, (key % width).astype(np.int32), demand)
