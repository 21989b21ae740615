"""Channel counts and per-channel speeds that NCCL's graph search ends with, by arithmetic on NVLinks and NICs.

Rules of NCCL 2.30.7 (`search.cc`, `connect.cc`, `nvls.cc`); the search itself is not run. Speeds in GB/s, as NCCL counts them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from windtunnel.network.group import Group
from windtunnel.network.nccl.constants import INTRA_SPEEDS, MAX_CHANNELS, NET_COUNTED, NVLINK_COUNTED, NVLS_CHANNELS, OTHER_CHANNELS
from windtunnel.network.settings import Settings
from windtunnel.network.wires import Wires


@dataclass(frozen=True)
class Graph:
    """`channels` of the search with GB/s each, as the tuner multiplies them: `intra` and `inter` of a ring, `tree` inside a node;
    `running` channels of the kernel; `nvls` channels of the switch reduction with `nvls_intra` GB/s each."""

    channels: int
    intra: float
    inter: float
    tree: float
    running: int
    nvls: int
    nvls_intra: float


def graph(group: Group, wires: Wires, settings: Settings) -> Graph:
    """Rings of `group` on `wires`."""
    if not wires.nvidia:
        running = min(max(OTHER_CHANNELS, settings.min_channels or 1), settings.max_channels or MAX_CHANNELS)
        rates = wires.intra * 1e-9 / running, wires.line * 1e-9 / running
        return Graph(running, rates[0], rates[1], rates[0], running, 0, 0.0)
    counted = wires.intra * 1e-9 * (NVLINK_COUNTED[wires.generation] if wires.medium == "nvlink" else 0.92)
    late = wires.generation in ("hopper", "blackwell")
    if group.nodes == 1:
        channels, intra = _inside(counted, wires)
        inter = tree = intra
    else:
        inter = wires.line * 1e-9 * NET_COUNTED / max(1.0, round(wires.nics))
        channels = max(1, round(wires.nics))
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
    own = NVLS_CHANNELS.get(wires.generation, (0, 0))[0 if group.nodes == 1 else 1] if wires.nvls else 0
    return Graph(channels, intra, inter, tree, running, own, counted / own if own else 0.0)


def _inside(counted: float, wires: Wires) -> tuple[int, float]:
    """(channels, GB/s each) inside one domain: the speed of the list that uses most of the links, the fastest at a tie."""
    if wires.medium == "pci":
        return 1, counted
    best = (0.0, 1, counted)
    for speed in INTRA_SPEEDS[wires.generation]:
        channels = int(counted / speed + 1e-6)
        if channels and channels * speed > best[0] * 1.001:
            best = (channels * speed, channels, speed)
    return best[1], best[2]


def log2_floor(number: float) -> int:
    """Floor of log2 for a number of at least 1."""
    return max(0, math.frexp(max(number, 1.0))[1] - 1)
