"""Calls of sharded state: gathers of parameters and reductions of gradients, over sharding groups and between replicas."""

from __future__ import annotations

import math

from windtunnel.predict.category import Category
from windtunnel.predict.program.stage import PASSES, Label, Stage
from windtunnel.workload import Axis, Comm, Stream
from windtunnel.workload.passes.fsdp import INT4, INT8
from windtunnel.workload.schedules import Action, Pass

Pieces = tuple[tuple[int, int], ...]
Held = tuple[float, float]
"""Elements on a GPU: of parameters outside of experts, and of experts, which other ranks share."""
WEIGHTS = (Pass.BACKWARD, Pass.WEIGHT_GRADIENT)
"""Passes that produce gradients of parameters."""


def held(stage: Stage, pieces: Pieces) -> Held:
    """Parameters of blocks with repeats."""
    blocks = stage.workload.blocks
    experts = sum(blocks[b].expert_parameters * times for b, times in pieces)
    return sum(blocks[b].parameters * times for b, times in pieces) - experts, experts


def shared(stage: Stage, size: Held) -> tuple[tuple[Axis, Axis, float, int], ...]:
    """The ranks over which each part of the state is sharded: (axis, axis of its replicas, elements, ranks)."""
    job = stage.workload.job
    expert_axis = Axis.EXPERT_DP if job.expert_shard_ranks == job.expert_dp else Axis.EXPERT_SHARD
    return (
        (Axis.SHARD, Axis.REPLICA, size[0], job.shard_ranks),
        (expert_axis, Axis.EXPERT_REPLICA, size[1], job.expert_shard_ranks),
    )


def shares(stage: Stage, block: int) -> tuple[float, ...]:
    """Shares into which the calls of a block's parameters divide: one, or one per sharded tensor."""
    runtime = stage.workload.job.runtime
    if runtime.sharded_calls == "block":
        return (1.0,)
    sizes = [size for size in stage.workload.blocks[block].tensors.weights if size >= runtime.persistent_parameters]
    return tuple(size / sum(sizes) for size in sizes) or (1.0,)


def gather(
    stage: Stage,
    label: Label,
    size: Held,
    width: float,
    waits: tuple[int, ...],
    most: float = math.inf,
    backward: bool = False,
    parts: tuple[float, ...] = (1.0,),
) -> int | None:
    """All-gathers parameters of `width` bytes each over the ranks that share them, at most `most` bytes per call; returns the last
    call, None if there is none. `backward`: from the secondary copy, if there is one. `parts`: shares of parameters outside of
    experts."""
    plan = stage.workload.job.plan
    width = INT8 if plan.quantised_gather else width
    last_call = None
    for axis, _, elements, ranks in shared(stage, size):
        if not elements or ranks == 1:
            continue
        steps: tuple[tuple[Axis, float], ...] = ((axis, elements * width),)
        if axis is Axis.SHARD and backward and plan.secondary_group:
            steps = ((Axis.NEAR, elements * width),)
        elif axis is Axis.SHARD and plan.hierarchical_gather:  # first across nodes, then inside the node
            steps = ((Axis.FAR, elements * width / stage.workload.job.near_ranks), (Axis.NEAR, elements * width))
        for over, bytes_ in [(over, bytes_ * part) for part in (parts if axis is Axis.SHARD else (1.0,)) for over, bytes_ in steps]:
            calls = max(1, math.ceil(bytes_ / most))
            for _ in range(calls):
                last_call = stage.comm(
                    label, Comm.ALL_GATHER, over, bytes_ / calls, Stream.GATHER, waits, Category.PARAMETER_GATHER
                )
    return last_call


def scatter(
    stage: Stage, label: Label, size: Held, waits: tuple[int, ...], between: bool = True, parts: tuple[float, ...] = (1.0,)
) -> int | None:
    """Reduce-scatters gradients over the ranks that share them and, if `between`, all-reduces the shards between replicas; returns
    the last call, None if there is none. `parts`: shares of parameters outside of experts. In INT4 two all-to-alls replace the
    reduce-scatter (ZeRO++, arXiv 2306.10209)."""
    job = stage.workload.job
    last_call = None
    for axis, replicas, elements, ranks in shared(stage, size):
        bytes_ = elements * stage.templates.reduce_width
        if not elements:
            continue
        calls: list[tuple[Comm, Axis, float]] = []
        if axis is Axis.SHARD and job.plan.quantised_reduce:
            near = job.near_ranks
            calls += [(Comm.ALL_TO_ALL, Axis.NEAR, elements * INT4)] * (near > 1)
            calls += [(Comm.ALL_TO_ALL, Axis.FAR, elements * INT4 / near)] * (near < ranks)
        elif ranks > 1:
            calls += [(Comm.REDUCE_SCATTER, axis, bytes_ * part) for part in (parts if axis is Axis.SHARD else (1.0,))]
        if between and job.replicas > 1:
            calls.append((Comm.ALL_REDUCE, replicas, bytes_ / ranks))
        after = waits
        for call, over, moved in calls:
            last_call = stage.comm(label, call, over, moved, Stream.REDUCE, after, Category.GRADIENT_REDUCE)
            after = (last_call,)
    return last_call


def whole(stage: Stage, action: Action, beside: Action | None) -> int:
    """Template of `action`, or of it and the one `beside` it."""
    chunks = stage.workload.stages[stage.index]
    if beside is not None:
        return stage.templates.pair(chunks[action.chunk].blocks, chunks[beside.chunk].blocks)
    return stage.templates.pieces(chunks[action.chunk].blocks, action.direction, True)


def label_of(action: Action) -> Label:
    """Label of a single pass."""
    return int(PASSES[action.direction]), action.micro_batch, action.chunk
