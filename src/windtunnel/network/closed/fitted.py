"""Fitted constants of collectives, a few per GPU generation and per kind of fabric. `calibrate.refit` repeats the fit.

Families named in `fitted_on` are those of the table of published nccl-tests runs that `windtunnel validate` reads; constants whose
comment says "assumed" or "as ..." rest on no measurement of their own. An empty `fitted_on` makes estimates "transferred".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class NodeConstants:
    """Inside a scale-up domain. Seconds; fractions of the link's data-sheet rate; triples are (LL, LL128, Simple).

    `ring`: fraction of the ring's bus rate; `tree`: of its algorithm rate; `nvls`: of the link, before the chunk's overhead
    (bytes); `nvls_tree`: factor on `nvls` if the sums go on to other nodes.
    Fills count slices (`fill`) or loops (`nvls_fill`). `p2p_channel` is B/s of one channel of a message (0: never the limit),
    `p2p_fill` the bytes that an all-to-all loses to starting and ending at most; `nvls_head` seconds of each rank of a domain
    beyond eight where a switch reduction goes on to other domains.
    """

    launch: float
    hop: Triple
    tree_hop: Triple
    ring: Triple
    tree: Triple
    fill: float
    nvls: float
    nvls_hop: float
    nvls_overhead: float
    nvls_fill: float
    nvls_tree: float
    p2p: float
    p2p_launch: float
    relative_error: float
    fitted_on: tuple[str, ...]
    p2p_channel: float = 0.0
    p2p_fill: float = 0.0
    nvls_head: float = 0.0


@dataclass(frozen=True)
class NetConstants:
    """Between domains, on one kind of fabric: extra launch and hops in seconds, fractions of the payload rate (line rate times the
    fabric's own efficiency); `message` seconds for eight more peers of an all-to-all; `pair` is the tree's of a switch reduction on
    two nodes."""

    launch: float
    hop: Triple
    tree_hop: Triple
    nvls_hop: float
    ring: float
    tree: float
    fill: float
    tree_fill: float
    nvls_fill: float
    p2p: float
    p2p_launch: float
    message: float
    relative_error: float
    fitted_on: tuple[str, ...]
    pair: float = 1.0


# Tree hops inside a node are NCCL's own (`tuning.cc`) and the tree's LL and Simple rates are assumed, as no measured run on one
# node selects a tree. A ring's fill is assumed (a slice and a half); on Volta the fit gives zero. NVLS entries of
# GPUs without it are never read. p2p of Ampere is from one-node send/recv of 2 KiB to 64 MiB (microsoft/vidur, a100_dgx); the
# others are set near it.
_AMPERE = NodeConstants(
    launch=16.1e-6,
    hop=(0.7e-6, 2.78e-6, 7.53e-6),
    tree_hop=(0.7e-6, 1.25e-6, 4e-6),
    ring=(0.262, 0.598, 0.786),
    tree=(0.1, 0.2, 0.36),
    fill=1.6,
    nvls=0.6,
    nvls_hop=0.0,
    nvls_overhead=11150.0,
    nvls_fill=1.97,
    nvls_tree=0.9,
    p2p=0.9,
    p2p_launch=12e-6,
    relative_error=0.08,
    fitted_on=("vTrain-A100", "misc-A100"),
)
_VOLTA = NodeConstants(
    launch=18e-6,
    hop=(0.7e-6, 3.26e-6, 4.84e-6),
    tree_hop=(0.7e-6, 1.25e-6, 4e-6),
    ring=(0.325, 0.658, 0.890),
    tree=(0.1, 0.2, 0.36),
    fill=0.0,
    nvls=0.6,
    nvls_hop=0.0,
    nvls_overhead=11150.0,
    nvls_fill=1.97,
    nvls_tree=0.9,
    p2p=0.9,
    p2p_launch=12e-6,
    relative_error=0.08,
    fitted_on=("vTrain-V100",),
)
# The LL128 rate and the hops of LL128 and Simple rings are Ampere's: every run of a Hopper node below 8 GiB selects LL or NVLS.
_HOPPER = NodeConstants(
    launch=7.7e-6,
    hop=(0.67e-6, 2.8e-6, 7.5e-6),
    tree_hop=(0.5e-6, 1.25e-6, 4e-6),
    ring=(0.401, 0.62, 0.8125),
    tree=(0.1, 0.17, 0.36),
    fill=1.6,
    nvls=0.742,
    nvls_hop=0.0,
    nvls_overhead=11150.0,
    nvls_fill=1.97,
    nvls_tree=0.905,
    p2p=0.85,
    p2p_launch=10e-6,
    relative_error=0.06,
    fitted_on=("AWS-H100", "DGXC-H100", "IB-NDR-H100", "stas-H200"),
)
# LL128 of a ring is Hopper's, as no run of one Blackwell node selects it; a tree's hop of LL is the ring's, LL128 in NCCL's
# proportion. `nvls_hop` is set between none and NCCL's 25 us, which the rows cannot tell apart.
_BLACKWELL = replace(
    _HOPPER,
    launch=8.43e-6,
    hop=(1.276e-6, 2.8e-6, 3.1e-6),
    tree_hop=(1.28e-6, 2.7e-6, 4e-6),
    ring=(0.286, 0.51, 0.755),
    fill=1.01,
    nvls=0.7415,
    nvls_overhead=30400.0,
    nvls_hop=10e-6,
    nvls_fill=1.395,
    nvls_head=2.15e-6,
    p2p=0.712,
    p2p_launch=10.1e-6,
    p2p_channel=20e9,
    p2p_fill=35e6,
    relative_error=0.07,
    fitted_on=("Vultr-B200", "Vultr-B200-p2p"),
)
# RCCL on Infinity Fabric: rings inside a node, and the chains of trees cost what a ring's hops do; the tree's rates are half of its
# ring's, assumed. p2p of one MI355X node: 0.67 of the links at 8 GiB. CDNA 2 is not measured.
_CDNA3 = NodeConstants(
    launch=12.6e-6,
    hop=(0.086e-6, 0.556e-6, 3.3e-6),
    tree_hop=(0.086e-6, 0.556e-6, 3.3e-6),
    ring=(0.2047, 0.506, 0.715),
    tree=(0.1, 0.2, 0.35),
    fill=0.5,
    nvls=0.6,
    nvls_hop=0.0,
    nvls_overhead=11150.0,
    nvls_fill=1.97,
    nvls_tree=0.9,
    p2p=0.68,
    p2p_launch=12e-6,
    relative_error=0.1,
    fitted_on=("AAC-MI300X",),
)
_CDNA4 = replace(_CDNA3, ring=(0.2047, 0.506, 0.784), fitted_on=("Vultr-MI355X",))
_CDNA2 = replace(_CDNA3, relative_error=0.4, fitted_on=())
# HCCL: one published rate, measured with the launch hidden; all latencies are assumed.
_GAUDI = replace(
    _CDNA3,
    launch=5e-6,
    hop=(0.5e-6, 0.5e-6, 0.5e-6),
    ring=(0.5, 0.9, 0.989),
    fill=0.1,
    p2p=0.9,
    relative_error=0.3,
    fitted_on=("HCCL-Gaudi2",),
)
# Nothing measured: rings that use nearly all of a torus's links, Ampere's latencies.
_TPU = replace(_AMPERE, ring=(0.5, 0.8, 0.9), relative_error=0.4, fitted_on=())
_UNKNOWN = replace(_AMPERE, relative_error=0.4, fitted_on=())
NODES: dict[str, NodeConstants] = {
    "volta": _VOLTA,
    "ampere": _AMPERE,
    "hopper": _HOPPER,
    "blackwell": _BLACKWELL,
    "cdna2": _CDNA2,
    "cdna3": _CDNA3,
    "cdna4": _CDNA4,
    "gaudi": _GAUDI,
    "tpu": _TPU,
    "other": _UNKNOWN,
}
"""By GPU generation."""

# InfiniBand: only trees were measured between nodes. Ring hops are NCCL's own share of the tree's (2.7/5, 4/8.5, 14/14); the
# ring's rate and p2p are assumed; `tree_fill` is EFA's, as it belongs to NCCL and not to the fabric.
_IB = NetConstants(
    launch=1.3e-6,
    hop=(4.4e-6, 6.2e-6, 14e-6),
    tree_hop=(8.2e-6, 13.1e-6, 14e-6),
    nvls_hop=26.7e-6,
    ring=0.97,
    tree=0.904,
    fill=1.6,
    tree_fill=1.91,
    nvls_fill=0.5,
    p2p=0.97,
    p2p_launch=8e-6,
    message=1e-6,
    relative_error=0.10,
    fitted_on=("IB-NDR-H100",),
)
# EFA of p5 and later. Hops of LL128 and Simple rings, and the rate of trees over more than two nodes, are those of p5 nodes under
# NCCL 2.18 (PyTorch 2.1) on up to 64 nodes; a ring's hop of LL was not measured and is NCCL's share of the tree's.
_EFA = NetConstants(
    launch=1.3e-6,
    hop=(18e-6, 285e-6, 496e-6),
    tree_hop=(33e-6, 42e-6, 42e-6),
    nvls_hop=101e-6,
    ring=0.95,
    tree=0.615,
    fill=1.6,
    tree_fill=1.91,
    nvls_fill=0.5,
    p2p=0.9,
    p2p_launch=20e-6,
    message=3e-6,
    relative_error=0.10,
    fitted_on=("AWS-H100", "HF-p5-H100"),
)
# EFA of p4: Simple alone; ring hops assumed equal to the tree's.
_EFA1 = NetConstants(
    launch=1.3e-6,
    hop=(64e-6, 64e-6, 64e-6),
    tree_hop=(64e-6, 64e-6, 64e-6),
    nvls_hop=100e-6,
    ring=0.95,
    tree=0.975,
    fill=1.6,
    tree_fill=1.91,
    nvls_fill=0.5,
    p2p=0.9,
    p2p_launch=40e-6,
    message=5e-6,
    relative_error=0.12,
    fitted_on=("AWS-A100",),
)
# RoCE under NCCL: InfiniBand's constants with a third more latency for Ethernet's switches and NICs. Assumed; published runs are
# both faster and slower (docs/network.md).
_ROCE = replace(
    _IB,
    hop=(5.8e-6, 8.2e-6, 18e-6),
    tree_hop=(10.8e-6, 17.3e-6, 18e-6),
    nvls_hop=34e-6,
    p2p_launch=10e-6,
    relative_error=0.2,
    fitted_on=(),
)
# Ethernet without RDMA: a transport that the host or the NIC runs (GPUDirect-TCPXO).
_ETHERNET = replace(
    _ROCE,
    hop=(50e-6, 66.6e-6, 60e-6),
    tree_hop=(61.9e-6, 74.9e-6, 60e-6),
    nvls_hop=367e-6,
    ring=0.99,
    relative_error=0.3,
    fitted_on=("GCP-H100",),
)
# RCCL over RoCE and InfiniBand. Ring and sends achieve the fabric's full payload rate; the rows do not determine Simple's hops and
# the tree's rate.
_RCCL = NetConstants(
    launch=1.3e-6,
    hop=(19.8e-6, 17.1e-6, 16e-6),
    tree_hop=(16e-6, 24e-6, 24e-6),
    nvls_hop=34e-6,
    ring=0.99,
    tree=0.904,
    fill=0.15,
    tree_fill=1.91,
    nvls_fill=0.5,
    p2p=0.99,
    p2p_launch=17.9e-6,
    message=1.38e-6,
    relative_error=0.12,
    fitted_on=("Vultr-MI355X",),
)
_OTHER = replace(_IB, relative_error=0.25, fitted_on=())
NETS: dict[str, NetConstants] = {
    "infiniband": _IB,
    "efa": _EFA,
    "efa1": _EFA1,
    "roce": _ROCE,
    "ethernet": _ETHERNET,
    "opa": _OTHER,
    "ici": _OTHER,
    "none": _OTHER,
    "rccl": _RCCL,
}
"""By kind of fabric."""
