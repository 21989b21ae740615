"""How a stage's passes and its data-parallel communication interleave: replicated, ZeRO-1/2 or fully sharded."""

from __future__ import annotations

from typing import Protocol

from windtunnel.predict.category import Category
from windtunnel.predict.stage import HOST, REDUCE, Kind, Label, Stage
from windtunnel.workload import Axis, Comm, Stream
from windtunnel.workload.schedules import Action, Pass

Pieces = tuple[tuple[int, int], ...]
Held = tuple[float, float]
"""Elements on a GPU: of all parameters but experts', and of experts', which other ranks share."""


class Sharding(Protocol):
    """Runs passes and, at the end of the step, combines gradients."""

    whole_passes: bool
    """Whether every pass of the step is one run of `pass_template`, so that all can be appended at once."""

    def pass_template(self, chunk: int, direction: Pass) -> int:
        """Template of a whole pass of a virtual stage."""

    def run(self, action: Action, label: Label, waits: tuple[int, ...]) -> int:
        """Append one pass; returns the instance that later transfers wait for."""

    def reduce(self, last: int) -> tuple[int, ...]:
        """Append what is left of gradient reduction after pass `last`; returns what the update waits for."""

    def finish(self, update: int) -> None:
        """Append what follows the update."""


def held(stage: Stage, pieces: Pieces) -> Held:
    """Parameters of blocks with repeats."""
    blocks = stage.workload.blocks
    experts = sum(blocks[b].expert_parameters * times for b, times in pieces)
    return sum(blocks[b].parameters * times for b, times in pieces) - experts, experts


def gather(stage: Stage, label: Label, size: Held, width: float, waits: tuple[int, ...]) -> int | None:
    """All-gathers of parameters, `width` bytes each, over the ranks that share them; returns the last, None if there is none."""
    done = None
    for axis, elements, ranks in _shared(stage, size):
        if elements and ranks > 1:
            done = stage.comm(label, Comm.ALL_GATHER, axis, elements * width, Stream.GATHER, waits, Category.PARAMETER_GATHER)
    return done


def _shared(stage: Stage, size: Held) -> tuple[tuple[Axis, float, int], ...]:
    """Over which ranks each part of sharded parameters is cut: (axis, elements, ranks)."""
    job = stage.workload.job
    return (Axis.SHARD, size[0], job.shard_ranks), (Axis.EXPERT_DP, size[1], job.expert_dp)


def sharding_for(stage: Stage) -> Sharding:
    """The policy that the plan and the runtime ask for."""
    plan, runtime = stage.workload.job.plan, stage.workload.job.runtime
    # FSDP's SHARD_GRAD_OP is ZeRO-2 that frees parameters between steps, and so gathers them again before they are used
    if plan.shards_parameters or (plan.sharding == "zero2" and runtime.reduce_every_micro_batch and runtime.overlap_param_gather):
        return FullySharded(stage)
    return Replicated(stage)


