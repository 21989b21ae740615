"""What full sharding adds to a block's passes on the compute stream: copies between parameters and communication buffers.

FSDP 2 and ZeRO-3 gather a block's parameters into one buffer and copy them out of it, and copy gradients into the buffer that is
reduced (PyTorch `_fsdp_collectives.py`: all_gather_copy_out, chunk_cat). FSDP 1 uses views of a flat parameter and copies nothing.
"""

from __future__ import annotations

from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload.ops import Kind, Op, Phase


def sharding_copies(job: Job, parameters: float, frozen: float = 0.0) -> tuple[list[Op], list[Op], list[Op]]:
    """Rows before forward, before backward and after backward of a block with `parameters` trained and `frozen` elements on
    this GPU."""
    runtime = job.runtime
    if not (job.plan.shards_parameters and runtime.sharding_copies and job.shard_ranks > 1 and parameters + frozen):
        return [], [], []
    width = runtime.compute_width

    def copy(name: str, phase: Phase, elements: float, read: float, write: float) -> list[Op]:
        return [Op(name, Kind.COPY, phase, "sharding", bytes=elements * (read + write))] if elements else []

    out = copy("parameters out", Phase.PARAMETER_SYNC, parameters + frozen, width, width)
    back = copy("gradients in", Phase.GRADIENT_SYNC, parameters, width, DTYPE_BYTES[runtime.reduce_dtype])
    return out, out if runtime.reshard_after_forward else [], back
