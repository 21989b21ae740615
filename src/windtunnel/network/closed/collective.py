"""Seconds of one collective in closed form: NCCL's selection, then what the selected algorithm reaches on the group's links."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from windtunnel.base.errors import SpecError
from windtunnel.network.closed.cost import Cost, achieved, nvls_cuts
from windtunnel.network.closed.fitted import NETS, NODES, NetConstants, NodeConstants
from windtunnel.network.fabrics.check import check_fabric
from windtunnel.network.groups.bandwidth import GroupLinks, group_links, uplink_share
from windtunnel.network.groups.shape import Group, flat_group
from windtunnel.network.nccl.channels import ChannelSearch, graph
from windtunnel.network.nccl.settings import DEFAULT, Settings, as_set, parse_settings
from windtunnel.network.nccl.tuner import SizeRange, pieces
from windtunnel.spec.cluster import Cluster
from windtunnel.workload.ops import Comm


@dataclass(frozen=True)
class CommEstimate:
    """One collective. `bus_bandwidth` in B/s as nccl-tests counts it; `latency` is the part that does not depend on the size;
    `provenance` is "modelled" (constants fitted on this generation and fabric), "transferred" or "assumed"."""

    seconds: float
    algorithm: str
    protocol: str
    channels: int
    bus_bandwidth: float
    latency: float
    provenance: str
    relative_error: float


@dataclass(frozen=True)
class Setup:
    """What a call needs besides its size: links, channels and constants of a group on a cluster."""

    comm: Comm
    group: Group
    settings: Settings
    links: GroupLinks
    graph: ChannelSearch
    node: NodeConstants
    net: NetConstants
    provenance: str
    relative_error: float

    def choose(self, size: float) -> tuple[str, str]:
        """(algorithm, protocol) that NCCL's tuner selects; sends and receives have none to select.

        RCCL's tables and those of other libraries are tuned machine by machine, so there it is what the constants say is fastest.
        """
        if self.open:
            return min(self.open, key=lambda option: self.cost(size, *option).seconds)
        piece = self.pieces[bisect_right(self.starts, size) - 1]
        return piece.algorithm, piece.protocol

    def cost(self, size: float, algorithm: str, protocol: str) -> Cost:
        """What that selection reaches."""
        return achieved(self.comm, size, self.group, self.links, self.graph, algorithm, protocol, self.node, self.net)

    @cached_property
    def open(self) -> tuple[tuple[str, str], ...]:
        """What a library other than NCCL chooses from; empty where NCCL's tables choose."""
        if self.links.nvidia or self.comm in _SENDS:
            return ()
        between = self.comm == Comm.ALL_REDUCE and self.group.nodes > 1
        names = [a for a in ("ring", "tree") if a in self.settings.algorithms and (a == "ring" or between)] or ["ring"]
        return tuple((a, p) for a in names for p in ("LL", "LL128", "Simple") if p in self.settings.protocols)

    @cached_property
    def pieces(self) -> tuple[SizeRange, ...]:
        """The selection by size, cut again where the chunk of a switch reduction changes."""
        if self.comm in _SENDS or self.open:
            return (SizeRange(0.0, "p2p" if self.comm in _SENDS else "ring", "Simple"),)
        found = []
        chosen = pieces(self.comm, self.group, self.links, self.graph, self.settings)
        for piece, following in zip(chosen, (*chosen[1:], None), strict=True):
            found.append(piece)
            if piece.algorithm in ("nvls", "nvls_tree"):
                cuts = nvls_cuts(self.graph.nvls, self.group.per_node, self.group.nodes, piece.algorithm)
                end = following.start if following else math.inf
                found += [SizeRange(cut, piece.algorithm, piece.protocol) for cut in cuts if piece.start < cut < end]
        return tuple(found)

    @cached_property
    def starts(self) -> list[float]:
        return [piece.start for piece in self.pieces]

    @cached_property
    def ceilings(self) -> list[float]:
        """Upper bound of each range, so that time never falls with size: the least seconds at which any later range begins. NCCL
        switches from one algorithm to the next later than it should."""
        found = [math.inf]
        for piece in reversed(self.pieces[1:]):
            found.append(min(found[-1], self.cost(piece.start, piece.algorithm, piece.protocol).seconds))
        return found[::-1]

    def seconds(self, size: float) -> tuple[Cost, str, str]:
        """Cost of `size` bytes with its algorithm and protocol; it never falls as the size grows."""
        if self.open:
            algorithm, protocol = self.choose(size)
            return self.cost(size, algorithm, protocol), algorithm, protocol
        at = bisect_right(self.starts, size) - 1
        piece, ceiling = self.pieces[at], self.ceilings[at]
        cost = self.cost(size, piece.algorithm, piece.protocol)
        if cost.seconds > ceiling:
            cost = Cost(ceiling, min(cost.latency, ceiling))
        return cost, piece.algorithm, piece.protocol


