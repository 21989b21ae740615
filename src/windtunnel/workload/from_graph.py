"""From a graph model to a workload: its kernels become rows, its blocks are spread over the pipeline stages."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.graph_model import GraphBlock, GraphModel, Kernel
from windtunnel.spec.job import Job
from windtunnel.workload.graph import Block, BlockTensors, Chunk, Workload, layers_before, schedule_of
from windtunnel.workload.identity import BlockKey, BlockKind, Module
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable, Phase
from windtunnel.workload.passes.backward import link
from windtunnel.workload.passes.fsdp import sharding_copies
from windtunnel.workload.passes.optimizer import held_by, state_bytes, update_of
from windtunnel.workload.passes.recompute import away

PRODUCTS = ("gemm",)
"""Kinds whose inputs have the precision of the runtime's matrix products; all others have that of activations."""


def from_graph(job: Job, model: GraphModel) -> Workload:
    """The graph of one step of `job`, whose model is a graph of kernels. `job` has passed `spec.check`."""
    schedule = schedule_of(job)
    rows: list[Op] = []
    waits: list[tuple[int, ...]] = []

    def add(groups: list[list[Op]]) -> range:
        linked, awaited = link([group for group in groups if group])
        rows.extend(linked)
        waits.extend(awaited)
        return range(len(rows) - len(linked), len(rows))

    names = list(dict.fromkeys(name for name, _ in model.order))
    blocks = [_block(job, name, model.blocks[name], add) for name in names]
    blocks += [away(block) for block in blocks] if job.plan.offload.activations else []
    place = {name: index for index, name in enumerate(names)}
    stages, cuts = [], [0.0]
    starts = layers_before(job)
    for stage, counts in enumerate(job.layers_per_stage):
        chunks = []
        for virtual, count in enumerate(counts):
            first = starts[stage][virtual]
            part = model.sequence[first : first + count]
            leaving = job.plan.offload.activations
            held_in = [place[name] + (len(names) if at < leaving else 0) for at, name in enumerate(part)]
            chunks.append(Chunk(tuple((index, len(list(run))) for index, run in groupby(held_in))))
            if first and part:
                cuts.append(model.blocks[part[0]].cut)
        stages.append(tuple(chunks))
    stage_parameters = tuple(
        sum(blocks[b].parameters * times for chunk in chunks for b, times in chunk.blocks) for chunks in stages
    )
    update = [
        held_by(parameters, 0.0, [(blocks[b], times) for chunk in chunks for b, times in chunk.blocks])
        for parameters, chunks in zip(stage_parameters, stages, strict=True)
    ]
    optimizer = []
    for weights in update:
        linked, awaited = update_of(job, weights)
        rows += linked
        waits += awaited
        optimizer.append(range(len(rows) - len(linked), len(rows)))
    root = tuple(place[name] for name in names if model.blocks[name].root)
    return Workload(
        job,
        OpTable.of(rows),
        tuple(waits),
        tuple(blocks),
        tuple(stages),
        schedule,
        tuple(optimizer),
        max(cuts),
        stage_parameters,
        (0.0,) * len(stage_parameters),
        (0.0,) * len(stage_parameters),
        root,
        tuple(state_bytes(job, weights) for weights in update),
    )


def _block(job: Job, name: str, block: GraphBlock, add: Callable[[list[list[Op]]], range]) -> Block:
    """Rows of a block. Full recompute runs its forward kernels again and keeps only its inputs."""
    ops = [_op(job, name, kernel) for kernel in block.kernels]
    forward = [op for op in ops if op.phase is Phase.FORWARD]
    backward = [op for op in ops if op.phase is not Phase.FORWARD]
    again = job.plan.recompute == "full"
    parameters, saved_forward = float(sum(block.weights)), sum(block.saved)
    saved = min(block.enters, saved_forward) if again else saved_forward
    if parameters and not job.runtime.fused_wgrad:  # gradients of a micro batch are added to those before it
        runtime = job.runtime
        moved = parameters * (runtime.compute_width + 2 * DTYPE_BYTES[runtime.gradient_dtype])
        launches = sum(1 for count in block.weights if count)
        backward.append(
            Op(
                "grad accumulate",
                Kind.ELEMENTWISE,
                Phase.WGRAD,
                Module.GRAPH,
                _activation(job),
                bytes=moved,
                launches=launches,
                label=name,
            )
        )
    out, before, after = sharding_copies(job, parameters, stays=block.root)
    repeated = [op._replace(phase=Phase.RECOMPUTE) for op in forward] if again else []
    ahead, back = add([out, forward]), add([before, repeated, backward, after])
    brought = (saved_forward - saved,) if again and saved_forward > saved else ()
    weights = tuple(float(count) for count in block.weights if count)
    kept = (saved,) if again else tuple(float(size) for size in block.saved)
    tensors = BlockTensors(weights, weights, kept, brought)
    key = BlockKey(BlockKind.GRAPH_ROOT if block.root else BlockKind.GRAPH, recompute="full" if again else "none", graph=name)
    return Block(key, name, ahead, back, parameters, saved, block.working + sum(brought), tensors=tensors)


def _op(job: Job, block: str, kernel: Kernel) -> Op:
    dtype = DTYPES.index(job.runtime.precision) if kernel.kind in PRODUCTS else _activation(job)
    return Op(
        kernel.name,
        Kind[kernel.kind.upper()],
        Phase[kernel.phase.upper()],
        Module.GRAPH,
        dtype,
        kernel.batch,
        kernel.m,
        kernel.n,
        kernel.k,
        kernel.extra,
        kernel.flops,
        kernel.moved,
        kernel.launches,
        label=block,
    )


def _activation(job: Job) -> int:
    precision = job.runtime.precision
    return DTYPES.index(precision if precision in ("fp32", "fp16", "bf16") else "fp32")


def graph_flops(model: GraphModel) -> float:
    """FLOPs of a micro batch, forward and backward, as papers count them: every key of attention, scores only once."""
    total = 0.0
    for name, times in model.order:
        for kernel in model.blocks[name].kernels:
            if kernel.kind in ("attention", "attention_backward"):
                flops_per_product = 4.0 if kernel.kind == "attention" else 8.0
                total += times * flops_per_product * kernel.batch * kernel.m * kernel.n * kernel.k
            else:
                total += times * kernel.flops
    return total
