"""Policies that interleave a stage's passes with data-parallel communication: replicated, ZeRO-1/2 or fully sharded.

Sharded parameters: gathered block by block ahead of use, gradients reduce-scattered (ZeRO-3, FSDP, HSDP, MiCS, ZeRO++).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from windtunnel.base.arrays import Bools, Int64s
from windtunnel.predict.category import Task
from windtunnel.predict.program import demands
from windtunnel.predict.program.demands import Moment, Quantity, at, gathered_elements, only_at
from windtunnel.predict.program.offload import OffloadCopies
from windtunnel.predict.program.recorded import PassGroup
from windtunnel.predict.program.replicated import Replicated
from windtunnel.predict.program.shards import WEIGHTS, gather, held_parameters, label_of, reduce, shares, template_of
from windtunnel.predict.program.stage import HOST, REDUCE, Stage
from windtunnel.workload.passes.fsdp import blocks_ahead, persistent
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

    def group_passes(self, actions: Int64s, stopped: Bools) -> list[PassGroup] | None:
        """The actions [n] that stop in groups of equal ones; None if they can only be run one by one."""

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
        flat = [b for b, times in self.chunks[action.chunk].blocks for _ in range(times)]
        forward = action.direction is Pass.FORWARD
        if not forward:
            flat.reverse()
        if not flat:
            return self.stage.run(self.pass_template(action), label_of(action), waits)
        gathers = bool(self.gathers[action.direction])
        needed: list[int | None] = []
        last = -1
        for place, block in enumerate(flat):
            while gathers and len(needed) < min(len(flat), place + 1 + self.ahead):
                needed.append(self._gather(flat[len(needed)], action))
            template = self.stage.templates.pieces(((block, 1),), action.direction, place == 0)
            position = place if forward else len(flat) - 1 - place
            gathered = needed[place] if gathers else None
            awaited = waits + ((gathered,) if gathered is not None else ()) + self.copies.before(action, position)
            last = self.stage.run(template, label_of(action), awaited)
            self.copies.after(action, position, last)
            self.done.append(last)
            waits = ()
            if action.direction in WEIGHTS:
                self._scatter(block, last, action.micro_batch == self.last[action.chunk])
        return last

    def group_passes(self, actions: Int64s, stopped: Bools) -> list[PassGroup] | None:
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

    def _gather(self, block: int, action: Action) -> int | None:
        """Gather a block's parameters. Only blocks gathered ahead and the block in use may be alive, so the gather waits for the
        computation before the next one."""
        label = (Task.GATHER, action.micro_batch, action.chunk)
        of = self.stage.workload.blocks[block]
        size = gathered_elements(self.stage.workload.job, of), of.expert_parameters
        if self.copies.gathers_in_switch:
            return self.copies.load_gathered(size, tuple(self.done[-1:]))
        fetched = self.copies.fetch_parameters(size, tuple(self.done[-2:-1]))  # one block ahead of its gather
        backward = action.direction is not Pass.FORWARD
        waits = (*self.done[-1:], *fetched)
        parts = shares(self.stage, block) * (2 if backward and self._gathers_again(block) else 1)
        amounts = {Quantity.GATHERED: size[0], Quantity.EXPERTS: size[1]}
        gathered = gather(self.stage, label, self.gathers[action.direction], amounts, waits, parts=parts)
        return gathered if gathered is not None or not fetched else fetched[-1]

    def _gathers_again(self, block: int) -> bool:
        """Whether recompute and backward gather a block separately: DeepSpeed frees parameters beyond its limit of live ones."""
        most, of = self.stage.workload.job.runtime.live_parameters, self.stage.workload.blocks[block]
        return of.working > 0.0 and most is not None and of.parameters > most

    def _scatter(self, block: int, after: int, last: bool) -> None:
        rows = self.last_reductions if last else self.reductions
        if not rows:
            return
        size = held_parameters(self.stage, ((block, 1),))
        if self.copies.reduces_in_switch:
            self.pending.append(self.copies.store_reduced(size, after))
            return
        reduced = reduce(self.stage, REDUCE, rows, size, (after,), shares(self.stage, block))
        if reduced is not None:
            self.pending.append(reduced)
        self.copies.send_gradients(size, after if reduced is None else reduced)
