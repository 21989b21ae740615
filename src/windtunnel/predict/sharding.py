"""How a stage's passes and its data-parallel communication interleave: replicated, ZeRO-1/2 or fully sharded."""

from __future__ import annotations

from typing import Protocol

from windtunnel.predict.category import Category
from windtunnel.predict.stage import HOST, PASSES, REDUCE, Kind, Label, Stage
from windtunnel.workload import Axis, Comm, Stream
from windtunnel.workload.schedules import Action, Order, Pass

Pieces = tuple[tuple[int, int], ...]
Held = tuple[float, float]
"""Elements on a GPU: of all parameters but experts', and of experts', which other ranks share."""
WEIGHTS = (Pass.BACKWARD, Pass.WEIGHT_GRADIENT)
"""Passes that leave gradients of parameters behind."""


class Sharding(Protocol):
    """Runs passes and, at the end of the step, combines gradients."""

    whole_passes: bool
    """Whether every pass of the step is one run of `pass_template`, so that all can be appended at once."""

    def pass_template(self, action: Action, beside: Action | None = None) -> int:
        """Template of a whole pass of a virtual stage, or of a forward pass and the backward pass `beside` it."""

    def run(self, turn: Order, waits: tuple[int, ...]) -> int:
        """Append one pass, or a forward pass and the backward pass beside it; returns the instance that transfers wait for."""

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


def whole(stage: Stage, action: Action, beside: Action | None) -> int:
    """Template of `action`, or of it and the one `beside` it."""
    chunks = stage.workload.stages[stage.index]
    if beside is not None:
        return stage.templates.pair(chunks[action.chunk].blocks, chunks[beside.chunk].blocks)
    return stage.templates.pieces(chunks[action.chunk].blocks, action.direction, True)


def label_of(action: Action) -> Label:
    """What a pass by itself is called."""
    return int(PASSES[action.direction]), action.micro_batch, action.chunk


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
        self.empty = [not chunk.blocks for chunk in self.chunks]
        self.pending: list[int] = []
        self.whole_passes = not (self.overlap_gather or self.overlap_reduce or self.partitions)
        actions = () if self.whole_passes else stage.workload.schedule[stage.index]
        self.last = {a.chunk: a.micro_batch for a in actions if a.direction in WEIGHTS}  # by chunk: whose gradients come last
        self.first = {a.chunk: a.micro_batch for a in reversed(actions) if a.direction is Pass.FORWARD}
        self.gathers: dict[tuple[int, int], tuple[int, ...]] = {}
        if self.overlap_gather:
            for chunk in (c for c, empty in enumerate(self.empty) if not empty):
                for group, pieces in enumerate(self._groups(chunk, Pass.FORWARD)):
                    last = gather(stage, (Kind.GATHER, -1, chunk), held(stage, pieces), stage.templates.weight_width, ())
                    self.gathers[chunk, group] = () if last is None else (last,)

    def run(self, turn: Order, waits: tuple[int, ...]) -> int:
        """A pair in which parameters are gathered or gradients combined runs one after the other."""
        if not any(self._stops(action) for action in turn):
            beside = turn[1] if len(turn) > 1 else None
            kind, *names = label_of(turn[0])
            label = (int(Kind.FORWARD_AND_BACKWARD) if beside else kind, names[0], names[1])
            return self.stage.run(self.pass_template(turn[0], beside), label, waits)
        last = -1
        for action in turn:
            last, waits = self._in_groups(action, waits), ()
        return last

    def _stops(self, action: Action) -> bool:
        return self._gathers(action) or self._combines(action)

    def _gathers(self, action: Action) -> bool:
        if not self.overlap_gather or action.direction is not Pass.FORWARD or self.empty[action.chunk]:
            return False
        return action.micro_batch == self.first[action.chunk]

    def _combines(self, action: Action) -> bool:
        last = self.overlap_reduce and action.micro_batch == self.last[action.chunk]
        return action.direction in WEIGHTS and (self.partitions or last) and not self.empty[action.chunk]

    def _in_groups(self, action: Action, waits: tuple[int, ...]) -> int:
        stage, direction, chunk = self.stage, action.direction, action.chunk
        last = -1
        for group, pieces in enumerate(self._groups(chunk, direction)):
            gathered = self.gathers[chunk, group] if self._gathers(action) else ()
            last = stage.run(stage.templates.pieces(pieces, direction, group == 0), label_of(action), waits + gathered)
            waits = ()
            if self._combines(action):
                self.pending.append(self._combine(held(stage, pieces), (last,), chunk))
        return last

    def pass_template(self, action: Action, beside: Action | None = None) -> int:
        return whole(self.stage, action, beside)

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
        if direction is not Pass.FORWARD:
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

    def run(self, turn: Order, waits: tuple[int, ...]) -> int:
        """A pair runs one after the other: both gather, and no more than two blocks may be gathered at once."""
        last = -1
        for action in turn:
            last, waits = self._run(action, waits), ()
        return last

    def _run(self, action: Action, waits: tuple[int, ...]) -> int:
        flat = [b for b, times in self.chunks[action.chunk].blocks for _ in range(times)]
        forward, weight = action.direction is Pass.FORWARD, action.direction is Pass.WEIGHT_GRADIENT
        if not forward:
            flat.reverse()
        if not flat:
            return self.stage.run(self.pass_template(action), label_of(action), waits)
        gather = forward or self.reshard and not weight  # the weight gradient needs no weights
        ahead = self._gather(flat[0], action) if gather else None
        last = -1
        for place, block in enumerate(flat):
            needed = ahead
            if gather and place + 1 < len(flat):
                ahead = self._gather(flat[place + 1], action)
            template = self.stage.templates.pieces(((block, 1),), action.direction, place == 0)
            last = self.stage.run(template, label_of(action), waits + ((needed,) if needed is not None else ()))
            self.done.append(last)
            waits = ()
            if action.direction in WEIGHTS:
                self._scatter(block, last)
        return last

    def pass_template(self, action: Action, beside: Action | None = None) -> int:
        return whole(self.stage, action, beside)

    def reduce(self, last: int) -> tuple[int, ...]:
        return (last, self.pending[-1]) if self.pending else (last,)

    def finish(self, update: int) -> None:
        """Nothing: parameters are gathered when they are used."""

    def _gather(self, block: int, action: Action) -> int | None:
        """Gather a block's parameters; two gathered blocks may be alive, so it waits for the computation before the last."""
        label = (Kind.GATHER, action.micro_batch, action.chunk)
        size = held(self.stage, ((block, 1),))
        size = size[0] + self.stage.workload.blocks[block].frozen, size[1]
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
