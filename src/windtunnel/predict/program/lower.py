"""From workload and costs to the engine's program, with one rank per pipeline stage; equal ranks of other axes are folded.

A stage's step in program order: gathers of sharded parameters, the passes of its schedule with their transfers, gradient
reduction, update, parameter gather. The runtime decides which of these may overlap; the engine computes how far they do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Bools, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import PlanError
from windtunnel.engine import Program, ProgramBuilder
from windtunnel.predict.category import Category, Task
from windtunnel.predict.price.calls import CallKey
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.program.calls import NetworkCalls
from windtunnel.predict.program.demands import replicated_reduction, stage_reductions
from windtunnel.predict.program.pipeline import PassColumns, PipelineTransfers
from windtunnel.predict.program.recorded import StoppedPass
from windtunnel.predict.program.sharding import Sharding, sharding_for
from windtunnel.predict.program.stage import HOST, PASSES, REDUCE, UPDATE, Stage
from windtunnel.predict.program.tax import compute_tax
from windtunnel.predict.program.templates import Templates
from windtunnel.spec.job import Job
from windtunnel.workload import Axis, Workload
from windtunnel.workload.passes.optimizer import shard_elements
from windtunnel.workload.schedules import Action, Order

MOST_INSTANCES = 2_000_000
"""Limit of passes, transfers and calls in a step's program over all stages: about 20 s and 2 GB."""

MOST_OPERATORS = 200_000_000
"""Limit of operators that the engine executes in a step: about 10 s and 4 GB."""

SENDS_CROSS = ("zb-h2", "dualpipe")
"""Schedules in which neighbours send to each other at the same time: a host that waits for its device between the posts of both
would deadlock."""


@dataclass(frozen=True)
class Lowered:
    """The engine's program and the meaning of its parts.

    `labels[s]` [I, 3] name stage s's instances (`stage.Label`); `calls[s]` counts its communication calls between passes; `rows[t]`
    are the workload's rows of template t (-1 for a row that only waits; None for waits and transfers); `categories` [R]
    are the rows' categories; `passes[s]` is `schedules.table` of the stage.
    """

    program: Program
    labels: tuple[npt.NDArray[np.int32], ...]
    calls: tuple[Counter[CallKey], ...]
    rows: tuple[npt.NDArray[np.int64] | None, ...]
    categories: npt.NDArray[np.int32]
    passes: tuple[Int64s, ...]

    pipelines: tuple[str, ...] = ("",)
    """Names of the groups of replicas, in the order of the program's ranks; one if all replicas are equal."""

    @property
    def stages(self) -> int:
        """Ranks of the first group, one per pipeline stage; reports show these."""
        return len(self.labels) // len(self.pipelines)

    @cached_property
    def partners(self) -> tuple[dict[tuple[int, int], tuple[int, int]], ...]:
        """By stage: (virtual stage, micro batch) of a forward pass -> that of the backward pass beside it."""
        return tuple(map(_partners, self.passes))


def lower(workload: Workload, costs: Costs, live: NetworkCalls | None = None) -> Lowered:
    """The program of one step of every stage; with `live`, a network engine determines the end of its calls."""
    return finish_program(*write_stages(workload, costs, live))


def write_stages(workload: Workload, costs: Costs, live: NetworkCalls | None = None) -> tuple[ProgramBuilder, list[Stage]]:
    """The stages of `lower`, and the builder that holds their program."""
    job = workload.job
    builder = ProgramBuilder(categories=len(Category), live_key=None if live is None else live.live_key)
    templates = Templates(workload, costs, builder, live=live)
    transfers = PipelineTransfers(workload, costs, live)
    stages = [Stage(index, builder.rank(), templates, workload, costs, live) for index in range(job.plan.pp)]
    write_steps(stages, transfers)
    return builder, stages


def finish_program(builder: ProgramBuilder, stages: Sequence[Stage], pipelines: tuple[str, ...] = ("",)) -> Lowered:
    """The program of `stages`, whose templates share their rows."""
    templates = stages[0].templates
    program = builder.build()
    _check_operators(stages[0].workload.job, program)
    for rank, stage in enumerate(stages):
        if stage.live is not None:
            stage.live.bind_inside(program, rank, stage.index, stage.only)
    return Lowered(
        replace(program, compute_tax=compute_tax(program, stages)),
        tuple(s.labels.table() for s in stages),
        tuple(s.calls for s in stages),
        tuple(templates.rows),
        templates.category,
        tuple(s.workload.passes(s.index) for s in stages),
        pipelines,
    )


