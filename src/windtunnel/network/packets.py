"""How a collective is run packet by packet: options of a cluster's fabric, and packets as long as the message bears."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from windtunnel.engine.graph import Floats
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.packet import PacketOptions
from windtunnel.network.packet_flows import PacketSettings
from windtunnel.network.settings import DEFAULT, Settings
from windtunnel.spec.cluster import Cluster

SMALLEST, LARGEST = 4096, 32768
MOST_PACKETS = 1_000_000
"""Packets of a run up to which they are as small as a NIC's; NVLink and long messages have no use for more."""
ROUTINGS = {"infiniband": "adaptive", "efa": "spray"}
"""How fabrics choose among equal ways where the catalogue does not say: adaptive routing of InfiniBand, EFA's SRD; else a hash."""
PAUSED = ("roce", "ethernet")
"""Fabrics that pause (PFC) and run DCQCN; the others grant credits and run no congestion control, unless the catalogue says so."""


def packet_size(lanes: Lanes) -> int:
    """Bytes of a packet: 4 KiB, doubled up to 32 KiB while the lanes would need more than a million packets."""
    size = SMALLEST
    while size < LARGEST and float(lanes.bytes.sum()) / size > MOST_PACKETS:
        size *= 2
    return size


def routing_of(cluster: Cluster) -> str:
    """How packets choose among equal ways: ecmp, spray, adaptive or flowlet."""
    return cluster.fabric.routing or ROUTINGS.get(cluster.fabric.kind, "ecmp")


def sprays(cluster: Cluster) -> bool:
    """Whether packets of one flow take all equal ways."""
    return routing_of(cluster) in ("spray", "adaptive")


def fabric_settings(cluster: Cluster) -> PacketSettings:
    """Congestion control and flow control of the cluster's fabric."""
    fabric = cluster.fabric
    paused = fabric.kind in PAUSED
    return PacketSettings(cc=fabric.congestion or ("dcqcn" if paused else "none"), loss="pfc" if paused else "credits")


def packet_options(cluster: Cluster, mtu: int, settings: Settings = DEFAULT, seed: int = 1) -> PacketOptions:
    """What the packet engine is told about a cluster's fabric.

    NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT are the retransmission timeout, 4.096 us x 2^n, and its repeats.
    """
    options, _ = fabric_settings(cluster).options(routing_of(cluster), mtu, seed, "fabric.congestion")
    return replace(options, timeouts=(4.096e-6 * 2.0**settings.ib_timeout,), retries=max(1, settings.ib_retries))


def last_packets(lanes: Lanes, mtu: int) -> Floats:
    """[K] bytes of the last packet of each lane's slices."""
    return (lanes.slice - (-(-lanes.slice // mtu) - 1) * mtu).astype(np.float64)
