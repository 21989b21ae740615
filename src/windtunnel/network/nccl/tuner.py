"""What NCCL selects: its own estimate of every (algorithm, protocol), and the smallest of them.

The arithmetic of `ncclTopoTuneModel` and `ncclTopoGetAlgoTime` in NCCL 2.30.7 (`src/graph/tuning.cc`), microseconds and GB/s.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl import constants as c
from windtunnel.network.nccl.channels import ChannelSearch, log2_floor
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
    plateau = 64.0 * graph.channels * group.ranks if comm == Comm.ALL_REDUCE and group.nodes > 1 else 0.0
    edges = {0.0, _LARGEST}
    if any(option[0] == c.TREE for option in candidates):
        edges.update(64.0 * 2.0**k for k in range(1, 24))
    if plateau:
        edges.add(plateau)
    ranges: list[SizeRange] = []
    points = sorted(edges)
    for low, high in itertools.pairwise(points):
        lines = _lines(candidates, low, plateau, links.generation)
        first, last = _lowest(lines, low), _lowest(lines, high)
        starts = [(low, first)]
        if first != last:
            _cross(lines, first, last, starts)
        for start, index in starts:
            algorithm, protocol = candidates[index][:2]
            if not ranges or (ranges[-1].algorithm, ranges[-1].protocol) != (algorithm, protocol):
                ranges.append(SizeRange(start, algorithm, protocol))
    return tuple(ranges)


def _lines(candidates: tuple[Option, ...], low: float, plateau: float, generation: str) -> list[tuple[float, float]]:
    """(microseconds at zero bytes, microseconds per byte) of each candidate for sizes from `low` to the next edge."""
    position = log2_floor(low / 64.0)
    lines = []
    for algorithm, protocol, latency, bandwidth in candidates:
        if algorithm == c.TREE and position < 23:
            bandwidth *= c.TREE_CORRECTION[protocol][position]
        elif plateau and low >= plateau and algorithm == c.RING and protocol == c.SIMPLE:
            latency *= 1.9 if generation == "volta" else 1.4
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
    for algorithm in c.ALGORITHMS:
        if not _is_allowed(algorithm, comm, group, links, graph, settings):
            continue
        for index, protocol in enumerate(c.PROTOCOLS):
            if protocol not in settings.protocols or algorithm not in (c.RING, c.TREE) and protocol != c.SIMPLE:
                continue
            if protocol != c.SIMPLE and group.nodes > 1 and links.fabric in c.SIMPLE_ONLY and not settings.protocols_forced:
                continue
            if protocol == c.LL128 and not settings.protocols_forced and links.medium != "nvlink" and group.per_node > 1:
                continue
            bandwidth = _bandwidth(algorithm, protocol, comm, group, links, graph)
            if bandwidth > 0.0:
                candidates.append((algorithm, protocol, _latency(algorithm, index, comm, group, links), bandwidth))
    return tuple(candidates) or ((c.RING, c.SIMPLE, 0.0, 1.0),)


def _is_allowed(algorithm: str, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch, settings: Settings) -> bool:
    reduce = comm == Comm.ALL_REDUCE
    if algorithm not in settings.algorithms:
        return comm not in _REDUCING and algorithm == c.RING
    if comm not in _REDUCING or not links.nvidia and algorithm not in (c.RING, c.TREE):
        return algorithm == c.RING
    nvls, collnet = links.nvls and settings.nvls and graph.nvls >= 2, links.sharp and settings.collnet
    if algorithm == c.NVLS:
        # Groups of two and three gain nothing from the switch: each GPU still sends its whole buffer once.
        return nvls and group.per_node > 2 and (group.nodes == 1 or collnet)
    if algorithm == c.NVLS_TREE:
        return nvls and reduce and group.nodes > 1 and group.per_node > 2
    if algorithm in (c.COLLNET_DIRECT, c.COLLNET_CHAIN):
        return collnet and group.nodes > 1 and reduce and (algorithm == c.COLLNET_CHAIN or links.nvls)
    if algorithm == c.PAT:
        return settings.pat and not reduce and group.per_node == 1 and group.nodes > 1
    return algorithm == c.RING or reduce


def _bandwidth(algorithm: str, protocol: str, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch) -> float:
    n, ppn, generation = group.ranks, group.per_node, links.generation
    at = 0 if group.nodes == 1 else 1 if group.nodes == 2 else 2
    few = group.nodes <= 2 or algorithm in (c.COLLNET_DIRECT, c.COLLNET_CHAIN)
    bus = graph.channels * (graph.inter if not few else graph.intra if algorithm == c.RING else graph.tree)
    ll_max = c.LL_MAX[generation if group.nodes == 1 else "ampere" if links.amd else "volta"][at]
    if algorithm == c.RING:
        if protocol == c.LL:
            bus = min(ll_max, 0.5 * bus)
        elif protocol == c.LL128:
            bus = min(0.92 * bus, graph.channels * c.RING_LL128_PER_CHANNEL[generation][at])
    elif algorithm == c.TREE:
        bus = min(0.92 * bus, graph.channels * c.TREE_PER_CHANNEL[generation][at])
        if protocol == c.LL:
            bus = min(bus / 3.8, ll_max)
        elif protocol == c.LL128:
            bus = min(
                bus * (7.0 / 9.0 if group.nodes == 1 else 120.0 / 128.0), graph.channels * c.TREE_LL128_PER_CHANNEL[generation][at]
            )
    elif algorithm == c.PAT:
        bus *= 0.75
    elif algorithm in (c.NVLS, c.NVLS_TREE):
        channels = graph.nvls
        intra = graph.nvls_intra * c.NVLS_EFFICIENCY[generation] * (channels - 1) / channels
        intra *= 2.0 if comm == Comm.ALL_REDUCE else (ppn - 1) / ppn
        inter = math.inf
        if group.nodes > 1:
            inter = graph.channels * graph.inter / channels * (2.0 if algorithm == c.NVLS_TREE and group.nodes <= 2 else 1.0)
        most = c.NVLS_TREE_PER_CHANNEL[generation][at] if algorithm == c.NVLS_TREE else math.inf
        bus = channels * min(intra, inter, most)
    elif algorithm == c.COLLNET_DIRECT:
        factor = ppn / graph.channels
        bus = bus / (factor - (factor - 1.0) / 2.0) * (0.85 if generation in ("hopper", "blackwell") else 1.0)
    if algorithm in (c.RING, c.NVLS, c.NVLS_TREE):
        return bus * n / _steps(comm, n)
    return bus if comm != Comm.ALL_REDUCE else bus * 0.5


def _steps(comm: Comm, n: int) -> int:
    if comm == Comm.ALL_REDUCE:
        return 2 * (n - 1)
    return n - 1 if comm in (Comm.ALL_GATHER, Comm.REDUCE_SCATTER) else n


def _latency(algorithm: str, protocol: int, comm: Comm, group: Group, links: GroupLinks) -> float:
    n, ppn, nodes = group.ranks, group.per_node, group.nodes
    total = c.BASE_LATENCY[algorithm][protocol]
    intra = c.HOP_LATENCY[links.medium][algorithm][protocol]
    far = (links.hop + links.stated) * 1e6
    inter = c.HOP_LATENCY["net"][c.TREE if ppn == 1 and algorithm == c.RING else algorithm][protocol] + far
    depth = log2_floor(nodes)
    if protocol == 2:
        inter += far
    if algorithm == c.RING:
        overhead = (0.0 if nodes == 1 else 2.0 if links.amd else 1.0) * (3.0 if protocol == 2 else 1.0)
        crossing = (2 if comm == Comm.ALL_REDUCE else 1) * (nodes - 1)
        steps = _steps(comm, n)
        if comm in (Comm.BROADCAST, Comm.REDUCE):
            return total + steps * (inter if nodes > 1 else intra)
        return total + (steps - crossing) * max(intra, overhead) + crossing * inter
    if algorithm == c.TREE:
        return total + 2 * ((ppn - 1) * intra + depth * inter)
    if algorithm == c.NVLS:
        return intra + (inter if nodes > 1 else 0.0)
    if algorithm == c.NVLS_TREE:
        return total + intra + 2 * math.log2(nodes) * inter
    if algorithm == c.COLLNET_DIRECT:
        return total + 2 * (min(1, ppn - 1) * intra + (ppn - 1) * 0.4) + inter
    if algorithm == c.COLLNET_CHAIN:
        return total + 2 * (ppn - 1) * intra + inter
    return total + depth * inter / 3.5 + 2.8 * n