def _check_operators(job: Job, program: Program) -> None:
    """Raises PlanError if the engine would execute more than MOST_OPERATORS."""
    longest = int(np.diff(program.template_start).max(initial=0)) * int(program.times.max(initial=0))
    operators = longest * len(program.template)
    if operators > MOST_OPERATORS:
        operators = count_executed(program, program.ranks)
    if operators > MOST_OPERATORS:
        most = max(1, job.micro_batches * MOST_OPERATORS // operators)
        raise PlanError(
            "plan.global_batch",
            job.plan.global_batch,
            f"at most about {most:,} micro batches a step of this model",
            f"It has {job.micro_batches:,}: raise plan.micro_batch, or write "
            f"--set plan.global_batch={most * job.plan.micro_batch * job.dp}.",
        )


def count_executed(program: Program, ranks: int) -> int:
    """Operators that the first `ranks` of a program execute."""
    rows = slice(0, int(program.rank_start[ranks]))
    size = np.append(np.diff(program.template_start), 0)  # -1, a rendezvous, is the last
    return int((size[program.template[rows]] * program.times[rows]).sum())


def _partners(passes: Int64s) -> dict[tuple[int, int], tuple[int, int]]:
    first = np.flatnonzero(passes[:, 3])
    keys, others = (map(tuple, passes[at, 1:3].tolist()) for at in (first, first + 1))
    return dict(zip(keys, others, strict=True))


def write_steps(stages: Sequence[Stage], transfers: PipelineTransfers) -> None:
    """Appends the steps of stages that share their templates."""
    shardings = []
    for stage in stages:
        _wait_for_data(stage)
        shardings.append(sharding_for(stage))
        _check_size(stage, shardings[-1])
    for stage, sharding, last in zip(stages, shardings, _append_passes(stages, transfers, shardings), strict=True):
        _read_back(stage)
        transfers.count(stage)
        _finish(stage, sharding, sharding.reduce(last))


def _check_size(stage: Stage, sharding: Sharding) -> None:
    """Raises PlanError if a step would have more than about MOST_INSTANCES instances, each a pass or a call."""
    job, chunks = stage.workload.job, stage.workload.stages[stage.index]
    blocks = sum(times for chunk in chunks for _, times in chunk.blocks) / len(chunks) if sharding.by_block else 0.0
    passes = len(stage.workload.passes(stage.index)) * job.plan.pp
    per_pass = 3.0 + 3.0 * blocks
    if passes * per_pass > MOST_INSTANCES:
        most = max(1, int(job.micro_batches * MOST_INSTANCES / (passes * per_pass)))
        raise PlanError(
            "plan.global_batch",
            job.plan.global_batch,
            f"at most about {most:,} micro batches a step of this plan, which runs {per_pass:,.0f} passes and calls for each",
            f"It has {job.micro_batches:,}: raise plan.micro_batch, or write "
            f"--set plan.global_batch={most * job.plan.micro_batch * job.dp}.",
        )


class _Turns(NamedTuple):
    """The turns of a stage's schedule: each is a pass, or a pair.

    `actions` [n, 4] is `schedules.table`; `first` [turns]: its first action; `interrupted` [turns]: whether calls or copies
    interrupt it; `whole` [n]: the contrary, by action. `recorded`: interrupted passes that are written as columns; None: all of
    them are written one by one.
    """

    stage: Stage
    sharding: Sharding
    order: Order
    actions: Int64s
    first: Int64s
    interrupted: Bools
    whole: Bools
    recorded: list[StoppedPass] | None

    @classmethod
    def of(cls, stage: Stage, sharding: Sharding) -> _Turns:
        order, (actions, first, *_) = stage.workload.schedule[stage.index], stage.workload.pass_table(stage.index)
        interrupted = stopped = sharding.stops(actions)
        if len(first) < len(actions):  # pairs
            interrupted = np.logical_or.reduceat(stopped, first)
            stopped = np.repeat(interrupted, np.diff(np.append(first, len(order))))
        whole = ~stopped
        recorded = None if stage.apart is not None else sharding.record_stopped(actions, stopped)
        return cls(stage, sharding, order, actions, first, interrupted, whole, recorded)


def _append_passes(stages: Sequence[Stage], transfers: PipelineTransfers, shardings: Sequence[Sharding]) -> list[int]:
    """Appends passes: those that calls interrupt one by one if they have to be, all others as columns. Returns each stage's last
    pass."""
    turns = [_Turns.of(stage, sharding) for stage, sharding in zip(stages, shardings, strict=True)]
    if transfers.ahead:
        return [_append_ahead(each.stage, transfers, each.sharding, each.order, each.first.tolist()) for each in turns]
    if all(each.recorded is None and each.interrupted.all() for each in turns):  # nothing for columns
        return [_append_parts(each, transfers, None, 0) for each in turns]
    begins = np.cumsum([0, *(len(each.actions) for each in turns)])
    actions = np.concatenate([each.actions for each in turns])
    owner = np.repeat(np.arange(len(stages)), np.diff(begins))
    recorded = [(at, each.recorded or ()) for at, each in zip(begins.tolist(), turns, strict=False)]
    columns = transfers.columns(stages, owner, actions, _run_templates(turns, owner, actions), recorded)
    lasts, at = [], 0
    for each in turns:
        until = at + len(each.first)
        if each.recorded is None:
            lasts.append(_append_parts(each, transfers, columns, at))
        else:
            lasts.append(columns.append(each.stage, at, until, ())[0])
            each.sharding.pending += columns.book_calls(each.stage, at, until)
        at = until
    return lasts


def _run_templates(turns: Sequence[_Turns], owner: Int64s, actions: Int64s) -> Int64s:
    """[n] template of each action that no call interrupts, -1 for others and for the second of a pair."""
    numbers: dict[object, int] = {}
    chunks = [[numbers.setdefault(chunk.blocks, len(numbers)) for chunk in t.stage.workload.stages[t.stage.index]] for t in turns]
    known = np.array([row + [0] * (max(map(len, chunks)) - len(row)) for row in chunks], np.int64)
    direction, chunk, _, beside = actions.T
    blocks = known[owner, chunk]
    after = np.append(blocks[1:], 0) * beside  # of a pair: the second action's
    kind = ((direction * len(numbers) + blocks) * 2 + beside) * len(numbers) + after
    templates = np.full(len(actions), -1, np.int64)
    opens = np.flatnonzero(np.append(True, beside[:-1] == 0) & np.concatenate([each.whole for each in turns]))
    if not len(opens):
        return templates
    kinds = kind[opens]
    of_kind = np.full(int(kinds.max()) + 1, -1, np.int64)
    of_kind[kinds[::-1]] = opens[::-1]  # the first of each
    begins = np.cumsum([0, *(len(each.actions) for each in turns)])
    for found in np.flatnonzero(of_kind >= 0).tolist():
        place = int(of_kind[found])
        each, at = turns[owner[place]], place - int(begins[owner[place]])
        of_kind[found] = each.sharding.pass_template(each.order[at], each.order[at + 1] if beside[place] else None)
    templates[opens] = of_kind[kinds]
    return templates


def _append_parts(turns: _Turns, transfers: PipelineTransfers, columns: PassColumns | None, offset: int) -> int:
    """Appends passes that calls interrupt one by one, and those between them from the columns, which know the first turn as turn
    `offset`. Returns the last pass."""
    stage, order, first, interrupted = turns.stage, turns.order, turns.first, turns.interrupted
    breaks = np.append(True, interrupted[1:] != interrupted[:-1]) | stage.paused_in(first / len(order))
    last = -1
    sent: tuple[int, ...] = ()
    for begin, end in pairwise([*np.flatnonzero(breaks).tolist(), len(first)]):
        since, until = (int(first[turn]) if turn < len(first) else len(order) for turn in (begin, end))
        stage.pause(since / len(order), until / len(order))
        if columns is not None and turns.whole[since]:
            last, sent = columns.append(stage, offset + begin, offset + end, sent)
        else:
            last, sent = _append_interrupted(stage, transfers, turns.sharding, order[since:until], sent)
    return last


def _append_interrupted(
    stage: Stage, transfers: PipelineTransfers, sharding: Sharding, order: Order, sent: tuple[int, ...]
) -> tuple[int, tuple[int, ...]]:
    """Appends passes with the gathers and reductions inside them, after a turn with the sends `sent`; returns the last pass and its
    sends."""
    last, at = -1, 0
    while at < len(order):
        turn = order[at : at + 1 + order[at].beside_next]
        at += len(turn)
        received = tuple(r for action in turn if (r := transfers.receive(stage, action)) is not None)
        last = sharding.run(turn, received + (sent if transfers.waits else ()))
        sent = tuple(s for action in turn if (s := transfers.send(stage, action, last)) is not None)
    return last, sent


def _append_ahead(stage: Stage, transfers: PipelineTransfers, sharding: Sharding, order: Order, first: list[int]) -> int:
    """Appends passes whose receives are posted ahead of their turn; `first`: action of each turn. Returns the last pass."""
    turns = [order[begin:end] for begin, end in pairwise([*first, len(order)])]
    posts: list[list[tuple[int, Action]]] = [[] for _ in turns]  # before each turn: the turns that need them, and their actions
    for at, turn in enumerate(turns):
        for action in turn:
            posts[transfers.post_turn(stage, action, at)].append((at, action))
    received: list[tuple[int, ...]] = [()] * len(turns)
    last = -1
    sent: tuple[int, ...] = ()
    for at, turn in enumerate(turns):
        stage.pause(first[at] / len(order), (first[at] + len(turn)) / len(order))
        for needed, action in posts[at]:
            if (instance := transfers.receive(stage, action)) is not None:
                received[needed] += (instance,)
        last = sharding.run(turn, received[at] + (sent if transfers.waits else ()))
        sent = tuple(s for action in turn if (s := transfers.send(stage, action, last)) is not None)
    return last


def _finish(stage: Stage, sharding: Sharding, reduced: tuple[int, ...]) -> None:
    """Tied embeddings, gradient norm over all stages, update, parameter gather."""
    job, index, templates = stage.workload.job, stage.index, stage.templates
    plan = job.plan
    if stage.apart is not None:  # book this wait here, and not under the meeting that follows
        stage.run(templates.nothing(0.0), HOST, reduced)
    pieces = [piece for chunk in stage.workload.stages[index] for piece in chunk.blocks]
    replicated = sum(stage.workload.blocks[block].replicated * times for block, times in pieces)
    if replicated:
        call = replicated_reduction(job, stage.demands.widths)
        reduced = (stage.comm(REDUCE, call, call.size(replicated), reduced, Category.GRADIENT_REDUCE),)
    twin, tied = stage_reductions(job, stage.demands.widths, index)
    if twin.axis is not Axis.NONE:
        parameters, experts = stage.workload.stage_parameters[index], stage.workload.stage_experts[index]
        updated = parameters if plan.sharding == "none" else shard_elements(job, parameters, experts)
        reduced = (stage.twin(twin, twin.size(updated), reduced),)
    if tied.axis is not Axis.NONE:
        size = tied.size(job.vocab_elements)
        reduced = (stage.sync(Task.TIED_EMBEDDING, tied, size, 2, reduced, Category.GRADIENT_REDUCE),)
    waits = (stage.run(templates.optimizer(index, after_norm=False), UPDATE, reduced),)
    norm = stage.demands.norm
    if norm.axis is not Axis.NONE:
        waits = (stage.sync(Task.GRADIENT_NORM, norm, norm.size(1.0), plan.pp, waits, Category.STEP_SYNC, host_sync=True),)
    if job.runtime.host.step:
        stage.run(templates.nothing(job.runtime.host.step), HOST)
    update = stage.run(templates.optimizer(index, after_norm=True), UPDATE, waits)
    sharding.finish(sharding.copies.update(update, waits))


def _wait_for_data(stage: Stage) -> None:
    """On the stage of the model's first part the device waits for the step's batch."""
    seconds = stage.costs.data
    if seconds > 0.0 and 0 in stage.workload.job.places[stage.index]:
        loaded = stage.run(stage.templates.data(seconds), (int(Task.DATA_LOADING), -1, -1))
        stage.run(stage.templates.nothing(0.0), HOST, (loaded,))


def _read_back(stage: Stage) -> None:
    """With `data.read_back`, the host waits for the device before each forward pass that reads a batch: those of the model's first
    and last part."""
    job = stage.workload.job
    ends = {0, job.plan.pp * job.plan.vpp - 1}
    chunks = [chunk for chunk, part in enumerate(job.places[stage.index]) if part in ends]
    if not job.runtime.data.read_back or not chunks or job.plan.schedule_name in SENDS_CROSS:
        return
    labels = stage.labels.table()
    passes = np.flatnonzero(np.isin(labels[:, 0], (*PASSES, Task.FORWARD_AND_BACKWARD)))
    forward = np.isin(labels[:, 0], (Task.FORWARD, Task.FORWARD_AND_BACKWARD)) & np.isin(labels[:, 2], chunks)
    for before, current in pairwise(passes.tolist()):
        if forward[current] and (labels[current] != labels[before]).any():  # instances of one pass have the same label
            stage.rank.sync_host(before)
