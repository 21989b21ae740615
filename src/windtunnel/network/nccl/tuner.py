"""What NCCL selects: its own estimate of every (algorithm, protocol), and the smallest of them.

The arithmetic of `ncclTopoTuneModel` and `ncclTopoGetAlgoTime` in NCCL 2.30.7 (`src/graph/tuning.cc`), microseconds and GB/s.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from windtunnel.network.algorithm import ALGORITHMS, CollectiveAlgorithm, in_order_of_nccl
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl import constants as c
from windtunnel.network.nccl.channels import ChannelSearch
from windtunnel.network.nccl.settings import Settings
from windtunnel.workload.ops import Comm

Option = tuple[str, str, float, float]  # algorithm, protocol, latency us, GB/s
_LARGEST = 2.0**60
_REDUCING = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER)


class SizeRange(NamedTuple):
    """From `start` bytes on (to the next piece) NCCL selects this algorithm and protocol."""

    start: float
    algorithm: str
    protocol: str


def pieces(comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch, settings: Settings) -> tuple[SizeRange, ...]:
    """The selection over all sizes. NCCL's times are linear in the size between the points where a correction changes, so the
    minimum follows from the crossings of lines."""
    candidates = options(comm, group, links, graph, settings)
    edges = {0.0, _LARGEST}
    for name in {option[0] for option in candidates}:
        edges.update(ALGORITHMS[name].corrected_from(comm, group, graph))
    ranges: list[SizeRange] = []
    points = sorted(edges)
    for low, high in itertools.pairwise(points):
        lines = _lines(candidates, low, comm, group, links, graph)
        first, last = _lowest(lines, low), _lowest(lines, high)
        starts = [(low, first)]
        if first != last:
            _cross(lines, first, last, starts)
        for start, index in starts:
            algorithm, protocol = candidates[index][:2]
            if not ranges or (ranges[-1].algorithm, ranges[-1].protocol) != (algorithm, protocol):
                ranges.append(SizeRange(start, algorithm, protocol))
    return tuple(ranges)


def _lines(
    candidates: tuple[Option, ...], low: float, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch
) -> list[tuple[float, float]]:
    """(microseconds at zero bytes, microseconds per byte) of each candidate for sizes from `low` to the next edge."""
    lines = []
    for name, protocol, latency, bandwidth in candidates:
        latency, bandwidth = ALGORITHMS[name].correct(latency, bandwidth, protocol, low, comm, group, links, graph)
        lines.append((latency, 1e-3 / bandwidth))
    return lines


def _lowest(lines: list[tuple[float, float]], size: float) -> int:
    times = [a + b * size for a, b in lines]
    return times.index(min(times))


def _cross(lines: list[tuple[float, float]], first: int, last: int, starts: list[tuple[float, int]]) -> None:
    """Append to `starts` the sizes at which the lowest line changes between `first` and `last`, the lowest ones at the two ends."""
    (a, b), (d, e) = lines[first], lines[last]
    if b <= e:
        return
    meet = (d - a) / (b - e)
    between = _lowest(lines, meet)
    a_between = lines[between][0] + lines[between][1] * meet
    if between in (first, last) or a_between >= (a + b * meet) * (1.0 - 1e-12):
        starts.append((meet, last))
        return
    _cross(lines, first, between, starts)
    _cross(lines, between, last, starts)


def options(comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch, settings: Settings) -> tuple[Option, ...]:
    """Every enabled (algorithm, protocol) with its latency and algorithm bandwidth before the corrections by size."""
    candidates = []
    for name in (ALGORITHMS.default,) if comm not in _REDUCING else in_order_of_nccl(settings.algorithms):
        algorithm = ALGORITHMS[name]
        if comm in _REDUCING and not _is_allowed(algorithm, comm, group, links, graph, settings):
            continue
        for index, protocol in enumerate(c.PROTOCOLS):
            if protocol not in settings.protocols or protocol not in algorithm.protocols:
                continue
            if protocol != c.SIMPLE and group.nodes > 1 and links.fabric in c.SIMPLE_ONLY and not settings.protocols_forced:
                continue
            if protocol == c.LL128 and not settings.protocols_forced and links.medium != "nvlink" and group.per_node > 1:
                continue
            bandwidth = algorithm.bandwidth(protocol, comm, group, links, graph)
            if bandwidth > 0.0:
                candidates.append((name, protocol, algorithm.latency(index, comm, group, links), bandwidth))
    return tuple(candidates) or ((ALGORITHMS.default, c.SIMPLE, 0.0, 1.0),)


def _is_allowed(
    algorithm: CollectiveAlgorithm, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch, settings: Settings
) -> bool:
    if not links.nvidia:
        return algorithm.suits_other_libraries(comm, group)
    return algorithm.is_allowed(comm, group, links, graph, settings)