_SENDS = (Comm.ALL_TO_ALL, Comm.SEND_RECV, Comm.GATHER, Comm.SCATTER)
NOTHING = CommEstimate(0.0, "none", "none", 0, 0.0, 0.0, "modelled", 0.0)


def bus_factor(comm: Comm, ranks: int) -> float:
    """busbw / algbw of nccl-tests (`doc/PERFORMANCE.md`)."""
    if comm == Comm.ALL_REDUCE:
        return 2.0 * (ranks - 1) / ranks
    split = (Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.GATHER, Comm.SCATTER)
    return (ranks - 1) / ranks if comm in split else 1.0


def collective(
    cluster: Cluster, comm: Comm, bytes: float, group: Group, *, settings: Mapping[str, str | int] | Settings | None = None
) -> CommEstimate:
    """Cost of `comm` over `group`; `bytes` is the total buffer as nccl-tests counts it (SEND_RECV: the message).

    A group of one costs nothing. `settings` are NCCL_* variables. Raises SpecError on a negative or infinite size, on a group that
    needs a NIC where there is none, and on unknown settings.
    """
    if not math.isfinite(bytes) or bytes < 0:
        raise SpecError("bytes", bytes, "a finite number of bytes, not negative")
    if group.ranks <= 1 or comm == Comm.NONE:
        return NOTHING
    options = settings if isinstance(settings, Settings) else parse_settings(settings)
    found = prepare(cluster, comm, group, options)
    cost, algorithm, protocol = found.seconds(bytes)
    rate = bytes * bus_factor(comm, group.ranks) / cost.seconds if cost.seconds > 0 else 0.0
    channels = found.graph.nvls_running if algorithm == "nvls" else found.graph.running
    return CommEstimate(cost.seconds, algorithm, protocol, channels, rate, cost.latency, found.provenance, found.relative_error)


def prepare(cluster: Cluster, comm: Comm, group: Group, settings: Settings = DEFAULT) -> Setup:
    """Links, channels and constants of `group`, kept between calls."""
    return _setup(ClusterKey(as_set(cluster, settings)), Comm(comm), group, settings)


class ClusterKey:
    """A cluster as a key by identity of its content: hashing a whole spec costs more than the estimate."""

    __slots__ = ("cluster", "hashed")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hashed = hash((cluster.id, cluster.node.id, cluster.gpus))

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterKey) and (self.cluster is other.cluster or self.cluster == other.cluster)


@lru_cache(maxsize=1024)
def _setup(key: ClusterKey, comm: Comm, group: Group, settings: Settings) -> Setup:
    cluster = key.cluster
    check_fabric(cluster.fabric)
    links = group_links(cluster, group)
    if group.nodes > 1:
        links = replace(links, inter=links.inter * uplink_share(cluster, group, comm))
    node, net = NODES[links.generation], NETS[links.fabric]
    exact = links.medium == "nvlink" and bool(node.fitted_on) and (group.nodes == 1 or bool(net.fitted_on))
    error = node.relative_error if group.nodes == 1 else math.hypot(node.relative_error, net.relative_error)
    provenance = "modelled" if exact else "transferred" if links.nvidia else "assumed"
    error = error if exact else max(0.2 if links.nvidia else 0.3, error)
    return Setup(comm, group, settings, links, graph(group, links, settings), node, net, provenance, error)


def sweep(
    cluster: Cluster,
    comm: Comm,
    gpus: int,
    sizes: Iterable[float],
    *,
    per_node: int | None = None,
    sharing: int = 1,
    settings: Mapping[str, str | int] | None = None,
) -> list[dict[str, object]]:
    """The table of nccl-tests, a row per size: `size`, `time_us`, `algbw_GBs`, `busbw_GBs`, `algorithm`, `protocol`, `channels`, …

    `per_node` ranks in each domain (left out: as many as fit) and `sharing` such groups on the same NICs. SpecError if the cluster
    has fewer GPUs.
    """
    if gpus > cluster.gpus:
        raise SpecError("gpus", gpus, f"at most the cluster's {cluster.gpus}")
    shape, options = flat_group(cluster, gpus, per_node, sharing), parse_settings(settings)
    rows: list[dict[str, object]] = []
    for size in sizes:
        found = collective(cluster, comm, size, shape, settings=options)
        rows.append(
            {
                "size": size,
                "time_us": found.seconds * 1e6,
                "algbw_GBs": size / found.seconds * 1e-9 if found.seconds else 0.0,
                "busbw_GBs": found.bus_bandwidth * 1e-9,
                "algorithm": found.algorithm,
                "protocol": found.protocol,
                "channels": found.channels,
                "provenance": found.provenance,
                "relative_error": found.relative_error,
            }
        )
    return rows


__all__ = ["CommEstimate", "Setup", "bus_factor", "collective", "prepare", "sweep"]
