"""Channel counts and per-channel speeds that result from NCCL's graph search, by arithmetic on NVLinks and NICs.

Rules of NCCL 2.30.7 (`search.cc`, `connect.cc`, `nvls.cc`); the search itself is not run. Speeds in GB/s, as NCCL counts them.

Channels of sends and receives, and so of an all-to-all, by NCCL's rules.

`ncclTopoComputeP2pChannels`, `ncclTopoGetNchannels` (`paths.cc`) and `addP2pToPlan` (`enqueue.cc`) of NCCL 2.30.7: a communicator
has a power of two of channels, a peer at most two for each NVLink to it. A message starts with as many as leave one for each rank
and doubles them while a channel's part is large. Several messages may share a channel.

Rails: which NICs messages between nodes leave by, with and without PXN.

With PXN (on by default) a message leaves by the NIC on the receiver's rail, to which the sender copies it over NVLink. Without, it
leaves by the sender's own NIC, and on a fabric with a leaf switch for each rail it crosses to the receiver's rail above the leaves,
unless NCCL_CROSS_NIC=0 keeps it on the sender's rail. (`ncclTopoGetNetDev` in `search.cc` of NCCL 2.30.7; NVIDIA on what it is for:
NVIDIA/nccl issues 918 and 2193. A measured all-to-all on eight nodes of A800: 12 GB/s with PXN, 10 without, NVIDIA/nccl-tests issue
187.)
"""

from __future__ import annotations

import math

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.constants import (
    DATA_ON_WIRE,
    INTRA_SPEEDS,
    MAX_CHANNELS,
    NET_COUNTED,
    NVLINK_COUNTED,
    NVLINK_RATE,
    NVLINKS,
    NVLS_CHANNELS,
    OTHER_CHANNELS,
    PROTOCOLS,
    STEP_BYTES,
    STEPS,
)
from windtunnel.network.nccl.graph_file import DumpedGraphs
from windtunnel.network.nccl.settings import Settings
from windtunnel.spec.machine import Cluster

BATCH = 8
"""Messages that one channel serves at the same time."""
STEP = 512 * 2.0**10
"""Bytes of a step inside a domain."""
NET_STEP = 128 * 2.0**10
"""Bytes of a step where the communicator has several domains, or over PCIe."""
LL_BYTES = 16 * 2.0**10
"""Bytes for each channel up to which a message takes LL (inside a domain alone)."""
_NET_CHANNEL = 14e9  # B/s of a NIC for which a peer beyond it has one more channel (NCCL_P2P_PER_CHANNEL_NET_BW)


