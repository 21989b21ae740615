"""Policies that interleave a stage's passes with data-parallel communication: replicated, ZeRO-1/2 or fully sharded.

Sharded parameters: gathered block by block ahead of use, gradients reduce-scattered (ZeRO-3, FSDP, HSDP, MiCS, ZeRO++).

Replicated parameters: gradients are reduced once a step or after every pass (DDP, ZeRO-1 and ZeRO-2).

Records what a pass appends to a stage.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

import numpy as np

from windtunnel.base.arrays import Bools, Int64s
from windtunnel.engine import GrowingTable, RankBuilder
from windtunnel.predict.category import Category, Task
from windtunnel.predict.program import demands
from windtunnel.predict.program.demands import Demand, Moment, Quantity, at, gathered_elements, only_at
from windtunnel.predict.program.offload import OffloadCopies
from windtunnel.predict.program.recorded import RecordedPass, StoppedPass, gather_codes
from windtunnel.predict.program.shards import (
    OF_WEIGHTS,
    WEIGHTS,
    Held,
    Pieces,
    amounts_of,
    gather,
    gather_calls,
    held_parameters,
    label_of,
    reduce,
    sharded_tensors,
    shares,
    template_of,
)
from windtunnel.predict.program.stage import HOST, REDUCE, Stage
from windtunnel.workload import Axis
from windtunnel.workload.passes.fsdp import blocks_ahead, gathered_for_backward, persistent
from windtunnel.workload.schedules import Action, Order, Pass


class Sharding(Protocol):
    """Appends passes and, at the end of the step, gradient reductions."""

    copies: OffloadCopies
    by_block: bool
    """Whether every pass is run block by block."""

    pending: list[int]
    """Reductions inside passes that the update waits for."""

    def stops(self, actions: Int64s) -> Bools:
        """[n] whether each action of `schedules.table` is more than one run of `pass_template`: calls or copies interrupt it."""

    def record_stopped(self, actions: Int64s, stopped: Bools) -> list[StoppedPass] | None:
        """The actions [n] that stop, in their order; None if they can only be run one by one."""

    def pass_template(self, action: Action, beside: Action | None = None) -> int:
        """Template of a whole pass of a virtual stage, or of a forward pass and the backward pass `beside` it."""

    def run(self, turn: Order, waits: tuple[int, ...]) -> int:
        """Append one pass that `stops`, or a forward pass and the backward pass beside it of which one does; returns the instance
        that transfers wait for."""

    def reduce(self, last: int) -> tuple[int, ...]:
        """Append the remaining gradient reductions after pass `last`; returns what the update waits for."""

    def finish(self, update: int) -> None:
        """Append the calls after the update."""


def sharding_for(stage: Stage) -> Sharding:
    """The policy of the plan and the runtime."""
    job = stage.workload.job
    gathers = demands.gathers_in_passes(job, job.runtime.overlap_param_gather)
    return FullySharded(stage) if gathers else Replicated(stage)


class FullySharded:
    """Gathers parameters block by block, some blocks ahead of use. Gradients are reduce-scattered in every backward pass, or
    in the last one if they accumulate unsharded. MiCS all-reduces shards between replicas in the last one."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.copies = stage, OffloadCopies(stage)
        self.by_block = True
        rows = only_at(stage.demands.gathers, Moment.BEFORE_FORWARD, Moment.BEFORE_BACKWARD, Moment.AFTER_UPDATE)
        self.gathers = {
            Pass.FORWARD: at(rows, Moment.BEFORE_FORWARD),
            Pass.BACKWARD: (before_backward := at(rows, Moment.BEFORE_BACKWARD)),
            Pass.INPUT_GRADIENT: before_backward,
            Pass.WEIGHT_GRADIENT: (),
        }
        self.last_reductions = only_at(stage.demands.reductions, Moment.AFTER_BACKWARD, Moment.AFTER_LAST_BACKWARD)
        self.reductions = at(self.last_reductions, Moment.AFTER_BACKWARD)
        self.ahead = blocks_ahead(stage.workload, stage.index)
        self.done: list[int] = []  # computation of blocks, in program order
        self.pending: list[int] = []
        self.chunks = stage.workload.stages[stage.index]
        self.flat = [[b for b, times in chunk.blocks for _ in range(times)] for chunk in self.chunks]
        joined = stage.workload.job.runtime.root_unit == "joined" and stage.workload.job.runtime.reuse_distance is None
        self.root = stage.workload.root if joined else ()
        self.again = [gathered_for_backward(stage.workload, blocks) for blocks in self.flat]
        self.units = [[self._unit(blocks, position) for position in range(len(blocks))] for blocks in self.flat]
        self.tensors = [[sharded_tensors(stage, unit) for unit in units] for units in self.units]
        self.last = {a.chunk: a.micro_batch for a in stage.workload.schedule[stage.index] if a.direction in WEIGHTS}

    def stops(self, actions: Int64s) -> Bools:
        return np.ones(len(actions), np.bool_)

    def run(self, turn: Order, waits: tuple[int, ...]) -> int:
        """Passes of a pair run one after the other, because both gather and the number of gathered blocks is limited."""
        last = -1
        for action in turn:
            last, waits = self._run(action, waits), ()
        return last

    def _run(self, action: Action, waits: tuple[int, ...]) -> int:
        flat = self.flat[action.chunk]
        forward = action.direction is Pass.FORWARD
        if not flat:
            return self.stage.run(self.pass_template(action), label_of(action), waits)
        gathers = bool(self.gathers[action.direction])
        needed: list[int | None] = []
        last = -1
        positions = range(len(flat)) if forward else range(len(flat) - 1, -1, -1)
        for place, position in enumerate(positions):
            while gathers and len(needed) < min(len(flat), place + 1 + self.ahead):
                needed.append(self._gather(positions[len(needed)], action))
            template = self.stage.templates.pieces(((flat[position], 1),), action.direction, place == 0)
            gathered = needed[place] if gathers else None
            awaited = waits + ((gathered,) if gathered is not None else ()) + self.copies.before(action, position)
            last = self.stage.run(template, label_of(action), awaited)
            self.copies.after(action, position, last)
            self.done.append(last)
            waits = ()
            if action.direction in WEIGHTS:
                self._scatter(action.chunk, position, last, action.micro_batch == self.last[action.chunk])
        return last

    def record_stopped(self, actions: Int64s, stopped: Bools) -> list[StoppedPass] | None:
        return None

    def pass_template(self, action: Action, beside: Action | None = None) -> int:
        return template_of(self.stage, action, beside)

    def reduce(self, last: int) -> tuple[int, ...]:
        return (last, self.pending[-1]) if self.pending else (last,)

    def finish(self, update: int) -> None:
        """Gathers parameters when they are used, except unsharded ones."""
        blocks = self.stage.workload.blocks
        small = sum(persistent(self.stage.workload.job, blocks[b]) * times for chunk in self.chunks for b, times in chunk.blocks)
        if small:
            rows = at(self.stage.demands.gathers, Moment.AFTER_UPDATE)
            gathered = gather(self.stage, (Task.GATHER, -1, -1), rows, {Quantity.PERSISTENT: small}, (update,))
            if gathered is not None:
                self.stage.run(self.stage.templates.nothing(0.0), HOST, (gathered,))

    def _unit(self, blocks: list[int], position: int) -> list[int]:
        """The blocks whose parameters are gathered and reduced with the one at `position` of a virtual stage's: that one, the root
        unit at the first of its blocks, or none at the others."""
        if blocks[position] not in self.root:
            return [blocks[position]]
        unit = [place for place, block in enumerate(blocks) if block in self.root]
        return [blocks[place] for place in unit] if position == unit[0] else []

    def _gather(self, position: int, action: Action) -> int | None:
        """Gather a unit's parameters. Only blocks gathered ahead and the block in use may be alive, so the gather waits for the
        computation before the next one."""
        label = (Task.GATHER, action.micro_batch, action.chunk)
        backward = action.direction is not Pass.FORWARD
        unit = self.units[action.chunk][position]
        tensors = whole = self.tensors[action.chunk][position]
        if backward:
            tensors = self.again[action.chunk][position]
        if not tensors:
            return None
        share = sum(tensors) / sum(whole)
        held = [self.stage.workload.blocks[block] for block in unit]
        size = share * sum(gathered_elements(self.stage.workload.job, of) for of in held), sum(of.expert_parameters for of in held)
        if self.copies.gathers_in_switch:
            return self.copies.load_gathered(size, tuple(self.done[-1:]))
        fetched = self.copies.fetch_parameters(size, tuple(self.done[-2:-1]))  # one block ahead of its gather
        waits = (*self.done[-1:], *fetched)
        parts = shares(self.stage, tensors) * (2 if backward and self._gathers_again(unit[0]) else 1)
        amounts = {Quantity.GATHERED: size[0], Quantity.AGAIN: size[0], Quantity.EXPERTS: size[1]}
        gathered = gather(self.stage, label, self.gathers[action.direction], amounts, waits, parts=parts)
        return gathered if gathered is not None or not fetched else fetched[-1]

    def _gathers_again(self, block: int) -> bool:
        """Whether recompute and backward gather a block separately: DeepSpeed frees parameters beyond its limit of live ones."""
        most, of = self.stage.workload.job.runtime.live_parameters, self.stage.workload.blocks[block]
        return of.working > 0.0 and most is not None and of.parameters > most

    def _scatter(self, chunk: int, position: int, after: int, last: bool) -> None:
        rows, unit = self.last_reductions if last else self.reductions, self.units[chunk][position]
        if not rows or not unit:
            return
        size = held_parameters(self.stage, tuple((block, 1) for block in unit))
        if self.copies.reduces_in_switch:
            self.pending.append(self.copies.store_reduced(size, after))
            return
        reduced = reduce(self.stage, REDUCE, rows, size, (after,), shares(self.stage, self.tensors[chunk][position]))
        if reduced is not None:
            self.pending.append(reduced)
        self.copies.send_gradients(size, after if reduced is None else reduced)


