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
from windtunnel.search.bound.stack import ELEMENTS, CellStack, Staged
from windtunnel.spec import Job
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.workload import Axis, Comm
from windtunnel.workload.passes.fsdp import INT8

CHUNK = 4096
"""Plans whose bounds are computed at once."""


@dataclass(frozen=True)
class PlanRows:
    """N plans of a `StepFloor`: `pair`, places in its pairs; `micro_batches`; and the runtime's switches of these names."""

    pair: Int64s
    micro_batches: Int64s
    overlap_grad_reduce: Bools
    overlap_param_gather: Bools
    overlap_p2p: Bools

    def take(self, rows: Int64s | slice) -> PlanRows:
        return PlanRows(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def parts(self) -> Iterator[tuple[slice, PlanRows]]:
        """The rows in parts that stay in a processor's cache."""
        for start in range(0, len(self.pair), CHUNK):
            part = slice(start, start + CHUNK)
            yield part, self.take(part)


@dataclass(frozen=True)
class Pairs:
    """Q pairs of a cell and a layout that plans have: places [Q] in a stack and in the layouts of what is staged of it."""

    stack: CellStack
    staged: Staged
    cell: Int64s
    layout: Int64s

    def each(self, values: Floats) -> Floats:
        """Those of [C, L, ...] `values` that belong to the pairs."""
        return np.asarray(values[self.cell, self.layout], np.float64)

    def of_layout(self, values: list[bool] | list[int]) -> Int64s:
        """[Q] from values of each layout."""
        return np.array(values, np.int64)[self.layout]


Groups = dict[object, dict[Axis, Group]]
"""Groups of ranks by axis, for each way to split the ranks."""


class StepFloor:
    """Bounds of plans whose jobs differ from `job` only in what cells contain, in the layout, in the batch and in `PlanRows`.

    All layouts have the stages of `job` and its copies of the model. Elements [W, L, S] and what follows from them have a row for
    each that differs among the cells; all else has one for each pair of a cell and a layout.
    """

    def __init__(self, job: Job, pairs: Pairs, calls: CallFloor, groups: Groups) -> None:
        """`groups`: those of plans seen before."""
        self.job, self.pairs, self.calls = job, pairs, calls
        self.stack, self.staged = pairs.stack, pairs.staged
        plan = job.plan
        ranks = (plan.tp, plan.cp, plan.pp, plan.ep, plan.etp, job.dp, job.shard_ranks, job.expert_shard_ranks, job.near_ranks)
        self.groups = groups.setdefault((ranks, plan.placement, job.cp_sizes), {})
        used = np.unique(self.stack.of[pairs.cell])
        self.of = np.searchsorted(used, self.stack.of[pairs.cell])  # [Q]
        elements = self.staged.elements[used]
        self.dense, self.experts, self.gathered = (elements[:, ELEMENTS.index(n)] for n in ("dense", "experts", "sharded"))
        self.used = used
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
        staged, each, layouts = self.staged, self.pairs.each, self.staged.layouts
        send = self._send()[:, None]  # [Q, 1]
        head_sends, sends = staged.head_sends[self.pairs.layout], staged.sends[self.pairs.layout]
        heads, tails = each(staged.head) + head_sends * send, each(staged.tail) + head_sends * send
        gathers, reductions = self._streams()
        streams = np.maximum(np.maximum(each(staged.host), each(staged.locked)), each(staged.calls))
        streams = np.maximum(streams, np.maximum(gathers, reductions))
        work, before_weights = np.maximum(each(staged.work), self._slowest()), each(staged.before_weights)
        updates = self._update(0), self._update(1)
        exposed = self._exposed() + updates[0]
        reduced = exposed if rows.overlap_grad_reduce.all() else self._reduced() + updates[0]
        after_norm, gathered = updates[1].max(axis=1), (updates[1] + self._gathered()).max(axis=1)
        first = self.pairs.of_layout([int(np.flatnonzero((of.stage_parts == 0).any(axis=1))[0]) for of in layouts])
        waits = self.pairs.of_layout([of.schedule in WAITING for of in layouts]) > 0
        split = self.pairs.of_layout([of.split for of in layouts]) > 0
        norm, out = self._norm(), np.empty(len(rows.pair))
        for part, some in rows.parts():
            pair, runs = some.pair, (some.micro_batches // self.job.copies).astype(np.float64)[:, None]
            blocked = waits[pair] | ~some.overlap_p2p
            between = np.maximum(0.0, runs * sends[pair] - 1.0) * send[pair] * blocked[:, None]
            head = heads[pair] + between
            finish = np.where(some.overlap_grad_reduce[:, None], exposed[pair], reduced[pair])
            turned = ends = np.maximum(head + runs * work[pair], runs * streams[pair])
            if split.any():
                turned = np.where(split[pair, None], head + runs * before_weights[pair], ends)
            at_first = finish[np.arange(len(pair)), first[pair]]
            whole = np.maximum((ends + finish).max(axis=1), (turned + tails[pair]).max(axis=1) + at_first)
            out[part] = whole + norm + np.where(some.overlap_param_gather, after_norm[pair], gathered[pair])
        return out

    def _slowest(self) -> Floats:
        """[Q, S] work of each stage's slowest rank, if ranks differ."""
        by_kind = self.pairs.each(self.staged.by_kind)  # [Q, 2, kinds, S]
        if self.job.unequal is None:
            return np.asarray(by_kind[:, 0, 0], np.float64)
        ranks = ranks_of(self.job, self.job.unequal, np.zeros(len(self.job.unequal.links), np.bool_))
        out = np.zeros_like(by_kind[:, 0, 0])
        for stage in range(self.job.plan.pp):
            here = ranks.places.stage == stage
            for kind in np.unique(ranks.kind[here]).tolist():
                slow = float(ranks.slow[here & (ranks.kind == kind)].max())
                chain, compute = by_kind[:, 0, kind, stage], by_kind[:, 1, kind, stage]
                out[:, stage] = np.maximum(out[:, stage], np.maximum(chain, slow * compute))
        return np.asarray(out, np.float64)

    def _group(self, axis: Axis) -> Group:
        if axis not in self.groups:
            self.groups[axis] = group(self.job, axis)
        return self.groups[axis]

    def _call(self, comm: Comm, axis: Axis, sizes: Floats) -> Floats:
        return self.calls.seconds(comm, self._group(axis), sizes)

    def _of_pairs(self, values: Floats) -> Floats:
        """[Q, ...] from [W, L, ...] of the elements that are used."""
        return np.asarray(values[self.of, self.pairs.layout], np.float64)

    def _send(self) -> Floats:
        """[Q] seconds of a transfer between stages."""
        plan, size = self.job.plan, self.stack.boundary[self.pairs.cell]
        if plan.pp == 1:
            return np.zeros_like(size)
        gathered = np.zeros_like(size)
        if plan.tp > 1 and self.job.runtime.p2p_scatter:
            whole = ~self.stack.sequence_parallel[self.pairs.cell]
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
        """[Q, S] seconds of gathers and of reductions that every micro batch needs."""
        plan, runtime = self.job.plan, self.job.runtime
        gathers = reductions = np.zeros_like(self.dense)
        if self.plain and (self.every_pass or self.sharded and plan.gradient_accumulation != "local"):
            reductions = self._reduce(self.dense, self.experts)
        again = plan.hierarchical_gather or plan.secondary_group
        if self.plain and plan.shards_parameters and self.job.shard_ranks > 1 and not again:
            width = INT8 if plan.quantised_gather else min(runtime.compute_width, 1.0 if runtime.fp8_param_gather else 9.0)
            gathers = self._call(Comm.ALL_GATHER, Axis.SHARD, self.gathered * width)
            gathers = gathers * (2.0 if runtime.reshard_after_forward else 1.0)
        return self._of_pairs(gathers), self._of_pairs(reductions)

    @property
    def _reduces_at_end(self) -> bool:
        """Whether gradients are reduced after the last micro batch."""
        return self.several and self.plain and not self.sharded and not self.every_pass

    def _reduced(self) -> Floats:
        """[Q, S] seconds of the reduction after the last pass, if it does not overlap."""
        if not self._reduces_at_end:
            return self._of_pairs(np.zeros_like(self.dense))
        return self._of_pairs(self._reduce(self.dense, self.experts))

    def _exposed(self) -> Floats:
        """[Q, S] seconds of an overlapped reduction that the last backward pass of a virtual stage does not cover."""
        if not self._reduces_at_end:
            return self._of_pairs(np.zeros_like(self.dense))
        parts = self.staged.part_elements[self.used]  # [W, 6, L, S, V]
        reduced = self._reduce(parts[:, ELEMENTS.index("dense")], parts[:, ELEMENTS.index("experts")])
        exposed = self._of_pairs(reduced) - self.pairs.each(self.staged.last)
        return np.asarray(np.maximum(0.0, exposed.min(axis=2)), np.float64)

    def _updated(self) -> Floats:
        """[Q, S] elements that a GPU updates."""
        job = self.job
        if job.plan.sharding == "none":
            return self._of_pairs(self.dense + self.experts)
        return self._of_pairs((self.dense / job.shard_ranks + self.experts / job.expert_shard_ranks) / job.copies)

    def _update(self, part: int) -> Floats:
        """[Q, S] seconds of the update up to the norm (0) or after it (1), on the GPU or by the CPUs."""
        share = self.job.plan.offload.updated_away
        updated = self._updated()
        seconds = np.asarray(updated * self.stack.update[self.pairs.cell, part][:, None], np.float64)
        if not share or part == 0:
            return seconds
        node, cluster = self.job.cluster.node, self.job.cluster
        width = DTYPE_BYTES[self.job.runtime.gradient_dtype]
        memory = host_memory_rate(node) / HOST_ACHIEVED / cluster.gpus_of_node
        return np.maximum(seconds, updated * share * cpu_seconds(update_bytes(self.job, width), memory))

    def _norm(self) -> float:
        """Seconds of the norm's reduction over all ranks."""
        return float(self._call(Comm.ALL_REDUCE, Axis.WORLD, np.array([8.0]))[0])

    def _gathered(self) -> Floats:
        """[Q, S] seconds of the parameters' gather after the update, if it does not overlap."""
        job = self.job
        if job.plan.sharding not in ("zero1", "zero2") or self.sharded or not self.several or not self.plain:
            return self._of_pairs(np.zeros_like(self.dense))
        width = min(self.weight_width, 1.0) if job.runtime.fp8_param_gather else self.weight_width
        total = self._call(Comm.ALL_GATHER, Axis.SHARD, self.dense * width)
        expert_axis = Axis.EXPERT_DP if job.expert_shard_ranks == job.expert_dp else Axis.EXPERT_SHARD
        return self._of_pairs(total + self._call(Comm.ALL_GATHER, expert_axis, self.experts * width))