class Replicated:
    """Every rank holds all parameters of its stage; gradients are combined once a step, bucket by bucket in the last backward
    or after it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        job = stage.workload.job
        self.chunks = stage.workload.stages[stage.index]
        self.ranks = job.dp * job.plan.cp
        self.all_ranks = Axis.SHARD if job.shard_ranks == self.ranks else Axis.DP  # with context parallelism, both axes together
        self.sharded = job.plan.sharding != "none"
        self.whole: Held = (
            stage.workload.stage_parameters[stage.index] - stage.workload.stage_experts[stage.index],
            stage.workload.stage_experts[stage.index],
        )
        several = self.ranks > 1 or self.whole[1] > 0.0 and job.expert_dp > 1
        self.several = several
        self.overlap_reduce = job.runtime.overlap_grad_reduce and several
        self.overlap_gather = job.runtime.overlap_param_gather and self.sharded and several
        # ZeRO-2 keeps a shard of the gradients, so every backward pass has to reduce
        self.partitions = job.plan.sharding == "zero2" and job.runtime.reduce_every_micro_batch and several
        self.last_micro_batch = job.micro_batches - 1
        self.pending: list[int] = []
        self.whole_passes = not (self.overlap_gather or self.overlap_reduce or self.partitions)
        self.gathers: dict[tuple[int, int], tuple[int, ...]] = {}
        if self.overlap_gather:
            for chunk in range(len(self.chunks)):
                for group, pieces in enumerate(self._groups(chunk, Pass.FORWARD)):
                    last = gather(stage, (Kind.GATHER, -1, chunk), held(stage, pieces), stage.templates.weight_width, ())
                    self.gathers[chunk, group] = () if last is None else (last,)

    def run(self, action: Action, label: Label, waits: tuple[int, ...]) -> int:
        direction, chunk, micro_batch = action
        if direction is Pass.FORWARD:
            gathers, combines = self.overlap_gather and micro_batch == 0, False
        else:
            gathers, combines = False, self.partitions or self.overlap_reduce and micro_batch == self.last_micro_batch
        stage = self.stage
        if not gathers and not combines:
            return stage.run(self.pass_template(chunk, direction), label, waits)
        last = -1
        for group, pieces in enumerate(self._groups(chunk, direction)):
            gathered = self.gathers[chunk, group] if gathers else ()
            last = stage.run(stage.templates.pieces(pieces, direction, group == 0), label, waits + gathered)
            waits = ()
            if combines:
                self.pending.append(self._combine(held(stage, pieces), (last,), chunk))
        return last

    def pass_template(self, chunk: int, direction: Pass) -> int:
        return self.stage.templates.pieces(self.chunks[chunk].blocks, direction, True)

    def reduce(self, last: int) -> tuple[int, ...]:
        if not self.several:
            return (last,)
        if not self.pending:
            return (self._combine(self.whole, (last,), -1),)
        return (last, self.pending[-1])

    def finish(self, update: int) -> None:
        if not self.sharded or self.overlap_gather:
            return
        gathered = gather(self.stage, (Kind.GATHER, -1, -1), self.whole, self.stage.templates.weight_width, (update,))
        if gathered is not None:  # the step ends with it: its time is nobody else's
            self.stage.run(self.stage.templates.nothing(0.0), HOST, (gathered,))

    def _combine(self, size: Held, waits: tuple[int, ...], chunk: int) -> int:
        """Combines gradients; returns the last call, or what they wait for if there is none."""
        job = self.stage.workload.job
        scatter = self.sharded and job.runtime.reduce_with == "reduce_scatter"
        label = (Kind.REDUCE, -1, chunk)
        done = waits[-1]
        axes = ((Axis.SHARD, Axis.REPLICA, self.ranks), (Axis.EXPERT_DP, None, job.expert_dp))
        for elements, (axis, copies, ranks) in zip(size, axes, strict=True):
            if not elements or ranks == 1:
                continue
            bytes_ = elements * self.stage.templates.reduce_width
            if not scatter:
                call, axis = Comm.ALL_REDUCE, self.all_ranks if axis is Axis.SHARD else axis
            else:
                call = Comm.REDUCE_SCATTER
            done = self.stage.comm(label, call, axis, bytes_, Stream.REDUCE, waits, Category.GRADIENT_REDUCE)
            if scatter and copies is not None and job.shard_ranks < ranks:
                rest = bytes_ / job.shard_ranks
                done = self.stage.comm(label, Comm.ALL_REDUCE, copies, rest, Stream.REDUCE, (done,), Category.GRADIENT_REDUCE)
        return done

    def _groups(self, chunk: int, direction: Pass) -> list[Pieces]:
        """The blocks of a virtual stage in model order (backward: reversed), cut where a bucket is full."""
        blocks = self.stage.workload.blocks
        flat = [b for b, times in self.chunks[chunk].blocks for _ in range(times)]
        if direction is Pass.BACKWARD:
            flat.reverse()
        width = self.stage.templates.reduce_width
        groups: list[list[int]] = [[]]
        full = 0.0
        for block in flat:
            if groups[-1] and full >= self.stage.workload.job.runtime.bucket:
                groups.append([])
                full = 0.0
            groups[-1].append(block)
            full += blocks[block].parameters * width
        order = [g if direction is Pass.FORWARD else g[::-1] for g in groups]
        return [tuple((b, 1) for b in g) for g in order]


class FullySharded:
    """Parameters are gathered block by block, one block ahead of use; gradients are reduce-scattered in every backward pass."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.whole_passes = False
        job = stage.workload.job
        self.ranks = job.shard_ranks
        self.replicas = job.dp * job.plan.cp // job.shard_ranks
        self.reshard = job.plan.shards_parameters and job.runtime.reshard_after_forward
        self.queue: list[tuple[int, int]] = []  # (block, gather instance) of the pass at hand
        self.done: list[int] = []  # computation of blocks, in program order
        self.pending: list[int] = []
        self.chunks = stage.workload.stages[stage.index]

    def run(self, action: Action, label: Label, waits: tuple[int, ...]) -> int:
        flat = [b for b, times in self.chunks[action.chunk].blocks for _ in range(times)]
        forward = action.direction is Pass.FORWARD
        if not forward:
            flat.reverse()
        gather = forward or self.reshard
        ahead = self._gather(flat[0], action) if gather else None
        last = -1
        for place, block in enumerate(flat):
            needed = ahead
            if gather and place + 1 < len(flat):
                ahead = self._gather(flat[place + 1], action)
            template = self.stage.templates.pieces(((block, 1),), action.direction, place == 0)
            last = self.stage.run(template, label, waits + ((needed,) if needed is not None else ()))
            self.done.append(last)
            waits = ()
            if not forward:
                self._scatter(block, last)
        return last

    def pass_template(self, chunk: int, direction: Pass) -> int:
        return self.stage.templates.pieces(self.chunks[chunk].blocks, direction, True)

    def reduce(self, last: int) -> tuple[int, ...]:
        return (last, self.pending[-1]) if self.pending else (last,)

    def finish(self, update: int) -> None:
        """Nothing: parameters are gathered when they are used."""

    def _gather(self, block: int, action: Action) -> int | None:
        """Gather a block's parameters; two gathered blocks may be alive, so it waits for the computation before the last."""
        label = (Kind.GATHER, action.micro_batch, action.chunk)
        size = held(self.stage, ((block, 1),))
        return gather(self.stage, label, size, self.stage.templates.gather_width, tuple(self.done[-1:]))

    def _scatter(self, block: int, after: int) -> None:
        done = after
        for axis, elements, ranks in _shared(self.stage, held(self.stage, ((block, 1),))):
            size = elements * self.stage.templates.reduce_width
            if size and ranks > 1:
                done = self.stage.comm(REDUCE, Comm.REDUCE_SCATTER, axis, size, Stream.REDUCE, (after,), Category.GRADIENT_REDUCE)
            if size and axis is Axis.SHARD and self.replicas > 1:
                done = self.stage.comm(
                    REDUCE, Comm.ALL_REDUCE, Axis.REPLICA, size / self.ranks, Stream.REDUCE, (done,), Category.GRADIENT_REDUCE
                )
        if done != after:
            self.pending.append(done)
