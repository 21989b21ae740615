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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.compute.cpu import cpu_seconds, update_bytes
from windtunnel.memory.host_copies import HOST_ACHIEVED, host_memory_rate
from windtunnel.network.groups.shape import group
from windtunnel.predict.price.calibrated import call_factor
from windtunnel.predict.program.pipeline import WAITING
from windtunnel.predict.ranks.places import Ranks, ranks_of
from windtunnel.search.bound.call_floor import CallFloor
from windtunnel.search.bound.stack import ELEMENTS, CellStack, Staged
from windtunnel.search.bound.update import SIZES
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


Groups = dict[object, dict[Axis, int]]
"""Numbers of the groups of ranks by axis, for each way to split the ranks."""


@dataclass(frozen=True)
class Cases:
    """K `jobs` that differ in tp, cp, ep and etp, what follows from them, and what cells contain; `of` [Q]: that of each pair."""

    jobs: tuple[Job, ...]
    of: Int64s

    def column(self, value: Callable[[Job], float]) -> Floats:
        """[K] a number of each job."""
        return np.array([value(job) for job in self.jobs], np.float64)


class StepFloor:
    """Bounds of plans; each job differs from one of `cases` only in what cells contain, in the layout, in the batch and in
    `PlanRows`.

    All layouts have the stages of the jobs and their copies of the model. Elements [U, L, S] and what follows from them have a row
    for each job and cell whose elements differ; all else has one for each pair of a cell and a layout.
    """

    def __init__(self, cases: Cases, pairs: Pairs, calls: CallFloor, groups: Groups) -> None:
        """`groups`: those of plans seen before."""
        self.cases, self.pairs, self.calls, self.groups = cases, pairs, calls, groups
        self.job = job = cases.jobs[0]
        self.stack, self.staged = pairs.stack, pairs.staged
        used, self.of = np.unique(cases.of * len(self.stack.elements) + self.stack.of[pairs.cell], return_inverse=True)
        self.case, self.used = np.divmod(used, len(self.stack.elements))  # [U]
        self.dense, self.experts, self.gathered = (
            self.staged.elements[self.used, ELEMENTS.index(name)] for name in ("dense", "experts", "sharded")
        )
        runtime = job.runtime
        self.reduce_width, self.weight_width = DTYPE_BYTES[runtime.reduce_dtype], DTYPE_BYTES[runtime.weight_dtype]
        by_pass = job.plan.sharding == "zero2" and runtime.reduce_every_micro_batch
        self.sharded = job.plan.shards_parameters or by_pass and runtime.overlap_param_gather
        self.every_pass = by_pass or job.plan.gradient_accumulation == "reduced"
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
        streams = np.maximum(streams, gathers)
        work, before_weights = np.maximum(each(staged.work), self._slowest()), each(staged.before_weights)
        updates = self._update(0), self._update(1)
        exposed = self._exposed() + updates[0]
        reduced = exposed if rows.overlap_grad_reduce.all() else self._reduced() + updates[0]
        after_norm, gathered = updates[1].max(axis=1), (updates[1] + self._gathered()).max(axis=1)
        first = self.pairs.of_layout([int(np.flatnonzero((of.stage_parts == 0).any(axis=1))[0]) for of in layouts])
        waits = self.pairs.of_layout([of.schedule in WAITING for of in layouts]) > 0
        split = self.pairs.of_layout([of.split for of in layouts]) > 0
        norm, out, reduces = self._norm(), np.empty(len(rows.pair)), reductions.any()
        for part, some in rows.parts():
            pair, runs = some.pair, (some.micro_batches // self.job.copies).astype(np.float64)[:, None]
            blocked = waits[pair] | ~some.overlap_p2p
            between = np.maximum(0.0, runs * sends[pair] - 1.0) * send[pair] * blocked[:, None]
            head = heads[pair] + between
            finish = np.where(some.overlap_grad_reduce[:, None], exposed[pair], reduced[pair])
            turned = np.maximum(head + runs * work[pair], runs * streams[pair])
            ends = np.maximum(turned, runs * reductions[pair]) if reduces else turned  # the stages before do not wait for these
            if split.any():
                turned = np.where(split[pair, None], head + runs * before_weights[pair], turned)
            at_first = finish[np.arange(len(pair)), first[pair]]
            whole = np.maximum((ends + finish).max(axis=1), (turned + tails[pair]).max(axis=1) + at_first)
            out[part] = whole + norm + np.where(some.overlap_param_gather, after_norm[pair], gathered[pair])
        return out

    def _slowest(self) -> Floats:
        """[Q, S] work of each stage's slowest rank, if ranks differ."""
        by_kind = self.pairs.each(self.staged.by_kind)  # [Q, 2, kinds, S]
        out = np.asarray(by_kind[:, 0, 0], np.float64)
        if self.job.unequal is None:
            return out
        out = np.zeros_like(out)
        for case, (job, ranks) in enumerate(zip(self.cases.jobs, self._ranks, strict=True)):
            mine = self.cases.of == case
            for stage in range(job.plan.pp):
                here = ranks.places.stage == stage
                for kind in np.unique(ranks.kind[here]).tolist():
                    slow = float(ranks.slow[here & (ranks.kind == kind)].max())
                    chain, compute = by_kind[mine, 0, kind, stage], by_kind[mine, 1, kind, stage]
                    out[mine, stage] = np.maximum(out[mine, stage], np.maximum(chain, slow * compute))
        return out

    @cached_property
    def _ranks(self) -> tuple[Ranks, ...]:
        """The ranks of each case, if they differ."""
        unequal = self.job.unequal
        if unequal is None:
            return ()
        return tuple(ranks_of(job, unequal, np.zeros(len(unequal.links), np.bool_)) for job in self.cases.jobs)

    def _numbers(self, axis: Callable[[Job], Axis | None]) -> Int64s:
        """[K] the number of each job's group of ranks of an axis; None: no call."""
        return np.array([self._number(job, axis(job)) for job in self.cases.jobs], np.int64)

    def _number(self, job: Job, axis: Axis | None) -> int:
        if axis is None:
            return self.calls.number(None)
        plan = job.plan
        ranks = (plan.tp, plan.cp, plan.pp, plan.ep, plan.etp, job.dp, job.shard_ranks, job.expert_shard_ranks, job.near_ranks)
        known = self.groups.setdefault((ranks, plan.placement, job.cp_sizes), {})
        if axis not in known:
            known[axis] = self.calls.number(group(job, axis))
        return known[axis]

    def _call(self, comm: Comm, axis: Callable[[Job], Axis | None], sizes: Floats) -> Floats:
        """Seconds of calls of `sizes` [U, ...] together over a data-parallel axis."""
        return self.calls.seconds(comm, self._numbers(axis)[self.case], sizes) * self._factor(Axis.DP)

    def _factor(self, axis: Axis) -> float:
        return call_factor(axis, self.job.calibration)

    def _of_pairs(self, values: Floats) -> Floats:
        """[Q, ...] from [U, L, ...]."""
        return np.asarray(values[self.of, self.pairs.layout], np.float64)

    def _send(self) -> Floats:
        """[Q] seconds of a transfer between stages."""
        size, of = self.stack.boundary[self.pairs.cell], self.cases.of
        if self.job.plan.pp == 1:
            return np.zeros_like(size)
        gathered = np.zeros_like(size)
        if self.job.runtime.p2p_scatter:
            tp = self.cases.column(lambda job: job.plan.tp)[of]
            whole = ~self.stack.sequence_parallel[self.pairs.cell] & (tp > 1)
            gathered = self.calls.seconds(Comm.ALL_GATHER, self._numbers(lambda job: Axis.TP)[of], size * whole)
            size = np.where(whole, size / tp, size)
        sent = self.calls.seconds(Comm.SEND_RECV, self._numbers(lambda job: Axis.PP)[of], size)
        return gathered * self._factor(Axis.TP) + sent * self._factor(Axis.PP)

    def _reduce(self, dense: Floats, experts: Floats) -> Floats:
        """Seconds to reduce the gradients of so many elements [U, ...]."""
        plan = self.job.plan
        scattered = self.sharded or plan.sharding != "none" and self.job.runtime.reduce_with == "reduce_scatter"
        sizes = dense * self.reduce_width, experts * self.reduce_width
        if not scattered:
            return self._call(Comm.ALL_REDUCE, _everyone, sizes[0]) + self._call(Comm.ALL_REDUCE, _same_experts, sizes[1])
        total = np.zeros_like(dense)
        parts = (
            (sizes[0], _shard, Axis.REPLICA, self.cases.column(lambda job: job.shard_ranks)),
            (sizes[1], _expert_shard, Axis.EXPERT_REPLICA, self.cases.column(lambda job: job.expert_shard_ranks)),
        )
        for size, axis, replicas, ranks in parts:

            def far(job: Job, axis: Axis = replicas) -> Axis | None:
                return axis if job.replicas > 1 else None

            if not (axis is _shard and plan.quantised_reduce):
                total += self._call(Comm.REDUCE_SCATTER, axis, size)
            if plan.sharding != "mics" and any(job.replicas > 1 for job in self.cases.jobs):
                shares = size / self._of_elements(ranks, size.ndim)
                total += self._call(Comm.ALL_REDUCE, far, shares)
        return total

    def _of_elements(self, numbers: Floats, axes: int) -> Floats:
        """[U, 1, ...] the number of each job, for arrays of so many axes."""
        return np.asarray(numbers[self.case].reshape(-1, *(1,) * (axes - 1)), np.float64)

    def _streams(self) -> tuple[Floats, Floats]:
        """[Q, S] seconds of gathers and of reductions that every micro batch needs."""
        plan, runtime = self.job.plan, self.job.runtime
        gathers = reductions = np.zeros_like(self.dense)
        if self.plain and (self.every_pass or self.sharded and plan.gradient_accumulation != "local"):
            reductions = self._reduce(self.dense, self.experts)
        again = plan.hierarchical_gather or plan.secondary_group
        if self.plain and plan.shards_parameters and not again:
            width = INT8 if plan.quantised_gather else min(runtime.compute_width, 1.0 if runtime.fp8_param_gather else 9.0)
            gathers = self._call(Comm.ALL_GATHER, _shard, self.gathered * width)
            gathers = gathers * (2.0 if runtime.reshard_after_forward else 1.0)
        return self._of_pairs(gathers), self._of_pairs(reductions)

    @property
    def _reduces_at_end(self) -> bool:
        """Whether gradients are reduced after the last micro batch."""
        return self.plain and not self.sharded and not self.every_pass

    def _reduced(self) -> Floats:
        """[Q, S] seconds of the reduction after the last pass, if it does not overlap."""
        if not self._reduces_at_end:
            return self._of_pairs(np.zeros_like(self.dense))
        return self._of_pairs(self._reduce(self.dense, self.experts))

    def _exposed(self) -> Floats:
        """[Q, S] seconds of an overlapped reduction that the slowest rank's last backward pass of a virtual stage leaves open."""
        if not self._reduces_at_end:
            return self._of_pairs(np.zeros_like(self.dense))
        parts = self.staged.part_elements  # [W, 6, L, S, V]
        reduced = self._reduce(*(parts[self.used, ELEMENTS.index(name)] for name in ("dense", "experts")))
        slowest = max((1.0, *(float(ranks.slow.max()) for ranks in self._ranks)))
        exposed = self._of_pairs(reduced) - self.pairs.each(self.staged.last) * slowest
        return np.asarray(np.maximum(0.0, exposed.min(axis=2)), np.float64)

    def _updated(self) -> Floats:
        """[Q, S] elements that a GPU updates."""
        job = self.job
        if job.plan.sharding == "none":
            return self._of_pairs(self.dense + self.experts)
        shards, expert_shards = (
            self._of_elements(self.cases.column(ranks), self.dense.ndim)
            for ranks in (lambda job: job.shard_ranks, lambda job: job.expert_shard_ranks)
        )
        return self._of_pairs((self.dense / shards + self.experts / expert_shards) / job.copies)

    def _update(self, part: int) -> Floats:
        """[Q, S] seconds of the update up to the norm (0) or after it (1), on the GPU or by the CPUs."""
        share = self.job.plan.offload.updated_away
        updated = self._updated()
        size = np.searchsorted(SIZES, updated, side="right") - 1
        seconds = np.asarray(updated * self.stack.update[self.pairs.cell[:, None], size, part], np.float64)
        if part == 1 and self.stack.narrow.any():
            quantised = self._of_pairs(self.staged.elements[self.used, ELEMENTS.index("quantised")])
            seconds += quantised * self.stack.narrow[self.pairs.cell][:, None]
        if not share or part == 0:
            return seconds
        node, cluster = self.job.cluster.node, self.job.cluster
        width = DTYPE_BYTES[self.job.runtime.gradient_dtype]
        memory = host_memory_rate(node) / HOST_ACHIEVED / cluster.gpus_of_node
        return np.maximum(seconds, updated * share * cpu_seconds(update_bytes(self.job, width), memory))

    def _norm(self) -> float:
        """Seconds of the norm's reduction over all ranks."""
        seconds = self.calls.seconds(Comm.ALL_REDUCE, self._numbers(lambda job: Axis.WORLD)[:1], np.array([8.0]))
        return float(seconds[0]) * self._factor(Axis.WORLD)

    def _gathered(self) -> Floats:
        """[Q, S] seconds of the parameters' gather after the update, if it does not overlap."""
        job = self.job
        if job.plan.sharding not in ("zero1", "zero2") or self.sharded or not self.plain:
            return self._of_pairs(np.zeros_like(self.dense))
        width = min(self.weight_width, 1.0) if job.runtime.fp8_param_gather else self.weight_width
        dense = self._call(Comm.ALL_GATHER, _shard, self.dense * width)
        return self._of_pairs(dense + self._call(Comm.ALL_GATHER, _expert_shard, self.experts * width))


def _shard(job: Job) -> Axis | None:
    """Ranks over which state outside of experts is sharded."""
    return Axis.SHARD if job.shard_ranks > 1 else None


def _expert_shard(job: Job) -> Axis | None:
    """Ranks over which the experts' state is sharded."""
    if job.expert_shard_ranks <= 1:
        return None
    return Axis.EXPERT_DP if job.expert_shard_ranks == job.expert_dp else Axis.EXPERT_SHARD


def _everyone(job: Job) -> Axis | None:
    """Ranks with the same parameters outside of experts."""
    if job.dp * job.plan.cp <= 1:
        return None
    return Axis.SHARD if job.shard_ranks == job.dp * job.plan.cp else Axis.DP


def _same_experts(job: Job) -> Axis | None:
    return Axis.EXPERT_DP if job.expert_dp > 1 else None
