"""Numbers of NCCL 2.30.7 (`src/graph/tuning.cc`, `src/graph/search.cc`) that no algorithm has alone, as data; each algorithm's are
in its file of `network/algorithms/`. Bandwidths in GB/s (1e9), as NCCL writes them.
"""

from __future__ import annotations

LL, LL128, SIMPLE = "LL", "LL128", "Simple"
PROTOCOLS = (LL, LL128, SIMPLE)

Triple = tuple[float, float, float]

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
# Fabrics whose NICs do not keep the order of 128 bytes: the vendor's plug-in then allows Simple alone (aws-ofi-nccl on p4,
# from memory).
SIMPLE_ONLY = ("efa1",)
