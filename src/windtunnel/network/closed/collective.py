"""Seconds of one collective in closed form: NCCL's selection, then the cost of the selected algorithm on the group's links."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.network.algorithm import ALGORITHMS, MESSAGES
from windtunnel.network.closed.cost import MADE_OF_SENDS, CallParts, Cost, parts_of
from windtunnel.network.closed.fitted import NETS, NODES, NetConstants, NodeConstants, scale_constants
from windtunnel.network.closed.grid import GRID_ERROR, describe_spans, greatest_grid_rate, grid_call
from windtunnel.network.fabrics.check import check_fabric
from windtunnel.network.groups.bandwidth import GroupLinks, above_leaf, group_links, hash_gain, uplink_share
from windtunnel.network.groups.shape import Group, flat_group
from windtunnel.network.nccl.channels import (
    LL_BYTES,
    ChannelSearch,
    crosses_rails,
    faster_links,
    graph,
    may_relay,
    on_rails_alone,
    rails_of,
    relays_sends,
)
from windtunnel.network.nccl.constants import LL, PROTOCOLS, SIMPLE
from windtunnel.network.nccl.settings import DEFAULT, Settings, as_set, parse_settings
from windtunnel.network.nccl.tuner import SizeRange, pieces
from windtunnel.spec.machine import Cluster
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
    held: float | None = None
    """SMs that its channels need, where that is less than all of them (`Setup.count_held`)."""
    dimensions: str = ""
    """The parts of a machine's dimensions that it runs over (`grid.describe_spans`)."""