_WEIGHTS = frozenset(map(int, WEIGHTS))
_FORWARD = int(Pass.FORWARD)


class Replicated:
    """Every rank holds all parameters of its stage; gradients are reduced once a step, bucket by bucket during the last backward
    pass or after it."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.copies = stage, OffloadCopies(stage)
        self.chunks = stage.workload.stages[stage.index]
        self.whole: Held = (
            stage.workload.stage_parameters[stage.index] - stage.workload.stage_experts[stage.index],
            stage.workload.stage_experts[stage.index],
        )
        moment = stage.demands.reductions[0].moment
        moments = Moment.AFTER_BACKWARD, Moment.AFTER_LAST_BACKWARD, Moment.AFTER_PASSES
        self.reductions = only_at(only_at(stage.demands.reductions, moment), *moments)
        gathers = only_at(stage.demands.gathers, Moment.BEFORE_FIRST_FORWARD, Moment.AFTER_UPDATE)
        self.several = any(  # whether there are other ranks with the same parameters
            row.axis is not Axis.NONE and (row.of is not Quantity.EXPERTS or self.whole[1] > 0.0) for row in self.reductions
        )
        self.overlap_reduce = moment is Moment.AFTER_LAST_BACKWARD and self.several
        self.partitions = moment is Moment.AFTER_BACKWARD and (self.several or self.copies.leaves)
        self.gathers_first, self.gathers_last = at(gathers, Moment.BEFORE_FIRST_FORWARD), at(gathers, Moment.AFTER_UPDATE)
        self.overlap_gather = bool(self.gathers_first) and self.several
        self.empty = [not chunk.blocks for chunk in self.chunks]
        self.pending: list[int] = []
        self.by_block = self.partitions or self.copies.of_layers
        self.interrupted = self.overlap_gather or self.overlap_reduce or self.by_block
        _, _, self.first, self.last = stage.workload.pass_table(stage.index)  # by chunk
        self.gathers: dict[int, list[tuple[int, ...]]] = {}  # by chunk: of each group, what its first forward pass waits for
        if self.overlap_gather:
            for chunk in (c for c, empty in enumerate(self.empty) if not empty):
                sizes, calls = self._first_gathers(chunk)
                posted = iter(stage.comms((int(Task.GATHER), -1, chunk), calls, Category.PARAMETER_GATHER))
                self.gathers[chunk] = [tuple(islice(posted, size))[-1:] for size in sizes]

    def _first_gathers(self, chunk: int) -> tuple[list[int], list[tuple[Demand, float]]]:
        """The calls that gather parameters of a virtual stage before its first pass, and their bytes; how many there are by group
        of its blocks."""
        known, blocks = self.stage.templates.gathers, self.chunks[chunk].blocks
        if blocks not in known:
            held = (held_parameters(self.stage, pieces) for pieces in self._groups(chunk, Pass.FORWARD))
            calls = [gather_calls(self.gathers_first, amounts_of(size)) for size in held]
            known[blocks] = [len(of) for of in calls], [call for of in calls for call in of]
        return known[blocks]

    def run(self, turn: Order, waits: tuple[int, ...]) -> int:
        """Runs the passes of a pair one after the other, since parameters are gathered or gradients reduced during them."""
        last = -1
        for action in turn:
            last, waits = self._in_groups(action, waits), ()
        return last

    def stops(self, actions: Int64s) -> Bools:
        if not self.interrupted:
            return np.zeros(len(actions), np.bool_)
        direction, chunk, micro_batch, _ = actions.T
        whole = np.array(self.empty)[chunk]
        forward, weights = direction == _FORWARD, OF_WEIGHTS[direction]
        gathers = forward & (self.first[chunk] == micro_batch) if self.overlap_gather else np.zeros_like(whole)
        last = self.last[chunk] == micro_batch if self.overlap_reduce else np.zeros_like(whole)
        stopped: Bools = ~whole & (gathers | weights & (last | self.partitions) | self.copies.of_layers)
        return stopped

    def _gathers(self, action: Action) -> bool:
        if not self.overlap_gather or action.direction is not Pass.FORWARD or self.empty[action.chunk]:
            return False
        return bool(action.micro_batch == self.first[action.chunk])

    def _combines(self, direction: int, chunk: int, micro_batch: int) -> bool:
        if direction not in _WEIGHTS or self.empty[chunk]:
            return False
        return self.partitions or self.overlap_reduce and micro_batch == int(self.last[chunk])

    def _in_groups(self, action: Action, waits: tuple[int, ...]) -> int:
        stage, direction, chunk = self.stage, action.direction, action.chunk
        step = 1 if direction is Pass.FORWARD else -1
        at = 0 if step > 0 else sum(times for _, times in self.chunks[chunk].blocks) - 1
        last, first = -1, True
        for group, pieces in enumerate(self._groups(chunk, direction)):
            gathered = self.gathers[chunk][group] if self._gathers(action) else ()
            for part in [(piece,) for piece in pieces[::step]] if self.copies.of_layers else [pieces]:
                awaited = waits + gathered + self.copies.before(action, at)
                last = stage.run(stage.templates.pieces(part, direction, first), label_of(action), awaited)
                self.copies.after(action, at, last)
                waits, gathered, first, at = (), (), False, at + step
            if (
                self._combines(direction, chunk, action.micro_batch)
                and (call := self._combine(held_parameters(stage, pieces), (last,), chunk, self._calls(pieces))) != last
            ):
                self.pending.append(call)  # blocks without parameters have no call
        return last

    def record_stopped(self, actions: Int64s, stopped: Bools) -> list[StoppedPass] | None:
        stage = self.stage
        if stage.apart is not None or stage.live is not None or self.copies.active:
            return None
        places = np.flatnonzero(stopped)
        direction, chunk, micro_batch, _ = actions[places].T
        opens, closes = (direction == _FORWARD) & (micro_batch == self.first[chunk]), micro_batch == self.last[chunk]
        kinds = ((direction * len(self.chunks) + chunk) * 2 + opens) * 2 + closes
        known: dict[int, tuple[RecordedPass, list[int]]] = {}
        for way, virtual, number, kind in zip(
            direction.tolist(), chunk.tolist(), micro_batch.tolist(), kinds.tolist(), strict=True
        ):
            if kind not in known:
                gathers = self.gathers.get(virtual, []) if kind & 2 else []
                key = self.chunks[virtual].blocks, way, tuple(map(len, gathers)), self._combines(way, virtual, number)
                if key not in stage.templates.recorded:
                    stage.templates.recorded[key] = self._record(Action(Pass(way), virtual, number), gather_codes(key[2]))
                known[kind] = stage.templates.recorded[key], [call for calls in gathers for call in calls]
        return [StoppedPass(place, *known[kind]) for place, kind in zip(places.tolist(), kinds.tolist(), strict=True)]

    def _record(self, action: Action, gathers: list[tuple[int, ...]]) -> RecordedPass:
        kept = self.gathers, self.pending
        self.gathers = {action.chunk: gathers}
        pending: list[int] = []
        self.pending = pending

        def run() -> tuple[int, list[int]]:
            return self._in_groups(action, ()), pending

        try:
            return record(self.stage, action.micro_batch, run)
        finally:
            self.gathers, self.pending = kept

    def pass_template(self, action: Action, beside: Action | None = None) -> int:
        return template_of(self.stage, action, beside)

    def reduce(self, last: int) -> tuple[int, ...]:
        if self.pending:
            return (last, self.pending[-1])
        return (self._combine(self.whole, (last,), -1),) if self.several or self.copies.offload.updated_away else (last,)

    def finish(self, update: int) -> None:
        bucket = self.stage.workload.job.runtime.gather_bucket or math.inf
        gathered = gather(self.stage, (Task.GATHER, -1, -1), self.gathers_last, amounts_of(self.whole), (update,), bucket)
        if gathered is not None:  # exposed: the step ends with it
            self.stage.run(self.stage.templates.nothing(self._slices()), HOST, (gathered,))

    def _slices(self) -> float:
        """Host seconds to cut the gathered parameters' list into slices, one per tensor and rank, and to copy each back."""
        workload = self.stage.workload
        blocks = [(workload.blocks[block], times) for chunk in self.chunks for block, times in chunk.blocks]
        tensors = sum(len(block.tensors.trained) * times for block, times in blocks)
        return workload.job.runtime.host.slice * tensors * workload.job.shard_ranks

    def _combine(self, size: Held, waits: tuple[int, ...], chunk: int, parts: tuple[float, ...] = (1.0,)) -> int:
        """Reduces gradients, those outside of experts in calls of these `parts`; returns the last call, or the waits if there is
        no call."""
        reduced = reduce(self.stage, (Task.REDUCE, -1, chunk), self.reductions, size, waits, parts)
        reduced_at = waits[-1] if reduced is None else reduced
        self.copies.send_gradients(size, reduced_at)
        return reduced_at

    def _calls(self, pieces: Pieces) -> tuple[float, ...]:
        """Shares of the calls that reduce these blocks: one, or one whenever whole tensors fill a bucket, as PyTorch's DDP does."""
        runtime = self.stage.workload.job.runtime
        if runtime.bucket_calls == "block":
            return (1.0,)
        width, blocks = self.stage.demands.widths.gradient, self.stage.workload.blocks
        tensors = [size for block, times in pieces[::-1] for size in blocks[block].tensors.trained[::-1] * times]
        calls, filling = [], 0.0
        for elements in tensors:
            filling += elements
            if filling * width >= runtime.bucket:
                calls.append(filling)
                filling = 0.0
        return tuple(size / sum(tensors) for size in (*calls, *([filling] if filling else []))) or (1.0,)

    def _groups(self, chunk: int, direction: Pass) -> list[Pieces]:
        """The blocks of a virtual stage in model order (backward: reversed), split where a bucket is full."""
        held, forward = self.chunks[chunk].blocks, direction is Pass.FORWARD
        known = self.stage.templates.groups
        if (held, forward) not in known:
            known[held, forward] = self._group_blocks(chunk, direction)
        return known[held, forward]

    def _group_blocks(self, chunk: int, direction: Pass) -> list[Pieces]:
        blocks = self.stage.workload.blocks
        flat = [b for b, times in self.chunks[chunk].blocks for _ in range(times)]
        if direction is not Pass.FORWARD:
            flat.reverse()
        width = self.stage.demands.widths.gradient
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


def record(stage: Stage, micro_batch: int, run: Callable[[], tuple[int, Sequence[int]]]) -> RecordedPass:
    """What `run` appends to the stage: a pass of this micro batch among equal ranks. It returns the pass's last run and the calls
    that the update waits for. The stage stays as it was."""
    kept = stage.rank, stage.labels, stage.calls, stage.collectives
    stage.rank, stage.labels, stage.calls, stage.collectives = RankBuilder(), GrowingTable(3), Counter(), []
    try:
        last, pending = run()
        rows, labels, waits = stage.rank.rows.table(), stage.labels.table(), stage.rank.waits.table()[:, 0]
        calls = tuple(stage.collectives)
    finally:
        stage.rank, stage.labels, stage.calls, stage.collectives = kept
    of_pass = (labels[:, 1] == micro_batch).astype(np.int64)
    return RecordedPass(rows[:, 0], rows[:, 3], waits, labels[:, 0], of_pass, calls, last, tuple(pending))
