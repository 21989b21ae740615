"""Channels of sends and receives, and so of an all-to-all, by NCCL's rules.

`ncclTopoComputeP2pChannels`, `ncclTopoGetNchannels` (`paths.cc`) and `addP2pToPlan` (`enqueue.cc`) of NCCL 2.30.7: a communicator
has a power of two of channels, a peer at most two for each NVLink to it. A message starts with as many as leave one for each rank
and doubles them while a channel's part is large. Several messages may share a channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.constants import NVLINKS
from windtunnel.network.nccl.settings import Settings

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