@dataclass(frozen=True)
class Setup:
    """All inputs of a call's cost except its size: links, channels and constants of a group on a cluster."""

    comm: Comm
    group: Group
    settings: Settings
    links: GroupLinks
    graph: ChannelSearch
    node: NodeConstants
    net: NetConstants
    provenance: str
    relative_error: float
    alone: bool = False
    """NCCL's own choice is taken as it is, whatever it does on other NICs."""

    def choose(self, size: float) -> tuple[str, str]:
        """(algorithm, protocol) that NCCL's tuner selects; sends and receives have no choice.

        Tables of RCCL and other libraries are tuned per machine, so for those libraries the fastest by the fitted constants is
        taken.
        """
        if self.open:
            return min(self.open, key=lambda option: self.cost(size, *option).seconds)
        piece = self.pieces[bisect_right(self.starts, size) - 1]
        return piece.algorithm, piece.protocol

    def cost(self, size: float, algorithm: str, protocol: str) -> Cost:
        """Cost of `size` bytes with that algorithm and protocol."""
        parts = self.parts(size, algorithm, protocol)
        return Cost(parts.seconds, parts.latency)

    def parts(self, size: float, algorithm: str, protocol: str, comm: Comm | None = None) -> CallParts:
        """The parts of that cost; `comm`: of another call of the group."""
        return parts_of(
            self.comm if comm is None else comm, size, self.group, self.links, self.graph, algorithm, protocol, self.node, self.net
        )

    @cached_property
    def open(self) -> tuple[tuple[str, str], ...]:
        """Candidates of a library other than NCCL; empty if NCCL's tables choose."""
        if self.links.nvidia or self.comm in MADE_OF_SENDS:
            return ()
        named = [name for name in ALGORITHMS.in_order(self.settings.algorithms) if self._has_elsewhere(name)]
        return tuple(
            (name, protocol)
            for name in named or [ALGORITHMS.default]
            for protocol in PROTOCOLS
            if protocol in self.settings.protocols
        )

    def _has_elsewhere(self, name: str) -> bool:
        return ALGORITHMS[name].suits_other_libraries(self.comm, self.group)

    @cached_property
    def pieces(self) -> tuple[SizeRange, ...]:
        """Ranges of sizes with the same selection, split where its seconds have a step."""
        if self.comm in MADE_OF_SENDS:
            whole = (SizeRange(0.0, MESSAGES, SIMPLE),)
            last = LL_BYTES * (1 if self.comm == Comm.SEND_RECV else self.group.ranks)
            small = self.links.nvidia and self.group.nodes == 1
            return (SizeRange(0.0, MESSAGES, LL), SizeRange(math.nextafter(last, math.inf), MESSAGES, SIMPLE)) if small else whole
        if self.open:
            return (SizeRange(0.0, ALGORITHMS.default, SIMPLE),)
        ranges = []
        chosen = pieces(self.comm, self.group, self.links, self.graph, self.settings)
        for piece, following in zip(chosen, (*chosen[1:], None), strict=True):
            ranges.append(piece)
            end = following.start if following else math.inf
            cuts = ALGORITHMS[piece.algorithm].breaks(self.group, self.graph)
            ranges += [SizeRange(cut, piece.algorithm, piece.protocol) for cut in cuts if piece.start < cut < end]
        return tuple(ranges)

    @cached_property
    def starts(self) -> list[float]:
        return [piece.start for piece in self.pieces]

    @cached_property
    def ceilings(self) -> list[float]:
        """Upper bound of the seconds in each range, so that time never falls with size: the minimum over the starts of later
        ranges. NCCL changes to the next algorithm later than is optimal."""
        bounds = [math.inf]
        for piece in reversed(self.pieces[1:]):
            bounds.append(min(bounds[-1], self.cost(piece.start, piece.algorithm, piece.protocol).seconds))
        return bounds[::-1]

    @cached_property
    def peaks(self) -> list[float]:
        """The greatest rate before each range, B/s: in a range the rate grows with the size, and where the next one begins NCCL
        may take an algorithm that is slower there."""
        greatest = [0.0]
        for before, ceiling, start in zip(self.pieces, self.ceilings, self.starts[1:], strict=False):
            last = math.nextafter(start, 0.0)  # from `start` on the cost is that of larger chunks
            seconds = min(self.cost(last, before.algorithm, before.protocol).seconds, ceiling)
            greatest.append(max(greatest[-1], last / seconds))
        return greatest

    def greatest_rate(self, size: float) -> float:
        """The greatest rate of a call of at most `size` bytes, B/s."""
        if self.open:
            return size / self.seconds(size)[0].seconds
        if not self.better:
            return self._greatest_alone(size)
        worst = max if self.links.beyond else min
        return min(worst(one._greatest_alone(size) for one in as_many) for as_many in self.better)

    def _greatest_alone(self, size: float) -> float:
        seconds = self._ask_nccl(size)[0].seconds
        return max(size / seconds if seconds > 0.0 else math.inf, self.peaks[bisect_right(self.starts, size) - 1])

    @cached_property
    def better(self) -> tuple[tuple[Setup, ...], ...]:
        """The same group with the NICs of `links.better`; empty where no NIC or no choice of NCCL's takes part."""
        if not self._chooses_between_nodes or self.links.better == (((self.links.line, self.links.nics),),):
            return ()
        return tuple(tuple(self._with_nics(*nics) for nics in as_many) for as_many in self.links.better)

    @cached_property
    def slower(self) -> tuple[Setup, ...]:
        """The same group with slower and with fewer NICs: whoever has better ones can have NCCL run as many channels as on these
        (NCCL_MAX_NCHANNELS)."""
        if not self._chooses_between_nodes:
            return ()
        links = self.links
        each = links.line / links.nics
        fewer = [links.nics / 2**k for k in range(1, 8) if links.nics / 2**k >= 1.0]
        worse = [(links.nics, each / 2), *((links.nics, rung) for rung in NIC_RATES if rung < each), *((n, each) for n in fewer)]
        return tuple(self._with_nics(nics * rate, nics) for nics, rate in worse)

    @property
    def _chooses_between_nodes(self) -> bool:
        return not self.alone and self.group.nodes > 1 and self.links.nvidia and self.comm not in MADE_OF_SENDS

    def _with_nics(self, line: float, nics: float) -> Setup:
        links = replace(self.links, line=line, inter=self.links.inter * line / self.links.line, nics=nics, better=())
        return replace(self, links=links, graph=graph(self.group, links, self.settings), alone=True)

    def seconds(self, size: float) -> tuple[Cost, str, str]:
        """Cost of `size` bytes with its algorithm and protocol; monotone in the size, and never less than on better NICs.

        NCCL's tables make mistakes that the fitted costs show: it leaves LL128 for Simple too early on fast NICs. On the fastest
        NICs that its tables and the fabric's constants are known for (`known_nic`), one a GPU, the seconds are those of its own
        choice. With slower or fewer NICs a call takes no less than with those, and with faster ones no more.
        """
        return self.best(size)[:3]

    def best(self, size: float) -> tuple[Cost, str, str, int]:
        """`seconds`, and the channels that run.

        Each channel holds an SM, so those that gain nothing are not run: of the ways on these NICs or worse ones that take no
        longer than NCCL's, the one with the fewest. Whether they gain is asked on scale-up links of the generation's rate. NCCL
        counts the channels between nodes by NICs and their rate: `search.cc` (ncclTopoCompute) takes the list of speeds "Inter"
        there, `connect.cc` doubles fewer than 16 where a channel moves over 45 GB/s, and NVLinks count only where they are slower.
        So links that are twice as fast, beside which NICs then bind, run no more channels.
        """
        own = self._ask_nccl(size)
        cost = own[0]
        if self.better:
            slowest = min if self.links.beyond else max
            cost = max(slowest(one._ask_nccl(size)[0] for one in as_many) for as_many in self.better)
        return cost, own[1], own[2], self.at_usual_links._fewest_channels(size)

    @cached_property
    def at_usual_links(self) -> Setup:
        """The same group on scale-up links of its generation's rate."""
        faster = faster_links(self.links)
        if faster == 1.0 or self.group.nodes == 1:
            return self
        links = self.links
        each = {name: getattr(links, name) / faster for name in ("intra", "chain", "pair", "whole")}
        usual = replace(links, **each, link=links.link and links.link / faster)
        return replace(self, links=usual, graph=graph(self.group, usual, self.settings))

    def count_held(self, size: float) -> float:
        """SMs that the channels of a call need, one each: those of `best`, or less where fewer channels move nearly as much.

        NCCL may run twice the channels for NICs that shorten a call by a tenth, and doubled SMs then cost computation beside it
        more than the call gains. Ways on worse NICs that take up to `LITTLE` longer show how much fewer channels move: the
        channels needed are as many of theirs as give the call's rate.
        """
        usual = self.at_usual_links
        own, _, _, channels = usual._ask_nccl(size)
        needed = float(usual._fewest_channels(size))
        for one in usual.slower:
            cost, _, _, fewer = one._ask_nccl(size)
            if fewer < channels and own.seconds < cost.seconds <= own.seconds * (1.0 + LITTLE):
                needed = min(needed, fewer * cost.seconds / own.seconds)
        return needed

    def _fewest_channels(self, size: float) -> int:
        cost, _, _, fewest = self._ask_nccl(size)
        for one in self.slower:
            other = one._ask_nccl(size)
            if other[3] < fewest and other[0].seconds <= cost.seconds * (1.0 + _AS_LONG):
                fewest = other[3]
        return fewest

    @cached_property
    def _answers(self) -> dict[float, tuple[Cost, str, str, int]]:
        """What NCCL chose for sizes that were asked before: layers of a step, and plans of a search, ask for the same."""
        return {}

    def _ask_nccl(self, size: float) -> tuple[Cost, str, str, int]:
        if (known := self._answers.get(size)) is not None:
            return known
        if len(self._answers) >= MOST_ANSWERS:
            self._answers.clear()
        answer = self._answers[size] = self._find_choice(size)
        return answer

    def _find_choice(self, size: float) -> tuple[Cost, str, str, int]:
        if self.open:
            algorithm, protocol = self.choose(size)
            return self.cost(size, algorithm, protocol), algorithm, protocol, self.graph.running
        at = bisect_right(self.starts, size) - 1
        piece, ceiling = self.pieces[at], self.ceilings[at]
        cost = self.cost(size, piece.algorithm, piece.protocol)
        if cost.seconds > ceiling:
            cost = Cost(ceiling, min(cost.latency, ceiling))
        return cost, piece.algorithm, piece.protocol, ALGORITHMS[piece.algorithm].running(self.graph)


