"""CPU work of a training step: the update of offloaded optimizer state."""

from __future__ import annotations

from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload.passes.optimizer import MOMENTS

CPU_UPDATE = 0.5
"""Share of the host's memory bandwidth that a vectorised Adam on all cores reaches: DeepSpeed's CPU-Adam updates 1e9 parameters in
0.22 s on a DGX-2 (ZeRO-Offload, ATC'21, table 4; from memory), 28 B each out of 256 GB/s."""


def update_bytes(job: Job, from_gradient: float) -> float:
    """Bytes of host memory that the update of one parameter moves: a gradient of `from_gradient` bytes read, master copy and
    moments read and written, and the compute copy written."""
    runtime = job.runtime
    width = DTYPE_BYTES[runtime.weight_dtype]
    return from_gradient + 2.0 * 4.0 * (1 + MOMENTS[runtime.optimizer]) + (width if width < 4.0 else 0.0)


def cpu_seconds(moved: float, memory_bandwidth: float) -> float:
    """Seconds in which the CPUs move `moved` bytes for an update or a sum; `memory_bandwidth`: B/s of their share of host
    memory."""
    return moved / (CPU_UPDATE * memory_bandwidth)
