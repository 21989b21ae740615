"""The calls of a step between the computations of its blocks, as rows: which call, over which ranks, of how many bytes, when, and
who waits for it.

The lowering posts these rows and no others, block by block, and a search's bounds add up the same rows for columns of plans. A rule
about calls stands here only; see docs/decisions/0031-one-table-of-calls.md. What a rule takes beside the job may differ between
plans whose bounds are computed together.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from windtunnel.base.dataclasses import dataclass
from windtunnel.memory.state import gradients_leave
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.spec.runtime import Runtime
from windtunnel.workload import Axis, Comm, Stream, Workload
from windtunnel.workload.blocks.quantise import gather_width
from windtunnel.workload.graph import Block
from windtunnel.workload.passes.fsdp import INT4, INT8, persistent


class Moment(IntEnum):
    """When a call is posted, and who waits for it. Until then it runs beside the computation that follows.

    BEFORE_FIRST_FORWARD: at the step's begin; each block waits for its own in its first forward pass.
    BEFORE_FORWARD, BEFORE_BACKWARD: in every such pass, some blocks ahead; the block's computation waits. A pass of weight
    gradients reads no parameters.
    AFTER_BACKWARD: in every pass that produces gradients of weights, behind a block or bucket; the update waits.
    AFTER_LAST_BACKWARD: the same, only in the last such pass of each virtual stage.
    AFTER_PASSES: behind the stage's last pass; the update waits.
    BEFORE_UPDATE: behind the gradients' squares; the rest of the update waits, on all ranks.
    AFTER_UPDATE: behind the update; the end of the step waits.
    AFTER_PASS: behind a pass whose result another stage needs; that stage's pass waits, and the sender's next one by
    `sender_waits`.
    """

    BEFORE_FIRST_FORWARD = 0
    BEFORE_FORWARD = 1
    BEFORE_BACKWARD = 2
    AFTER_BACKWARD = 3
    AFTER_LAST_BACKWARD = 4
    AFTER_PASSES = 5
    BEFORE_UPDATE = 6
    AFTER_UPDATE = 7
    AFTER_PASS = 8


class Quantity(IntEnum):
    """What the bytes of a call are proportional to.

    Elements on a GPU before sharding: DENSE and EXPERTS: trained parameters outside of experts, and of experts; GATHERED: trained
    and frozen ones outside of experts that full sharding gathers, AGAIN: those of them that it gathers again for backward,
    PERSISTENT: those that it does not shard. REPLICATED: trained parameters of which each rank of a tensor-parallel group has the
    gradient of its own tokens. UPDATED: elements that a rank updates; VOCABULARY: those of the embedding; BOUNDARY: bytes of a
    micro batch's activations between two stages; CALL: calls.
    """

    DENSE = 0
    EXPERTS = 1
    GATHERED = 2
    PERSISTENT = 3
    UPDATED = 4
    VOCABULARY = 5
    BOUNDARY = 6
    CALL = 7
    AGAIN = 8
    REPLICATED = 9


class Demand(NamedTuple):
    """A call on `stream` over the ranks of `axis`; NONE: those are one rank, and there is no call.

    It moves `width` bytes for each of what it is `of`, cut `over` so many ranks. `cut`: it may run as several calls, one for each
    share of the tensors. `follows`: it waits for the row before it that is `of` the same, not only for its turn on the stream.
    """

    comm: Comm
    axis: Axis
    of: Quantity
    width: float
    moment: Moment
    stream: Stream
    over: int = 1
    cut: bool = False
    follows: bool = False

    def size(self, amount: float, share: float = 1.0) -> float:
        """Bytes of the call for so many of what it is `of`, or for a share of them; linear in both, as bounds expect."""
        return amount * self.width / self.over * share


class Widths(NamedTuple):
    """Mean bytes of an element in calls: parameters gathered for a pass, and after the update; gradients."""

    gathered: float
    updated: float
    gradient: float


def widths_of(runtime: Runtime, parameters: float, quantised: float) -> Widths:
    """Widths in a job whose GPUs hold so many trained parameters, of which some are quantised."""
    passed, updated = (
        gather_width(runtime, width, parameters, quantised) for width in (runtime.compute_width, DTYPE_BYTES[runtime.weight_dtype])
    )
    return Widths(passed, updated, DTYPE_BYTES[runtime.reduce_dtype])


def gathers_in_passes(job: Job, overlap_param_gather: bool) -> bool:
    """Whether passes gather the parameters that they read, because ranks keep shards of them only."""
    if job.plan.shards_parameters:
        return not job.whole_in_step or job.has_frozen_weights
    # FSDP's SHARD_GRAD_OP is ZeRO-2 that frees parameters between steps, and so gathers them again before they are used
    return job.plan.sharding == "zero2" and job.runtime.reduce_every_micro_batch and overlap_param_gather


def gathers_in_switch(job: Job) -> bool:
    """Whether a load of parameters from a memory pool is their all-gather."""
    return job.plan.offload.parameters == "pool" and _in_switch(job)


def reduces_in_switch(job: Job) -> bool:
    """Whether a store of gradients in a memory pool is their reduce-scatter."""
    offload = job.plan.offload
    return offload.optimizer == "pool" and _in_switch(job) and gradients_leave(job.plan) and offload.optimizer_fraction == 1.0


def _in_switch(job: Job) -> bool:
    pool = job.cluster.memory_pool
    return pool is not None and pool.in_switch_collectives


def gathered_elements(job: Job, block: Block) -> float:
    """GATHERED of a block."""
    return max(0.0, block.parameters - block.expert_parameters + block.frozen - persistent(job, block))


def crossed_boundaries(job: Job) -> list[bool]:
    """For each boundary between two parts of the model whether a transfer crosses it: none does inside a stage."""
    stage_of = {part: stage for stage, parts in enumerate(job.places) for part in parts}
    return [job.copies > 1 or stage_of[part] != stage_of[part + 1] for part in range(job.plan.pp * job.plan.vpp - 1)]


WAITING = ("gpipe", "1f1b")
"""Schedules whose passes wait for every transfer. With virtual stages or split backward passes, frameworks post it and continue."""


def sender_waits(schedule: str, overlap_p2p: bool) -> bool:
    """Whether a pass waits until the result of the one before it has been sent."""
    return schedule in WAITING or not overlap_p2p


def transfers(job: Job, sequence_parallel: bool) -> tuple[Demand, Demand]:
    """Of a micro batch's activations or gradients to the next stage: ranks that hold the same values may send a share each, and
    gather them behind the transfer."""
    plan = job.plan
    shared = plan.pp > 1 and plan.tp > 1 and not sequence_parallel and job.runtime.p2p_scatter
    gather, send = Axis.TP if shared else Axis.NONE, Axis.PP if plan.pp > 1 else Axis.NONE
    return (
        Demand(Comm.ALL_GATHER, gather, Quantity.BOUNDARY, 1.0, Moment.AFTER_PASS, Stream.SEND_FORWARD),
        Demand(Comm.SEND_RECV, send, Quantity.BOUNDARY, 1.0, Moment.AFTER_PASS, Stream.SEND_FORWARD, plan.tp if shared else 1),
    )


def parameter_gathers(job: Job, widths: Widths, overlap_param_gather: bool) -> tuple[Demand, ...]:
    """Of sharded parameters: in every pass that reads them; or in full once a step, after the update or ahead of their use."""
    if gathers_in_passes(job, overlap_param_gather):
        rows = _gathers(job, widths.gathered, Moment.BEFORE_FORWARD, Quantity.GATHERED)
        if job.plan.shards_parameters and job.runtime.reshard_after_forward:
            rows += _gathers(job, widths.gathered, Moment.BEFORE_BACKWARD, Quantity.AGAIN)
        if gathers_in_switch(job):
            rows = tuple(row._replace(axis=Axis.NONE) for row in rows)
        return rows + _gathers_outside(job, Quantity.PERSISTENT, widths.gathered, Moment.AFTER_UPDATE)
    if job.plan.sharding == "none":
        return ()
    moment = Moment.BEFORE_FIRST_FORWARD if overlap_param_gather else Moment.AFTER_UPDATE
    rows = _gathers(job, widths.gathered if job.plan.shards_parameters else widths.updated, moment, Quantity.DENSE)
    each = job.runtime.gathers_after_each_optimizer and job.model.experts and moment is Moment.AFTER_UPDATE
    return rows * 2 if each else rows  # one optimizer updates experts, another one all else


def _gathers(job: Job, width: float, moment: Moment, dense: Quantity) -> tuple[Demand, ...]:
    """Gathers of parameters outside of experts, and of experts."""
    of_experts = INT8 if job.plan.quantised_gather else width
    experts = Demand(Comm.ALL_GATHER, _shard_axis(job, Quantity.EXPERTS), Quantity.EXPERTS, of_experts, moment, Stream.GATHER)
    return (*_gathers_outside(job, dense, width, moment), experts)


def _gathers_outside(job: Job, of: Quantity, width: float, moment: Moment) -> tuple[Demand, ...]:
    plan, axis = job.plan, _shard_axis(job, of)
    row = Demand(Comm.ALL_GATHER, axis, of, INT8 if plan.quantised_gather else width, moment, Stream.GATHER, cut=True)
    if moment is Moment.BEFORE_BACKWARD and plan.secondary_group:
        return (row._replace(axis=Axis.NEAR if axis else Axis.NONE),)
    if plan.hierarchical_gather:  # first across nodes, then inside the node
        far, near = (Axis.FAR, Axis.NEAR) if axis else (Axis.NONE, Axis.NONE)
        return row._replace(axis=far, over=job.near_ranks), row._replace(axis=near)
    return (row,)


def _shard_axis(job: Job, of: Quantity) -> Axis:
    """The ranks that share state of a kind."""
    if of is not Quantity.EXPERTS:
        return Axis.SHARD if job.shard_ranks > 1 else Axis.NONE
    if job.expert_shard_ranks == 1:
        return Axis.NONE
    return Axis.EXPERT_DP if job.expert_shard_ranks == job.expert_dp else Axis.EXPERT_SHARD


def reduction_moment(job: Job, overlap_grad_reduce: bool, overlap_param_gather: bool) -> Moment:
    """When gradients are reduced: in every backward pass where a rank keeps its shard of them only, else once a step."""
    plan = job.plan
    if gathers_in_passes(job, overlap_param_gather):
        return Moment.AFTER_LAST_BACKWARD if plan.gradient_accumulation == "local" else Moment.AFTER_BACKWARD
    by_pass = plan.sharding == "zero2" and job.runtime.reduce_every_micro_batch
    if by_pass or plan.gradient_accumulation == "reduced" or gradients_leave(plan):
        return Moment.AFTER_BACKWARD
    if job.whole_in_step:  # behind a stage's last backward pass, not beside it (torch stage.py, run_post_backward)
        return Moment.AFTER_PASSES
    return Moment.AFTER_LAST_BACKWARD if overlap_grad_reduce else Moment.AFTER_PASSES


def gradient_reductions(job: Job, widths: Widths, overlap_grad_reduce: bool, overlap_param_gather: bool) -> tuple[Demand, ...]:
    """Of gradients: all-reduced, or reduce-scattered among the ranks that share state and all-reduced between their replicas."""
    in_passes = gathers_in_passes(job, overlap_param_gather)
    moment = reduction_moment(job, overlap_grad_reduce, overlap_param_gather)
    width = widths.gradient
    if in_passes or job.plan.sharding != "none" and job.runtime.reduce_with == "reduce_scatter":
        rows = (*_scatters(job, Quantity.DENSE, width, moment), *_scatters(job, Quantity.EXPERTS, width, moment))
        return tuple(row._replace(axis=Axis.NONE) for row in rows) if in_passes and reduces_in_switch(job) else rows
    alike = job.dp * job.plan.cp  # ranks with the same parameters outside of experts
    everyone = Axis.NONE if alike == 1 else Axis.SHARD if job.shard_ranks == alike else Axis.DP
    same_experts = Axis.EXPERT_DP if job.expert_dp > 1 else Axis.NONE
    return (
        Demand(Comm.ALL_REDUCE, everyone, Quantity.DENSE, width, moment, Stream.REDUCE, cut=True),
        Demand(Comm.ALL_REDUCE, same_experts, Quantity.EXPERTS, width, moment, Stream.REDUCE),
    )


def _scatters(job: Job, of: Quantity, width: float, moment: Moment) -> tuple[Demand, ...]:
    """In INT4 two all-to-alls replace the reduce-scatter (ZeRO++, arXiv 2306.10209). MiCS all-reduces between replicas once a
    step."""
    plan, outside = job.plan, of is Quantity.DENSE
    ranks, replicas = (job.shard_ranks, Axis.REPLICA) if outside else (job.expert_shard_ranks, Axis.EXPERT_REPLICA)
    between = Demand(
        Comm.ALL_REDUCE,
        replicas if job.replicas > 1 else Axis.NONE,
        of,
        width,
        Moment.AFTER_LAST_BACKWARD if plan.sharding == "mics" else moment,
        Stream.REDUCE,
        ranks,
        follows=True,
    )
    if not (outside and plan.quantised_reduce):
        axis = _shard_axis(job, of)
        return Demand(Comm.REDUCE_SCATTER, axis, of, width, moment, Stream.REDUCE, cut=outside, follows=True), between
    near = job.near_ranks
    inside = Demand(Comm.ALL_TO_ALL, Axis.NEAR if near > 1 else Axis.NONE, of, INT4, moment, Stream.REDUCE, follows=True)
    return inside, inside._replace(axis=Axis.FAR if near < ranks else Axis.NONE, over=near), between


def replicated_reduction(job: Job, widths: Widths) -> Demand:
    """Of gradients of norms, biases and routers over tp: under sequence parallelism each rank has those of its own tokens
    (Megatron-Core's distributed/finalize_model_grads.py, _allreduce_non_tensor_model_parallel_grads)."""
    axis = Axis.TP if job.plan.tp > 1 else Axis.NONE
    return Demand(Comm.ALL_REDUCE, axis, Quantity.REPLICATED, widths.gradient, Moment.AFTER_PASSES, Stream.TP)


def norm_reduction(job: Job) -> Demand:
    """Of the gradients' norm, a number, over all ranks."""
    axis = Axis.WORLD if job.cluster.gpus > 1 else Axis.NONE
    return Demand(Comm.ALL_REDUCE, axis, Quantity.CALL, 8.0, Moment.BEFORE_UPDATE, Stream.WORLD)


def stage_reductions(job: Job, widths: Widths, stage: int) -> tuple[Demand, Demand]:
    """Of gradients between stages that hold copies of the same parameters: of the whole stage where a pipeline has two copies of
    the model, and of an embedding that first and last stage share."""
    row = Demand(Comm.ALL_REDUCE, Axis.EMBEDDING, Quantity.UPDATED, widths.gradient, Moment.AFTER_PASSES, Stream.WORLD)
    ties = job.model.shares_embedding and not job.ends_meet and stage in (0, job.plan.pp - 1)
    twin, tied = job.copies > 1, row._replace(of=Quantity.VOCABULARY, axis=Axis.EMBEDDING if ties else Axis.NONE)
    return row if twin else row._replace(axis=Axis.NONE), tied


@dataclass(frozen=True)
class StepDemands:
    """The rows of all stages of a job; those between stages are `transfers` and `stage_reductions`."""

    gathers: tuple[Demand, ...]
    reductions: tuple[Demand, ...]
    norm: Demand
    widths: Widths

    @classmethod
    def of(cls, workload: Workload) -> StepDemands:
        """The rows of a workload's job."""
        job, runtime = workload.job, workload.job.runtime
        widths = widths_of(runtime, sum(workload.stage_parameters), sum(workload.stage_quantised))
        return cls(
            parameter_gathers(job, widths, runtime.overlap_param_gather),
            gradient_reductions(job, widths, runtime.overlap_grad_reduce, runtime.overlap_param_gather),
            norm_reduction(job),
            widths,
        )


def at(rows: Iterable[Demand], *moments: Moment) -> tuple[Demand, ...]:
    """The rows that are posted at these moments, in their order."""
    return tuple(row for row in rows if row.moment in moments)


def only_at(rows: tuple[Demand, ...], *moments: Moment) -> tuple[Demand, ...]:
    """The rows, all of which are posted at these moments. AssertionError for another one, which nobody would post."""
    if other := [row for row in rows if row.moment not in moments]:
        raise AssertionError(f"no program posts {other[0]}")
    return rows