@dataclass(frozen=True)
class SendChannels:
    """Channels of a communicator's messages."""

    total: int
    """Of all messages together."""
    most: int
    """Of one message."""
    start: int
    """With which a message starts, unless it is small."""
    least_part: float
    """Bytes of a channel's part below which a message has fewer."""
    most_part: float
    """Bytes of a channel's part above which it has more."""
    step: float
    """Bytes that a channel moves in one step of its buffer."""

    def of(self, size: float) -> float:
        """Channels of a message of `size` bytes, not rounded to the powers of two that run: the time of a message then never falls
        with its size."""
        few = min(self.start, max(1.0, size / self.least_part))
        return min(self.most, max(few, size / self.most_part))

    def count_busy(self, size: float, peers: int) -> float:
        """Channels that move messages of `size` bytes to `peers` others at the same time."""
        return min(self.total, self.of(size) * peers)

    def at_once(self, size: float) -> int:
        """Peers that are served at the same time."""
        return BATCH * max(1, int(self.total // max(1.0, self.of(size))))


def send_channels(group: Group, links: GroupLinks, running: int, settings: Settings) -> SendChannels:
    """Channels of sends among the ranks of `group`, of a kernel that runs `running` channels."""
    total = _power_of_two(running)
    most = _power_of_two(_of_a_peer(group, links, settings))
    if group.nodes > 1 and settings.channels_per_peer is None:
        while most > 1 and most * -(-group.ranks // BATCH) > total:
            most //= 2
    most = start = min(most, total)
    while start > 1 and start * group.ranks > total:
        start //= 2
    step = step_of_sends(group, links, settings)
    parts = (step / 2, step) if group.nodes > 1 else (step / 8, 32 * step)
    return SendChannels(total, most, start, *parts, step)


def step_of_sends(group: Group, links: GroupLinks, settings: Settings) -> float:
    """Bytes that a message moves in one step of its buffer, of which there are eight."""
    step = STEP if group.nodes == 1 and links.medium == "nvlink" else NET_STEP
    buffer = settings.buffers.get("Simple")
    return step if buffer is None else min(step, buffer / 8)


def _of_a_peer(group: Group, links: GroupLinks, settings: Settings) -> int:
    """Channels of the peer that has fewest."""
    counts = []
    if group.per_node > 1:
        one = links.link or links.whole / NVLINKS.get(links.generation, 1)
        counts.append(2 * max(1, int(links.pair / one + 1e-6)) if links.medium == "nvlink" else 2)
    if group.nodes > 1:
        nic = links.line / max(1.0, links.nics)
        counts.append(settings.channels_per_peer or max(2, -int(-nic // _NET_CHANNEL)))
    return min(counts, default=1)


def _power_of_two(number: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << max(0, number - 1).bit_length()


@dataclass(frozen=True)
class ChannelSearch:
    """The result of the search, and the channels that then run."""

    channels: int
    """Channels of the search, as the tuner multiplies them."""
    intra: float
    """GB/s of a channel of a ring inside a node."""
    inter: float
    """GB/s of a channel of a ring between nodes."""
    tree: float
    """GB/s of a channel of a tree inside a node."""
    running: int
    """Channels that run, under the user's variables."""
    nvls: int
    """Channels of the switch reduction."""
    nvls_intra: float
    """GB/s of each of them."""
    usual: int
    """Channels of a kernel by NCCL's own rules."""
    each: float
    """GB/s that one of `usual` can move."""
    nvls_running: int
    """Those of them that run."""
    sends: SendChannels
    """Channels of sends and receives."""
    usual_sends: SendChannels
    """The same of a kernel with `usual` channels."""
    windows: tuple[float, float, float]
    """Bytes of data that a connection's buffer holds, by protocol, where the user has made it smaller than NCCL's; infinite: as in
    NCCL, where the buffer does not limit the rate."""
    file: DumpedGraphs | None = None
    """The graph file that the channels are from."""

    @property
    def limit(self) -> float:
        """B/s of a GPU that all running channels can move together; infinite with NCCL's default number."""
        return math.inf if self.running >= self.usual else self.running * self.each * 1e9

    def reach(self, nics: float) -> float:
        """Share of a group's NICs that its channels use evenly: channel c leaves by NIC c modulo `nics`, or by that of a file."""
        if self.file is None or not self.file.ring.nets:
            return min(1.0, self.running / max(1.0, round(nics)))
        entries = [nets[0] for nets in self.file.ring.nets]
        used = [entries[i % len(entries)] for i in range(self.running)]
        return min(1.0, len(used) / max(used.count(one) for one in used) / max(1.0, round(nics)))


def graph(group: Group, links: GroupLinks, settings: Settings) -> ChannelSearch:
    """Rings of `group` on `links`.

    The search runs on scale-up links of the generation's own rate, for which NVIDIA wrote its list of speeds: links of another rate
    have as many channels, each faster or slower in proportion.
    """
    if not links.nvidia:
        running = _limit_channels(OTHER_CHANNELS, settings)
        rates = links.intra * 1e-9 / running, links.line * 1e-9 / running
        each = links.whole * 1e-9 / OTHER_CHANNELS  # what one workgroup moves, whatever the group
        sends, most = (send_channels(group, links, number, settings) for number in (running, OTHER_CHANNELS))
        return ChannelSearch(
            running, rates[0], rates[1], rates[0], running, 0, 0.0, OTHER_CHANNELS, each, 0, sends, most, _windows(settings)
        )
    counted = links.intra * 1e-9 * (NVLINK_COUNTED[links.generation] if links.medium == "nvlink" else 0.92)
    faster = faster_links(links)
    usual = _search(group, links, settings, counted / faster)
    if group.nodes == 1:
        each = usual.each * faster
    else:
        net = links.line * 1e-9 * NET_COUNTED / usual.channels
        each = usual.each * min(net, counted / usual.channels) / min(net, counted / faster / usual.channels)
    found = replace(usual, each=each)
    file = settings.graphs
    whole = file is not None and file.gpus == group.per_node == group.gpus_per_node
    return _of_file(found, file, group, links, settings) if file is not None and whole else found


def _of_file(found: ChannelSearch, file: DumpedGraphs, group: Group, links: GroupLinks, settings: Settings) -> ChannelSearch:
    """The channels of a dump in place of those of the search; what one of them can move follows from the links.

    SpecError for a call between nodes and a dump of one node.
    """
    ring, many = file.ring, group.nodes > 1
    if many and not ring.nets:
        raise SpecError(file.field, file.path, "a dump of several nodes", "Channels without <net> do not leave a node.")
    inter = ring.inter if many else ring.intra
    channels = len(ring.orders)
    number = min(MAX_CHANNELS, 2 * channels)
    if links.generation in ("hopper", "blackwell") and many and min(ring.intra, inter) > 45.0 and number < 16:
        number *= 2
    running = _limit_channels(number, settings)
    tree = file.tree.intra if file.tree is not None else ring.intra
    nvls = math.ceil(found.nvls * min(1.0, running / found.usual)) if many else found.nvls_running
    return replace(
        found, channels=channels, intra=ring.intra, inter=inter, tree=tree, running=running, file=file,
        nvls_running=min(found.nvls_running, nvls), sends=send_channels(group, links, running, settings),
    )  # fmt: skip


def faster_links(links: GroupLinks) -> float:
    """Rate of one NVLink over that of its generation; 1 for PCIe. A GPU whose number of links is not stated has all that its
    generation has."""
    if links.medium != "nvlink" or not links.nvidia:
        return 1.0
    each = links.link or links.whole / NVLINKS[links.generation]
    return each * 1e-9 / NVLINK_RATE[links.generation]


def _search(group: Group, links: GroupLinks, settings: Settings, counted: float) -> ChannelSearch:
    """`counted`: GB/s of a GPU's scale-up links as NCCL counts them."""
    late = links.generation in ("hopper", "blackwell")
    if group.nodes == 1:
        channels, intra = _domain_channels(counted, links)
        inter = tree = intra
    else:
        inter = links.line * 1e-9 * NET_COUNTED / max(1.0, round(links.nics))
        channels = max(1, round(links.nics))
        # A ring runs at one speed; of a tree the search may raise the speed inside the node, to twice that of the NIC.
        intra = inter = inter if group.per_node == 1 else min(inter, counted / channels)
        tree = inter if group.per_node == 1 else max(inter, min(2.0 * inter, counted / channels))
        if channels > MAX_CHANNELS // 2:
            fold = channels / (MAX_CHANNELS // 2)
            channels, intra, inter, tree = MAX_CHANNELS // 2, intra * fold, inter * fold, tree * fold
    usual = channels
    speed = each = min(intra, inter)
    if speed >= 25.0 and not (
        late and speed < 50.0 and channels > 4
    ):  # two channels then share the bandwidth of one channel of the search
        usual *= 2
        each /= 2
    usual = min(MAX_CHANNELS, usual * 2)
    if late and group.nodes > 1 and speed > 45.0 and usual < 16 and group.per_node > 1:
        usual *= 2
    running = _limit_channels(usual, settings)
    own = NVLS_CHANNELS.get(links.generation, (0, 0))[0 if group.nodes == 1 else 1] if links.nvls else 0
    nvls_running = min(own, settings.max_ctas or MAX_CHANNELS)
    if group.nodes > 1:  # between nodes at most as many channels as rings; as a share, since the usual rates were fitted that way
        nvls_running = min(nvls_running, math.ceil(own * min(1.0, running / usual)))
    sends, by_default = (send_channels(group, links, number, settings) for number in (running, usual))
    nvls = counted / own if own else 0.0
    return ChannelSearch(
        channels, intra, inter, tree, running, own, nvls, usual, each, nvls_running, sends, by_default, _windows(settings)
    )


def _windows(settings: Settings) -> tuple[float, float, float]:
    sizes = [settings.buffers.get(p, math.inf) * data for p, data in zip(PROTOCOLS, DATA_ON_WIRE, strict=True)]
    usual = [STEPS * STEP_BYTES[p] for p in PROTOCOLS]
    small = [size if size < most else math.inf for size, most in zip(sizes, usual, strict=True)]
    return small[0], small[1], small[2]


def _limit_channels(usual: int, settings: Settings) -> int:
    """Channels that run, if NCCL's default is `usual`."""
    return min(max(usual, settings.min_channels or 1), settings.max_channels or MAX_CHANNELS, MAX_CHANNELS)


def _domain_channels(counted: float, links: GroupLinks) -> tuple[int, float]:
    """(channels, GB/s each) inside one domain: the speed of the list that uses most of the links, the fastest at a tie."""
    if links.medium == "pci":
        return 1, counted
    best = (0.0, 1, counted)
    for speed in INTRA_SPEEDS[links.generation]:
        channels = int(counted / speed + 1e-6)
        if channels and channels * speed > best[0] * 1.001:
            best = (channels * speed, channels, speed)
    return best[1], best[2]


def log2_floor(number: float) -> int:
    """Floor of log2 for a number of at least 1."""
    return max(0, math.frexp(max(number, 1.0))[1] - 1)


def may_relay(cluster: Cluster) -> bool:
    """Whether PXN is possible: it needs NVLink between all GPUs of a node."""
    return cluster.node.scale_up.kind == "nvswitch"


def relays_sends(cluster: Cluster, settings: Settings) -> bool:
    """Whether sends between nodes leave through the GPU on the receiver's rail."""
    return settings.pxn and settings.p2p_pxn and may_relay(cluster)


def on_rails_alone(cluster: Cluster) -> bool:
    """Whether no switch joins two rails: a message that changes rails does so inside one of its servers."""
    return cluster.fabric.topology == "rail_only"


def rails_of(cluster: Cluster, group: Group) -> int:
    """Rails that the GPUs of the group in one server have their NICs on; 1 inside a domain."""
    nic, gpus = cluster.node.nic, cluster.node.gpus
    if group.nodes == 1 or nic is None:
        return 1
    return max(1, round(min(nic.count, gpus) * min(group.per_node, gpus) / gpus))


def crosses_rails(cluster: Cluster, group: Group, settings: Settings) -> bool:
    """Whether an all-to-all between nodes changes rails above the leaves, because PXN is off where it could be on.

    Where it never is (RCCL, PCIe), the fitted rates hold as they were measured.
    """
    on_rails = cluster.fabric.topology == "rail" and rails_of(cluster, group) > 1 and may_relay(cluster)
    return on_rails and settings.cross_nic != 0 and not relays_sends(cluster, settings)
