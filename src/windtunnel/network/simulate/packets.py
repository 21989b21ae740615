"""Collectives packet by packet: options of a cluster's fabric, the size of packets, and lanes adjusted to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from windtunnel.engine.graph import Graph, Paths
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.packet import PacketOptions
from windtunnel.network.nccl.settings import DEFAULT, Settings
from windtunnel.network.simulate.packet_settings import PacketSettings
from windtunnel.network.simulate.paths import latencies, narrow_lanes, path_sums
from windtunnel.spec.machine import Cluster

SMALLEST, LARGEST = 4096, 32768
MOST_PACKETS = 1_000_000
"""Packets of a run up to which they keep the NIC's size; more do not help NVLink and long messages."""
ROUTINGS = {"infiniband": "adaptive", "efa": "spray"}
"""Choice among equal paths if the catalogue states none: adaptive routing for InfiniBand, EFA's SRD; else a hash."""
PAUSED = ("roce", "ethernet")
"""Fabrics with PFC and DCQCN; others have credits and no congestion control, unless the catalogue states one."""


BUFFER_TIME = 25.8e-6
"""Seconds in which all ports of a switch together fill its shared buffer: 165 MB of a 51.2 Tb/s Tomahawk 5, the smallest of the
last three (Tomahawk 4: 114 MB, 25.6 Tb/s, 35.5 us; Tomahawk 3: 64 MB, 12.8 Tb/s, 40 us; data sheets, from memory). One node of a
graph may represent several chips, so its buffer is proportional to the rate of its ports."""


def packet_size(total: float) -> int:
    """Bytes of a packet in a run that sends `total` bytes: 4 KiB, doubled up to 32 KiB while there are more than a million."""
    size = SMALLEST
    while size < LARGEST and total / size > MOST_PACKETS:
        size *= 2
    return size


def routing_of(cluster: Cluster) -> str:
    """How packets choose among equal paths: ecmp, spray, adaptive or flowlet."""
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
    """Options of the packet engine for a cluster's fabric.

    NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT are the retransmission timeout, 4.096 us x 2^n, and its repeats.
    """
    options, _ = fabric_settings(cluster).options(routing_of(cluster), mtu, seed, "fabric.congestion")
    return replace(
        options,
        buffer=options.buffer if cluster.fabric.buffer is None else float(cluster.fabric.buffer),
        buffer_time=BUFFER_TIME if cluster.fabric.buffer is None else 0.0,
        timeouts=timeouts_of(cluster, settings),
        retries=max(1, settings.ib_retries),
    )


def timeouts_of(cluster: Cluster, settings: Settings) -> tuple[float, ...]:
    """Consecutive retransmission timeouts in seconds, the last of which repeats: the NIC's own, else NCCL's."""
    nic = cluster.node.nic
    return nic.timeouts if nic is not None and nic.timeouts else (4.096e-6 * 2.0**settings.ib_timeout,)


def settle_delays(graph: Graph, paths: Paths, lanes: Lanes, mtu: int, spine: bool = False) -> Lanes:
    """Lanes whose delays exclude what the engine simulates, so that it is not counted twice.

    A fitted hop contains the latency of the cables and the queueing between the library's own channels, which run at the same pace
    in parallel. Simulated packets are longer than the units that links interleave, so they queue a little longer. A slice therefore
    starts earlier by that time, and is delivered at its time (`hold`) unless it is late even so. `spine`: the fitted hops contain
    links between switches too. Seconds, for lane k:

        way     from the departure of a slice's last packet to its arrival on idle links; the last but one may delay it, if that one
                takes longer over all links than the pace leaves between the two
        beside  one packet of each other lane of the call on each link; at most one packet's time at the lane's own pace
        delay'  = delay - latency - max(0, way + beside - last packet / rate)
        hold    = delay - delay' + latency between switches, which the fitted hop does not contain
    """
    lanes = narrow_lanes(graph, paths, lanes)
    own, extra = latencies(graph, paths, spine)
    slow = 1.0 / graph.link_rate
    users = np.bincount(paths.links, minlength=len(slow))
    packets = -(-lanes.slice // mtu)
    last = (lanes.slice - (packets - 1) * mtu).astype(np.float64)
    longest = np.minimum(lanes.slice, mtu).astype(np.float64)
    each = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    way = path_sums(slow[paths.links], paths)
    end = np.where(np.diff(paths.start) > 0, slow[paths.links[np.maximum(paths.start[1:] - 1, 0)]], 0.0)
    before = longest * way + last * end - longest / lanes.rate
    alone = np.maximum(last * way, np.where(packets > 1, before, 0.0))
    others = np.minimum((users - 1)[paths.links] * longest[each] * slow[paths.links], (longest / lanes.rate)[each])
    late = alone + path_sums(others, paths) - last / lanes.rate
    delay = np.maximum(0.0, lanes.delay - own - np.maximum(0.0, late))
    return replace(lanes, delay=delay, hold=lanes.delay - delay + extra)
