"""A graph model -> workload: its kernels as rows, its blocks over the stages of the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.graph_model import GraphBlock, GraphModel, Kernel
from windtunnel.spec.job import Job
from windtunnel.workload.graph import Block, BlockTensors, Chunk, Workload, layers_before, schedule_of
from windtunnel.workload.identity import BlockKey, BlockKind, Module
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable, Phase
from windtunnel.workload.passes.fsdp import sharding_copies
from windtunnel.workload.passes.link import link
from windtunnel.workload.passes.offload import away
from windtunnel.workload.passes.optimizer import held_by, state_bytes, update_of

PRODUCTS = ("gemm",)
"""Kinds whose inputs have the precision of the runtime's products; all others have that of activations."""


def from_graph(job: Job, model: GraphModel) -> Workload:
    """The graph of one step of `job`, which has passed `spec.check`, where its model is one of kernels."""
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
    held = tuple(sum(blocks[b].parameters * times for chunk in chunks for b, times in chunk.blocks) for chunks in stages)
    update = [
        held_by(parameters, 0.0, [(blocks[b], times) for chunk in chunks for b, times in chunk.blocks])
        for parameters, chunks in zip(held, stages, strict=True)
    ]
    optimizer = []
    for whole in update:
        linked, awaited = update_of(job, whole)
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
        held,
        (0.0,) * len(held),
        (0.0,) * len(held),
        root,
        tuple(state_bytes(job, whole) for whole in update),
    )


def _block(job: Job, name: str, given: GraphBlock, add: Callable[[list[list[Op]]], range]) -> Block:
    """Rows of a block; under full recompute its forward kernels run again and only what it reads stays."""
    ops = [_op(job, name, kernel) for kernel in given.kernels]
    forward = [op for op in ops if op.phase is Phase.FORWARD]
    backward = [op for op in ops if op.phase is not Phase.FORWARD]
    again = job.plan.recompute == "full"
    parameters, whole = float(sum(given.weights)), sum(given.saved)
    saved = min(given.enters, whole) if again else whole
    if parameters and not job.runtime.fused_wgrad:  # gradients of a micro batch are added to those before it
        runtime = job.runtime
        moved = parameters * (runtime.compute_width + 2 * DTYPE_BYTES[runtime.gradient_dtype])
        launches = sum(1 for count in given.weights if count)
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
    out, before, after = sharding_copies(job, parameters)
    repeated = [op._replace(phase=Phase.RECOMPUTE) for op in forward] if again else []
    ahead, back = add([out, forward]), add([before, repeated, backward, after])
    brought = (whole - saved,) if again and whole > saved else ()
    weights = tuple(float(count) for count in given.weights if count)
    kept = (saved,) if again else tuple(float(size) for size in given.saved)
    tensors = BlockTensors(weights, weights, kept, brought)
    key = BlockKey(BlockKind.GRAPH_ROOT if given.root else BlockKind.GRAPH, recompute="full" if again else "none", graph=name)
    return Block(key, name, ahead, back, parameters, saved, given.working + sum(brought), tensors=tensors)


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
    """FLOPs of a micro batch, forward and backward, as papers count them: every key of an attention, its scores not again."""
    total = 0.0
    for name, times in model.order:
        for kernel in model.blocks[name].kernels:
            if kernel.kind in ("attention", "attention_backward"):
                each = 4.0 if kernel.kind == "attention" else 8.0
                total += times * each * kernel.batch * kernel.m * kernel.n * kernel.k
            else:
                total += times * kernel.flops
    return total
