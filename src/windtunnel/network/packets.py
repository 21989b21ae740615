"""How a collective is run packet by packet: options of a cluster's fabric, and packets as long as the message bears."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from windtunnel.engine.graph import Floats
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.packet import Loss, Marking, PacketOptions
from windtunnel.network.congestion import load_congestion
from windtunnel.network.settings import DEFAULT, Settings
from windtunnel.spec.cluster import Cluster

SMALLEST, LARGEST = 4096, 32768
MOST_PACKETS = 1_000_000
"""Packets of a run up to which they are as small as a NIC's; NVLink and long messages have no use for more."""
_CONTROLS = {"roce": "dcqcn", "ethernet": "dcqcn"}
"""Preset by kind of fabric; elsewhere links only push back."""


def packet_size(lanes: Lanes) -> int:
    """Bytes of a packet: 4 KiB, doubled up to 32 KiB while the lanes would need more than a million packets."""
    size = SMALLEST
    while size < LARGEST and float(lanes.bytes.sum()) / size > MOST_PACKETS:
        size *= 2
    return size


def packet_options(cluster: Cluster, lanes: Lanes, settings: Settings = DEFAULT, mtu: int | None = None, control: str | None = None,
                   seed: int = 1) -> PacketOptions:
    """InfiniBand grants credits, other fabrics pause; RoCE and Ethernet run DCQCN unless `control` names another preset.

    NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT are the retransmission timeout, 4.096 us x 2^n, and its repeats.
    """
    kind = cluster.fabric.kind
    name = control or _CONTROLS.get(kind)
    options = PacketOptions(
        mtu=mtu or packet_size(lanes), loss=Loss.CREDITS if kind == "infiniband" else Loss.PAUSE, seed=seed,
        timeouts=(4.096e-6 * 2.0**settings.ib_timeout,), retries=max(1, settings.ib_retries),
    )
    if name is None:
        return options
    chosen = load_congestion(name)
    ecn = [Marking(row.rate, row.kmin, row.kmax, row.pmax) for row in chosen.ecn]
    return replace(options, algorithm=chosen.algorithm, parameters=chosen.parameters, ecn=ecn)


def last_packets(lanes: Lanes, mtu: int) -> Floats:
    """[K] bytes of the last packet of each lane's slices."""
    return (lanes.slice - (-(-lanes.slice // mtu) - 1) * mtu).astype(np.float64)
