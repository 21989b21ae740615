"""Workload + costs -> engine program, one rank per pipeline stage: data-, tensor- and context-parallel ranks are equal and fold.

What a stage does in a step, in program order: gather parameters if they are sharded, the passes of its schedule with their
transfers, gradient reduction, update, parameter gather. Which of these overlap is the runtime's choice and the engine's result.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from windtunnel.engine import Program, ProgramBuilder
from windtunnel.predict.category import Category
from windtunnel.predict.costs import Costs
from windtunnel.predict.live import Live
from windtunnel.predict.sharding import Sharding, sharding_for
from windtunnel.predict.stage import HOST, UPDATE, Kind, Stage
from windtunnel.predict.templates import Templates
from windtunnel.predict.transfers import Transfers
from windtunnel.workload import Axis, Comm, Workload
from windtunnel.workload.schedules import Pass

OVERLAPPING = (Axis.TP, Axis.CP, Axis.EP, Axis.DP, Axis.SHARD, Axis.REPLICA, Axis.EXPERT_DP)
DEFAULT_TAX = 0.1
"""For accelerators whose compute units are not known; assumed."""


@dataclass(frozen=True)
class Lowered:
    """The engine program and what its parts are.

    `labels[s]` [I, 3] name stage s's instances (`stage.Label`); `calls[s]` counts its communication calls between passes; `rows[t]`
    are the workload's rows that template t is made of (None for waits and transfers); `categories` [R] are the rows' categories.
    """

    program: Program
    labels: tuple[npt.NDArray[np.int32], ...]
    calls: tuple[Counter[tuple[Comm, Axis, float]], ...]
    rows: tuple[npt.NDArray[np.int64] | None, ...]
    categories: npt.NDArray[np.int32]


def compute_tax(costs: Costs) -> float:
    """Share of the GPU's SMs that overlapping collectives hold: NCCL runs one block, and so one SM, a channel."""
    job = costs.network.job
    sms = job.cluster.gpu.sms
    channels = max((price.channels for (_, axis, _), price in costs.network.prices.items() if axis in OVERLAPPING), default=0)
    return min(0.5, channels / sms) if sms else DEFAULT_TAX


def lower(workload: Workload, costs: Costs, live: Live | None = None) -> Lowered:
    """The program of one step of every stage; with `live`, calls that leave a scale-up domain end when a network says so."""
    job = workload.job
    builder = ProgramBuilder(categories=len(Category))
    templates = Templates(workload, costs, builder)
    transfers = Transfers(workload, costs, live)
    stages = []
    for index in range(job.plan.pp):
        stage = Stage(index, builder.rank(), templates, workload, costs, live)
        _step(stage, transfers)
        stages.append(stage)
    builder.compute_tax = compute_tax(costs)  # known once every call has a price
    return Lowered(
        builder.build(),
        tuple(np.array(s.labels, np.int32).reshape(-1, 3) for s in stages),
        tuple(s.calls for s in stages),
        tuple(templates.rows),
        templates.category,
    )


def _step(stage: Stage, transfers: Transfers) -> None:
    workload, runtime = stage.workload, stage.workload.job.runtime
    # Megatron overlaps transfers in the interleaved schedule alone; plain 1F1B waits for each
    overlap = runtime.overlap_p2p and workload.job.plan.vpp > 1
    sharding = sharding_for(stage)
    actions = workload.schedule[stage.index]
    if sharding.whole_passes:
        templates = [sharding.pass_template(chunk, way) for chunk in range(workload.job.plan.vpp) for way in Pass]
        last = transfers.passes(stage, actions, np.array(templates), overlap)
    else:
        last = _one_by_one(stage, transfers, sharding, overlap)
    transfers.count(stage)
    _finish(stage, sharding, sharding.reduce(last))


def _one_by_one(stage: Stage, transfers: Transfers, sharding: Sharding, overlap: bool) -> int:
    """Passes between which parameters are gathered or gradients combined; returns the last one."""
    actions = stage.workload.schedule[stage.index]
    received, last = transfers.receive(stage, actions[0]), -1
    waits: tuple[int, ...] = (received,) if received is not None else ()
    for turn, action in enumerate(actions):
        last = sharding.run(action, (action.direction, action.micro_batch, action.chunk), waits)
        sent = transfers.send(stage, action, last)
        received = transfers.receive(stage, actions[turn + 1]) if turn + 1 < len(actions) else None
        waits = tuple(w for w in (received, None if overlap else sent) if w is not None)
    return last


def _finish(stage: Stage, sharding: Sharding, reduced: tuple[int, ...]) -> None:
    """Tied embeddings, gradient norm over all stages, update, parameter gather."""
    job, index, templates = stage.workload.job, stage.index, stage.templates
    plan = job.plan
    if job.model.shares_embedding and plan.pp > 1 and index in (0, plan.pp - 1):
        size = job.padded_vocab // plan.tp * job.model.hidden * templates.reduce_width
        reduced = (stage.sync(Kind.TIED_EMBEDDING, Axis.EMBEDDING, size, 2, reduced, Category.GRADIENT_REDUCE),)
    waits = (stage.run(templates.optimizer(index, after_norm=False), UPDATE, reduced),)
    if job.cluster.gpus > 1:
        waits = (stage.sync(Kind.GRADIENT_NORM, Axis.WORLD, 8.0, plan.pp, waits, Category.STEP_SYNC, host_sync=True),)
    if job.runtime.host.step:
        stage.run(templates.nothing(job.runtime.host.step), HOST)
    sharding.finish(stage.run(templates.optimizer(index, after_norm=True), UPDATE, waits))