MOST_ANSWERS = 4096
_AS_LONG = 1e-9
LITTLE = 0.25
"""Share by which a call is longer on worse NICs, below which more channels gain little: assumed."""
NIC_RATES = (12.5e9, 25e9, 50e9, 100e9)
"""B/s of the NICs that were sold with GPUs: 100 to 800 Gb/s."""

NCCL_TRANSFERRED = 0.2
"""Least relative error of a call on NVIDIA hardware that no constant was fitted on: assumed."""

OTHER_LIBRARY = 0.3
"""The same where another library than NCCL carries the call: assumed."""

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

    A group of one rank costs 0. `settings`: NCCL_* variables. Raises SpecError for a negative or infinite size, for a group that
    needs a NIC on a cluster without NICs, and for unknown settings.
    """
    if not math.isfinite(bytes) or bytes < 0:
        raise SpecError("bytes", bytes, "a finite number of bytes, not negative")
    if group.ranks <= 1 or comm == Comm.NONE:
        return NOTHING
    if group.grid is not None:
        return _estimate_on_grid(cluster, comm, bytes, group)
    options = settings if isinstance(settings, Settings) else parse_settings(settings)
    prepared = prepare(cluster, comm, group, options)
    cost, algorithm, protocol, channels = prepared.best(bytes)
    protocol, channels = in_words_of(prepared.links, protocol, channels)
    rate = bytes * bus_factor(comm, group.ranks) / cost.seconds if cost.seconds > 0 else 0.0
    return CommEstimate(
        cost.seconds, algorithm, protocol, channels, rate, cost.latency, prepared.provenance, prepared.relative_error,
        prepared.count_held(bytes) if channels else None,
    )  # fmt: skip


def _estimate_on_grid(cluster: Cluster, comm: Comm, size: float, group: Group) -> CommEstimate:
    call = grid_call(cluster, comm, group)
    seconds, latency = call.cost(size)
    rate = size * bus_factor(comm, group.ranks) / seconds if seconds > 0 else 0.0
    dimensions = describe_spans(call.machine, call.grid, comm)
    return CommEstimate(
        seconds, call.algorithm, call.machine.medium, 0, rate, latency, "assumed", GRID_ERROR, dimensions=dimensions
    )  # fmt: skip


def greatest_rate(cluster: Cluster, comm: Comm, group: Group, size: float, settings: Settings = DEFAULT) -> float:
    """The greatest rate of a call of at most `size` bytes, B/s."""
    if group.grid is not None:
        return greatest_grid_rate(cluster, comm, group, size)
    return prepare(cluster, comm, group, settings).greatest_rate(size)


_WITHOUT_CHANNELS = {"tpu": "ICI", "gaudi": "HCCL", "other": "-"}
"""Who moves the data on accelerators whose network ports move it themselves: no kernel has channels, and no protocol puts flags."""


def in_words_of(links: GroupLinks, protocol: str, channels: int) -> tuple[str, int]:
    """(protocol, channels) as the accelerator's own library has them: NCCL and RCCL as they are; a TPU's links and Gaudi's ports
    have neither, and their cost by the constants of rings is assumed. 0 channels: none."""
    own = None if links.nvidia else _WITHOUT_CHANNELS.get(links.generation)
    return (protocol, channels) if own is None else (own, 0)


def prepare(cluster: Cluster, comm: Comm, group: Group, settings: Settings = DEFAULT, thin: bool = True) -> Setup:
    """Links, channels and constants of `group`, cached between calls; not `thin`: with as many up-links as down-links."""
    return _setup(ClusterKey(as_set(cluster, settings)), Comm(comm), group, settings, thin)


class ClusterKey:
    """A cluster as a cache key by object identity: hashing a full spec costs more than the estimate."""

    __slots__ = ("cluster", "hashed")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hashed = hash((cluster.id, cluster.node.id, cluster.gpus))

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterKey) and (self.cluster is other.cluster or self.cluster == other.cluster)


@lru_cache(maxsize=1024)
def _setup(key: ClusterKey, comm: Comm, group: Group, settings: Settings, thin: bool) -> Setup:
    cluster = key.cluster
    check_fabric(cluster.fabric)
    links = group_links(cluster, group)
    if group.nodes > 1:
        crosses = comm == Comm.ALL_TO_ALL and crosses_rails(cluster, group, settings)
        if crosses and group.span == "leaf":
            links = above_leaf(cluster, links)
        share = uplink_share(cluster, group, comm, rails_of(cluster, group) if crosses else 1, thin)
        links = replace(links, inter=links.inter * share * hash_gain(cluster, group, settings.qps))
        if rails_of(cluster, group) > 1 and may_relay(cluster):
            relays = relays_sends(cluster, settings)
            links = replace(links, relays=relays or on_rails_alone(cluster), apart=not relays)
    node, net = NODES[links.generation], NETS[links.fabric]
    exact = links.medium == "nvlink" and bool(node.fitted_on) and (group.nodes == 1 or bool(net.fitted_on))
    error = node.relative_error if group.nodes == 1 else math.hypot(node.relative_error, net.relative_error)
    provenance = "modelled" if exact else "transferred" if links.nvidia else "assumed"
    error = error if exact else max(NCCL_TRANSFERRED if links.nvidia else OTHER_LIBRARY, error)
    if cluster.achieved is not None:
        node, net = scale_constants(node, net, cluster.achieved)
        provenance, error = "modelled", cluster.achieved.relative_error or error
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
        estimate = collective(cluster, comm, size, shape, settings=options)
        rows.append(
            {
                "size": size,
                "time_us": estimate.seconds * 1e6,
                "algbw_GBs": size / estimate.seconds * 1e-9 if estimate.seconds else 0.0,
                "busbw_GBs": estimate.bus_bandwidth * 1e-9,
                "algorithm": estimate.algorithm,
                "protocol": estimate.protocol,
                "channels": estimate.channels,
                **({"dimensions": estimate.dimensions} if estimate.dimensions else {}),
                "provenance": estimate.provenance,
                "relative_error": estimate.relative_error,
            }
        )
    return rows


__all__ = ["CommEstimate", "Setup", "bus_factor", "collective", "prepare", "sweep"]
