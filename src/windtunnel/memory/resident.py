"""What a process holds on the GPU outside the framework's allocator: the CUDA context and NCCL's buffers."""

from __future__ import annotations

from windtunnel.memory.habits import MemoryHabits
from windtunnel.spec.job import Job

MIB = 2.0**20
CONTEXT = {"volta": 350 * MIB, "turing": 300 * MIB, "ampere": 450 * MIB, "hopper": 550 * MIB, "blackwell": 650 * MIB}
"""CUDA context with kernels loaded on demand, by architecture: it grows with the number of multiprocessors.
Assumed, from the commonly seen 0.3 to 0.6 GiB; not measured on each."""

OTHER_CONTEXT = 500 * MIB
CHANNELS = {"volta": 12, "ampere": 24, "hopper": 24, "blackwell": 32}
"""Rings that NCCL builds inside an NVSwitch domain."""

NET_CHANNELS_PER_NIC = 2
RECEIVE, SEND = 10 * MIB, 2 * MIB
"""Per connection: 4 MiB for Simple, 4.4 for LL128, 0.5 for LL rounded up at the receiver; 2 MiB at the sender
(allocation sizes in NVIDIA/nccl issue 1685). Over a network both ends stage in a receive-sized buffer."""

CUBLAS = {"hopper": 32 * MIB, "blackwell": 32 * MIB}
"""cuBLAS workspace that PyTorch allocates per handle and stream (default of CUBLAS_WORKSPACE_CONFIG); older GPUs below."""

CUBLAS_ELSE = 8.125 * MIB


def context_bytes(job: Job, habit: MemoryHabits) -> float:
    """Context, modules of kernels and all communicators."""
    return CONTEXT.get(job.cluster.gpu.architecture, OTHER_CONTEXT) + habit.resident + nccl_bytes(job)


def cublas_bytes(job: Job) -> float:
    return CUBLAS.get(job.cluster.gpu.architecture, CUBLAS_ELSE)


def nccl_bytes(job: Job) -> float:
    """Buffers of the communicators: one for each parallel axis in use, one for all ranks.

    Each channel of a communicator has a ring (one receiver, one sender) and a tree (two more of each; Jeaugey 2019).
    """
    plan, node = job.plan, job.cluster.node
    sizes = {"tp": plan.tp, "cp": plan.cp, "dp": job.dp, "pp": plan.pp}
    total, stride = 0.0, 1
    for axis in (a for a in plan.placement if a in sizes):
        ranks = sizes[axis]
        if ranks > 1:
            inside = stride * ranks <= node.domain
            total += _communicator(job, inside, point_to_point=axis == "pp" or axis == "cp" and job.cp_kind != "all_gather")
        stride *= ranks
    if plan.ep * plan.etp > 1:  # experts' axes: tokens over ep, copies of experts over the rest
        span = plan.ep * plan.etp
        total += _communicator(job, span <= node.domain, point_to_point=plan.ep > 1 and job.runtime.moe_dispatch != "allgather")
        if job.expert_dp > 1:
            total += _communicator(job, span * job.expert_dp <= node.domain, point_to_point=False)
    if stride > 1:
        total += _communicator(job, stride <= node.domain, point_to_point=False)
    return total


def _communicator(job: Job, inside: bool, point_to_point: bool) -> float:
    node = job.cluster.node
    if inside:
        channels, connection = CHANNELS.get(node.gpu.architecture, 16), RECEIVE + SEND
    else:
        channels, connection = NET_CHANNELS_PER_NIC * (node.nic.count if node.nic else 1), 2 * RECEIVE
    if point_to_point:  # send and receive share one staging buffer per direction, over few channels
        return 2 * NET_CHANNELS_PER_NIC * connection
    return 3.0 * channels * connection
