"""Tables of NCCL's tuner: those of NCCL 2.30.7 (`src/graph/tuning.cc`, `src/graph/search.cc`), as data.

Latencies in microseconds and bandwidths in GB/s (1e9), as NCCL writes them; triples are (LL, LL128, Simple). These numbers decide
which algorithm and protocol NCCL *selects*; the seconds of the selected one are in `network/closed/cost.py`.
"""

from __future__ import annotations

RING, TREE, NVLS, NVLS_TREE, PAT = "ring", "tree", "nvls", "nvls_tree", "pat"
COLLNET_DIRECT, COLLNET_CHAIN = "collnet_direct", "collnet_chain"
ALGORITHMS = (TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT)
LL, LL128, SIMPLE = "LL", "LL128", "Simple"
PROTOCOLS = (LL, LL128, SIMPLE)

Triple = tuple[float, float, float]

BASE_LATENCY: dict[str, Triple] = {
    TREE: (6.8, 14.0, 8.4),
    RING: (6.6, 14.0, 8.4),
    COLLNET_DIRECT: (0.0, 0.0, 0.0),
    COLLNET_CHAIN: (0.0, 0.0, 0.0),
    NVLS: (0.0, 0.0, 0.0),
    NVLS_TREE: (0.0, 0.0, 0.0),
    PAT: (8.0, 8.0, 8.0),
}

HOP_LATENCY: dict[str, dict[str, Triple]] = {
    "nvlink": {
        TREE: (0.6, 1.25, 4.0),
        RING: (0.6, 1.9, 3.4),
        COLLNET_DIRECT: (0.0, 0.0, 3.7),
        COLLNET_CHAIN: (0.0, 0.0, 2.8),
        NVLS: (0.0, 0.0, 25.0),
        NVLS_TREE: (0.0, 0.0, 25.0),
        PAT: (0.0, 0.0, 4.0),
    },
    "pci": {
        TREE: (1.0, 1.9, 4.0),
        RING: (1.0, 2.5, 5.7),
        COLLNET_DIRECT: (0.0, 0.0, 3.7),
        COLLNET_CHAIN: (0.0, 0.0, 2.8),
        NVLS: (0.0, 0.0, 0.0),
        NVLS_TREE: (0.0, 0.0, 0.0),
        PAT: (0.0, 0.0, 4.0),
    },
    "net": {
        TREE: (5.0, 8.5, 14.0),
        RING: (2.7, 4.0, 14.0),
        COLLNET_DIRECT: (0.0, 0.0, 31.0),
        COLLNET_CHAIN: (0.0, 0.0, 30.0),
        NVLS: (0.0, 0.0, 18.0),
        NVLS_TREE: (0.0, 0.0, 20.9),
        PAT: (0.0, 0.0, 14.0),
    },
}

# Each triple here is (1 node, 2 nodes, 3 or more nodes), by GPU generation (`groups/bandwidth.py`).
LL_MAX: dict[str, Triple] = {
    "volta": (39.0, 39.0, 20.4),
    "ampere": (87.7, 22.5, 19.0),
    "hopper": (141.0, 45.0, 35.0),
    "blackwell": (282.0, 90.0, 70.0),
}
RING_LL128_PER_CHANNEL: dict[str, Triple] = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 36.7),
    "blackwell": (40.0, 40.0, 40.0),
}
TREE_LL128_PER_CHANNEL: dict[str, Triple] = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 29.0),
    "blackwell": (55.6, 31.67, 20.0),
}
TREE_PER_CHANNEL: dict[str, Triple] = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (38.7, 41.4, 36.0),
    "blackwell": (70.0, 42.8, 24.0),
}
NVLS_TREE_PER_CHANNEL: dict[str, Triple] = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (0.0, 57.7, 45.5),
    "blackwell": (0.0, 96.0, 80.0),
}
NVLS_EFFICIENCY = {"hopper": 0.85, "blackwell": 0.74}

# Correction of the tree's bandwidth by floor(log2(bytes / 64)).
TREE_CORRECTION: dict[str, tuple[float, ...]] = {
    LL: (1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0),
    LL128: (1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0),
    SIMPLE: (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
}

# Bandwidth per NVLink that NCCL counts, over the 25 (20 for Volta's 25, 50 for Blackwell) GB/s of the data sheet.
NVLINK_COUNTED = {"volta": 20.0 / 25.0, "ampere": 20.0 / 25.0, "hopper": 20.6 / 25.0, "blackwell": 40.1 / 50.0}
# GB/s each way of one NVLink (NVLink 2 to 4: 25, NVLink 5: 50; vendor), and the links of a GPU, by the same generations.
NVLINK_RATE = {"volta": 25.0, "ampere": 25.0, "hopper": 25.0, "blackwell": 50.0}
NVLINKS = {"volta": 6, "ampere": 12, "hopper": 18, "blackwell": 18}
# Per-channel speeds that result from the ring search on a full NVSwitch node, fastest first. NVIDIA writes a list for each
# generation of links; links of another rate have that list in proportion (docs/decisions/0034-channels-follow-links.md).
INTRA_SPEEDS: dict[str, tuple[float, ...]] = {
    "volta": (20.0,),
    "ampere": (20.0,),
    "hopper": (30.0, 20.0),
    "blackwell": (90.0, 45.0, 20.0),
}
NVLS_CHANNELS: dict[str, tuple[int, int]] = {"hopper": (16, 16), "blackwell": (24, 32)}  # one node, several nodes
NET_COUNTED = 0.96  # 12 GB/s per 100 Gb/s
MAX_CHANNELS = 64
OTHER_CHANNELS = 64  # of RCCL on MI300X and later between nodes (ROCm/rocm-systems pull request 9406); of others assumed
# Bytes per thread below which NCCL reduces channels, then threads; maximum of threads.
THREAD_BYTES = {LL: 8, LL128: 8, SIMPLE: 64}
THREADS = {LL: 512, LL128: 640, SIMPLE: 512}

DATA_ON_WIRE = (0.5, 120.0 / 128.0, 1.0)  # LL pairs each 4 bytes with a flag, LL128 gives 8 of 128 bytes to it
STEPS = 8  # of a connection's buffer
STEP_BYTES = {LL: 32 * 2.0**10, LL128: 562.5 * 2.0**10, SIMPLE: 512 * 2.0**10}  # data in one of a connection's 8 steps
SWEEPS = {LL: 512 * 8.0, LL128: 640 * 15.0}
"""Bytes that a block's threads pass on at a time with a flag per line: the next rank need not wait for the full step."""
RING_SLICE = 2.0**20  # two steps of Simple

# Fabrics whose NICs do not keep the order of 128 bytes: the vendor's plug-in then allows Simple alone (aws-ofi-nccl on p4,
# from memory).
SIMPLE_ONLY = ("efa1",)
