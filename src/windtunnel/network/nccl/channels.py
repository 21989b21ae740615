"""Channel counts and per-channel speeds that NCCL's graph search ends with, by arithmetic on NVLinks and NICs.

Rules of NCCL 2.30.7 (`search.cc`, `connect.cc`, `nvls.cc`); the search itself is not run. Speeds in GB/s, as NCCL counts them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.constants import INTRA_SPEEDS, MAX_CHANNELS, NET_COUNTED, NVLINK_COUNTED, NVLS_CHANNELS, OTHER_CHANNELS
from windtunnel.network.nccl.settings import Settings


@dataclass(frozen=True)
class ChannelSearch:
    """`channels` of the search with GB/s each, as the tuner multiplies them: `intra` and `inter` of a ring, `tree` inside a node;
    `running` channels of the kernel; `nvls` channels of the switch reduction with `nvls_intra` GB/s each."""

    channels: int
    intra: float
    inter: float
    tree: float
    running: int
    nvls: int
    nvls_intra: float


def graph(group: Group, links: GroupLinks, settings: Settings) -> ChannelSearch:
    """Rings of `group` on `links`."""
    if not links.nvidia:
        running = min(max(OTHER_CHANNELS, settings.min_channels or 1), settings.max_channels or MAX_CHANNELS)
        rates = links.intra * 1e-9 / running, links.line * 1e-9 / running
        return ChannelSearch(running, rates[0], rates[1], rates[0], running, 0, 0.0)
    counted = links.intra * 1e-9 * (NVLINK_COUNTED[links.generation] if links.medium == "nvlink" else 0.92)
    late = links.generation in ("hopper", "blackwell")
    if group.nodes == 1:
        channels, intra = _inside(counted, links)
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
    running = channels
    speed = min(intra, inter)
    if speed >= 25.0 and not (late and speed < 50.0 and channels > 4):
        running *= 2
    running = min(MAX_CHANNELS, running * 2)
    if late and group.nodes > 1 and speed > 45.0 and running < 16 and group.per_node > 1:
        running *= 2
    running = max(running, settings.min_channels or 1)
    running = min(running, settings.max_channels or MAX_CHANNELS, MAX_CHANNELS)
    own = NVLS_CHANNELS.get(links.generation, (0, 0))[0 if group.nodes == 1 else 1] if links.nvls else 0
    return ChannelSearch(channels, intra, inter, tree, running, own, counted / own if own else 0.0)


def _inside(counted: float, links: GroupLinks) -> tuple[int, float]:
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
