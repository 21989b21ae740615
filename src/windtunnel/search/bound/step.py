"""A lower bound of the time of a step, for columns of plans.

A stage's first pass waits for the forward passes of all parts of the model before it, and after its last backward pass the parts
before it still run theirs. In between the stage runs its own passes of every micro batch. So with `head` and `tail`

    step >= head + micro batches * work + tail        for every stage

whatever the schedule, and plain and interleaved 1F1B reach it where stages are equal. Then come the calls and kernels that end a
step: the gradients' reduction as far as nothing hides it, their norm, the update, the gather of parameters. Host and streams of
calls
give bounds of their own; the largest of all counts. What is left out (waits for each other's transfers, SMs that calls take,
buckets' latency) only makes a step longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.compute.cpu import cpu_seconds, update_bytes
from windtunnel.memory.host_copies import HOST_ACHIEVED, host_memory_rate
from windtunnel.network import Group
from windtunnel.network.groups.shape import group
from windtunnel.predict.program.pipeline import WAITING
from windtunnel.predict.ranks.places import ranks_of
from windtunnel.search.bound.call_floor import CallFloor
from windtunnel.search.bound.layouts import PipelineLayout
from windtunnel.search.bound.stack import CellStack, Staged
from windtunnel.spec import Job
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.workload import Axis, Comm
from windtunnel.workload.passes.fsdp import INT8

CHUNK = 4096
"""Plans whose bounds are computed at once."""


@dataclass(frozen=True)
class PlanRows:
    """N plans of a `StepFloor`: `cell`, places in its cells; `micro_batches`; and the runtime's switches of these names."""

    cell: Int64s
    micro_batches: Int64s
    overlap_grad_reduce: Bools
    overlap_param_gather: Bools
    overlap_p2p: Bools

    def take(self, rows: Int64s | slice) -> PlanRows:
        return PlanRows(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def parts(self) -> Iterator[tuple[slice, PlanRows]]:
        """The rows in parts that stay in a processor's cache."""
        for start in range(0, len(self.cell), CHUNK):
            part = slice(start, start + CHUNK)
            yield part, self.take(part)


Groups = dict[object, dict[Axis, Group]]
"""Groups of ranks by axis, for each way to split the ranks."""


class StepFloor:
    """Bounds of the plans of one layout whose jobs differ from `job` only in what cells contain, in the batch and in `PlanRows`."""

    def __init__(
        self, job: Job, layout: PipelineLayout, stack: CellStack, staged: Staged, cells: Int64s, calls: CallFloor, groups: Groups
    ) -> None:
        """`cells` [K]: the cells of `stack` that the plans use; `groups`: those of plans seen before."""
        self.job, self.layout, self.calls = job, layout, calls
        self.stack, self.staged, self.cells = stack, staged, cells
        plan = job.plan
        ranks = (plan.tp, plan.cp, plan.pp, plan.ep, plan.etp, job.dp, job.shard_ranks, job.expert_shard_ranks, job.near_ranks)
        self.groups = groups.setdefault((ranks, plan.placement, job.cp_sizes), {})
        stage_counts = layout.stage_counts.T
        self.dense, self.experts = stack.dense[cells] @ stage_counts, stack.experts[cells] @ stage_counts  # [K, S]
        runtime = job.runtime
        self.reduce_width, self.weight_width = DTYPE_BYTES[runtime.reduce_dtype], DTYPE_BYTES[runtime.weight_dtype]
        self.several = job.dp * job.plan.cp > 1 or bool(self.experts.any()) and job.expert_dp > 1
        by_pass = job.plan.sharding == "zero2" and runtime.reduce_every_micro_batch
        self.sharded = job.plan.shards_parameters or by_pass and runtime.overlap_param_gather
        self.every_pass = (by_pass or job.plan.gradient_accumulation == "reduced") and self.several
        offload = job.plan.offload
        self.plain = offload.optimizer == "none" and offload.parameters == "none"  # else other calls and copies take their place

    def seconds(self, rows: PlanRows) -> Floats:
        """[N] least seconds of a step."""
        staged, at, layout = self.staged, self.cells, self.layout
        send = self._send()[:, None]  # [K, 1]
        heads, tails = staged.head[at] + staged.head_sends * send, staged.tail[at] + staged.head_sends * send
        gathers, reductions = self._streams()
        streams = np.maximum(np.maximum(staged.host[at], staged.locked[at]), staged.calls[at])
        streams = np.maximum(streams, np.maximum(gathers, reductions))
        work, before_weights = np.maximum(staged.work[at], self._slowest()), staged.before_weights[at]
        reduced, exposed = self._reduced() if not rows.overlap_grad_reduce.all() else None, self._exposed()
        before_norm, after_norm, gathered = (
            self._update(0),
            self._update(1).max(axis=1),
            (self._update(1) + self._gathered()).max(axis=1),
        )
        first = next(stage for stage, parts in enumerate(layout.places) if 0 in parts)
        waits = layout.schedule in WAITING
        norm, out = self._norm(), np.empty(len(rows.cell))
        for part, some in rows.parts():
            cell, runs = some.cell, (some.micro_batches // layout.copies).astype(np.float64)[:, None]
            blocked = waits | ~some.overlap_p2p
            between = np.maximum(0.0, runs * staged.sends - 1.0) * send[cell] * blocked[:, None]
            head = heads[cell] + between
            others = runs * streams[cell]
            finish = exposed[cell]
            if reduced is not None:
                finish = np.where(some.overlap_grad_reduce[:, None], finish, reduced[cell])
            finish = finish + before_norm[cell]
            ends = np.maximum(head + runs * work[cell], others)
            turned = head + runs * before_weights[cell] if layout.split else ends
            whole = np.maximum((ends + finish).max(axis=1), (turned + tails[cell]).max(axis=1) + finish[:, first])
            out[part] = whole + norm + np.where(some.overlap_param_gather, after_norm[cell], gathered[cell])
        return out

    def _slowest(self) -> Floats:
        """[K, S] work of each stage's slowest rank, if ranks differ."""
        by_kind = self.staged.by_kind[self.cells]
        if self.job.unequal is None:
            return np.asarray(by_kind[:, 0, 0], np.float64)
        ranks = ranks_of(self.job, self.job.unequal, np.zeros(len(self.job.unequal.links), np.bool_))
        out = np.zeros_like(self.dense)
        for stage in range(self.layout.pp):
            here = ranks.places.stage == stage
            for kind in np.unique(ranks.kind[here]).tolist():
                slow = float(ranks.slow[here & (ranks.kind == kind)].max())
                chain, compute = by_kind[:, kind, 0, stage], by_kind[:, kind, 1, stage]
                out[:, stage] = np.maximum(out[:, stage], np.maximum(chain, slow * compute))
        return np.asarray(out, np.float64)

    def _group(self, axis: Axis) -> Group:
        if axis not in self.groups:
            self.groups[axis] = group(self.job, axis)
        return self.groups[axis]

    def _call(self, comm: Comm, axis: Axis, sizes: Floats) -> Floats:
        return self.calls.seconds(comm, self._group(axis), sizes)

    def _send(self) -> Floats:
        """[K] seconds of a transfer between stages."""
        plan, size = self.job.plan, self.stack.boundary[self.cells]
        if plan.pp == 1:
            return np.zeros_like(size)
        gathered = np.zeros_like(size)
        if plan.tp > 1 and self.job.runtime.p2p_scatter:
            whole = ~self.stack.sequence_parallel[self.cells]
            gathered, size = self._call(Comm.ALL_GATHER, Axis.TP, size * whole), np.where(whole, size / plan.tp, size)
        return gathered + self._call(Comm.SEND_RECV, Axis.PP, size)

    def _reduce(self, dense: Floats, experts: Floats) -> Floats:
        """Seconds to reduce the gradients of so many elements."""
        job = self.job
        scattered = self.sharded or job.plan.sharding != "none" and job.runtime.reduce_with == "reduce_scatter"
        total = np.zeros_like(dense)
        expert_axis = Axis.EXPERT_DP if job.expert_shard_ranks == job.expert_dp else Axis.EXPERT_SHARD
        parts = (
            (dense, Axis.SHARD, Axis.REPLICA, job.shard_ranks),
            (experts, expert_axis, Axis.EXPERT_REPLICA, job.expert_shard_ranks),
        )
        for elements, axis, replicas, ranks in parts:
            size = elements * self.reduce_width
            if not scattered:
                everyone = Axis.SHARD if job.shard_ranks == job.dp * job.plan.cp else Axis.DP
                over, count = (everyone, job.dp * job.plan.cp) if axis is Axis.SHARD else (Axis.EXPERT_DP, job.expert_dp)
                total += self._call(Comm.ALL_REDUCE, over, size) if count > 1 else 0.0
                continue
            if ranks > 1 and not (axis is Axis.SHARD and job.plan.quantised_reduce):
                total += self._call(Comm.REDUCE_SCATTER, axis, size)
            if job.replicas > 1 and job.plan.sharding != "mics":
                total += self._call(Comm.ALL_REDUCE, replicas, size / ranks)
        return total

    def _streams(self) -> tuple[Floats, Floats]:
        """[K, S] seconds of gathers and of reductions that every micro batch needs."""
        none = np.zeros_like(self.dense)
        if not self.plain:
            return none, none
        plan, runtime = self.job.plan, self.job.runtime
        gathers, reductions = none, none
        if self.every_pass or self.sharded and plan.gradient_accumulation != "local":
            reductions = self._reduce(self.dense, self.experts)
        if plan.shards_parameters and self.job.shard_ranks > 1 and not (plan.hierarchical_gather or plan.secondary_group):
            width = INT8 if plan.quantised_gather else min(runtime.compute_width, 1.0 if runtime.fp8_param_gather else 9.0)
            elements = self.stack.sharded[self.cells] @ self.layout.stage_counts.T
            gathers = self._call(Comm.ALL_GATHER, Axis.SHARD, elements * width)
            gathers = gathers * (2.0 if runtime.reshard_after_forward else 1.0)
        return gathers, reductions

    def _reduced(self) -> Floats:
        """[K, S] seconds of the reduction after the last pass, if it does not overlap."""
        if not self.several or not self.plain or self.sharded or self.every_pass:
            return np.zeros_like(self.dense)
        return self._reduce(self.dense, self.experts)

    def _exposed(self) -> Floats:
        """[K, S] seconds of an overlapped reduction that the last backward pass of a virtual stage does not cover."""
        if not self.several or not self.plain or self.sharded or self.every_pass:
            return np.zeros_like(self.dense)
        counts = self.layout.counts[np.array(self.layout.places)]  # [S, V, B]
        dense, experts = (np.einsum("kb,svb->ksv", each[self.cells], counts) for each in (self.stack.dense, self.stack.experts))
        exposed = self._reduce(dense, experts) - self.staged.last[self.cells]
        return np.asarray(np.maximum(0.0, exposed.min(axis=2)), np.float64)

    def _updated(self) -> Floats:
        job = self.job
        if job.plan.sharding == "none":
            return self.dense + self.experts
        return np.asarray((self.dense / job.shard_ranks + self.experts / job.expert_shard_ranks) / job.copies, np.float64)

    def _update(self, part: int) -> Floats:
        """[K, S] seconds of the update up to the norm (0) or after it (1), on the GPU or by the CPUs."""
        share = self.job.plan.offload.updated_away
        seconds = np.asarray(self._updated() * self.stack.update[self.cells, part][:, None], np.float64)
        if not share or part == 0:
            return seconds
        node, cluster = self.job.cluster.node, self.job.cluster
        width = DTYPE_BYTES[self.job.runtime.gradient_dtype]
        memory = host_memory_rate(node) / HOST_ACHIEVED / cluster.gpus_of_node
        return np.maximum(seconds, self._updated() * share * cpu_seconds(update_bytes(self.job, width), memory))

    def _norm(self) -> float:
        """Seconds of the norm's reduction over all ranks."""
        return float(self._call(Comm.ALL_REDUCE, Axis.WORLD, np.array([8.0]))[0])

    def _gathered(self) -> Floats:
        """[K, S] seconds of the parameters' gather after the update, if it does not overlap."""
        job = self.job
        if job.plan.sharding not in ("zero1", "zero2") or self.sharded or not self.several or not self.plain:
            return np.zeros_like(self.dense)
        width = min(self.weight_width, 1.0) if job.runtime.fp8_param_gather else self.weight_width
        total = self._call(Comm.ALL_GATHER, Axis.SHARD, self.dense * width)
        expert_axis = Axis.EXPERT_DP if job.expert_shard_ranks == job.expert_dp else Axis.EXPERT_SHARD
        return total + self._call(Comm.ALL_GATHER, expert_axis, self.experts * width)
