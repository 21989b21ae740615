"""Rails: which NICs messages between nodes leave by, with and without PXN.

With PXN (on by default) a message leaves by the NIC on the receiver's rail, to which the sender copies it over NVLink. Without, it
leaves by the sender's own NIC, and on a fabric with a leaf switch for each rail it crosses to the receiver's rail above the leaves,
unless NCCL_CROSS_NIC=0 keeps it on the sender's rail. (`ncclTopoGetNetDev` in `search.cc` of NCCL 2.30.7; NVIDIA on what it is for:
NVIDIA/nccl issues 918 and 2193. A measured all-to-all on eight nodes of A800: 12 GB/s with PXN, 10 without, NVIDIA/nccl-tests
issue 187.)
"""

from __future__ import annotations

from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.settings import Settings
from windtunnel.spec.machine.cluster import Cluster


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
