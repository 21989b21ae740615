"""Kernels that full sharding adds to a block's passes on the compute stream, and how far ahead parameters are gathered.

FSDP 2 and ZeRO-3 gather a block's parameters into one buffer and copy them out of it, and copy gradients into the buffer that is
reduced (PyTorch `_fsdp_collectives.py`: all_gather_copy_out, chunk_cat). FSDP 1 uses views of a flat parameter and copies nothing.
ZeRO++ (arXiv 2306.10209) quantises what it sends; DeepSpeed's ZeRO-2 copies gradients into its bucket (contiguous_gradients).
"""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload.graph import Block, Workload
from windtunnel.workload.identity import LAYERS, Module
from windtunnel.workload.ops import Kind, Op, Phase

SCALES = 4.0 / 2048
"""Bytes of scales per element: one fp32 scale for 2048 numbers."""
INT8, INT4 = 1.0 + SCALES, 0.5 + SCALES
"""Bytes per element that ZeRO++ sends: parameters (qwZ), gradients (qgZ)."""


def sharding_copies(
    job: Job, parameters: float, frozen: float = 0.0, *, stays: bool = False
) -> tuple[list[Op], list[Op], list[Op]]:
    """Rows before forward, before backward and after backward of a block with `parameters` trained and `frozen` elements on
    this GPU. `stays`: it is not gathered again for backward."""
    runtime, plan = job.runtime, job.plan
    numbers = parameters + frozen
    if not numbers or job.shard_ranks == 1:
        return [], [], []
    width, reduced = runtime.compute_width, DTYPE_BYTES[runtime.reduce_dtype]

    def copy(name: str, phase: Phase, size: float, elements: float = parameters) -> list[Op]:
        return [Op(name, Kind.COPY, phase, Module.SHARDING, bytes=elements * size)] if size and elements else []

    if not plan.shards_parameters:
        into = plan.sharding == "zero2" and runtime.contiguous_gradients
        return [], [], copy("gradients into bucket", Phase.GRADIENT_SYNC, 2.0 * width if into else 0.0)
    out = copy("parameters out", Phase.PARAMETER_SYNC, 2.0 * width, numbers) if runtime.sharding_copies else []
    if plan.quantised_gather:  # quantise the rank's shard to INT8, dequantise the gathered parameters
        out = copy("parameters quantise", Phase.PARAMETER_SYNC, (width + INT8) * (1.0 + 1.0 / job.shard_ranks), numbers) + out
    second = copy("second copy", Phase.PARAMETER_SYNC, 2.0 * width / plan.secondary_group, numbers) if plan.secondary_group else []
    back = copy("gradients in", Phase.GRADIENT_SYNC, width + reduced) if runtime.sharding_copies else []
    if plan.quantised_reduce:  # to INT4; sum and to INT4 again after the first all-to-all; sum after the second
        near = job.near_ranks
        back += copy("gradients quantise", Phase.GRADIENT_SYNC, width + 2.0 * INT4 + 2.0 * INT4 / near + reduced / job.shard_ranks)
    return out + second, out if runtime.reshard_after_forward and not stays else [], back


def persistent(job: Job, block: Block) -> float:
    """Elements of a block's tensors that are not sharded: those below the runtime's threshold, without those of experts."""
    least = job.runtime.persistent_parameters
    return float(sum(w for w in block.tensors.weights if w < least)) if least and job.plan.shards_parameters else 0.0


def kept_root(workload: Workload) -> tuple[int, ...]:
    """Blocks that stay gathered from forward to backward, whatever their sizes."""
    runtime = workload.job.runtime
    if runtime.reuse_distance is not None:
        return ()
    return workload.root[-1:] if runtime.root_unit == "freed" else workload.root


def gathered_for_backward(workload: Workload, blocks: Sequence[int]) -> list[tuple[float, ...]]:
    """For each of `blocks`, in the order of a forward pass: elements of its sharded tensors that backward gathers again.

    PyTorch's FSDP does not reshard its root unit after forward (`_fsdp_state.py` of FSDP 2: reshard_after_forward of the root is
    False; `_runtime_utils.py` of FSDP 1). DeepSpeed keeps a parameter that is used again before the modules between have
    `reuse_distance` elements (`partitioned_param_coordinator.py`, __params_to_release).
    """
    runtime, tensors = workload.job.runtime, [workload.blocks[block].tensors.weights for block in blocks]
    least, distance = runtime.persistent_parameters, runtime.reuse_distance
    if distance is None:
        kept = kept_root(workload)
        return [() if block in kept else tuple(w for w in own if w >= least) for block, own in zip(blocks, tensors, strict=True)]
    again, between = list[tuple[float, ...]](), 0.0
    for block, own in zip(reversed(blocks), reversed(tensors), strict=True):
        recomputed, whole, behind, freed = workload.blocks[block].key.recompute == "full", sum(own), 0.0, list[float]()
        for size in reversed(own):
            used = between + (whole - size if recomputed else 2.0 * behind)
            if used >= distance and size >= least:
                freed.append(size)
            behind += size
        between += whole * (3.0 if recomputed else 2.0)  # forward, recomputing, backward
        again.append(tuple(reversed(freed)))
    return again[::-1]


def blocks_ahead(workload: Workload, stage: int) -> int:
    """Number of blocks that are gathered ahead of the one in use, among those that repeat on `stage`.

    DeepSpeed gathers modules, not blocks, up to limits on prefetched and live elements. Any limit that admits two modules hides
    gathers behind the module before, as one block ahead does.
    """
    runtime = workload.job.runtime
    used = {b for chunk in workload.stages[stage] for b, times in chunk.blocks}
    layers = [workload.blocks[b] for b in used if workload.blocks[b].key.kind in LAYERS]
    largest = max((block.elements for block in layers), default=0.0)
    module = max((max(block.tensors.weights, default=0.0) for block in layers), default=0.0)
    ahead = runtime.prefetch_blocks
    if runtime.prefetch_bucket is not None and largest:
        ahead = max(1, int(runtime.prefetch_bucket // largest)) if runtime.prefetch_bucket else 0
    if runtime.live_parameters is not None and largest:
        ahead = min(ahead, max(int(runtime.live_parameters // largest) - 1, int(runtime.live_parameters >= 2.0 * module)))
    return ahead
