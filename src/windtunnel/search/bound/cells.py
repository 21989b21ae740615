"""Cells: what a micro batch costs on one GPU, for all plans that differ only in pipeline, data parallelism and batch.

A cell is one small job: the whole model on one pipeline stage, with the plan's degrees inside a stage, its micro batch, recompute
and runtime. Its blocks are written and priced once by the code that predicts. A space of a million plans has a few hundred cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.memory.walk import block_needs
from windtunnel.network import group
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.price.costs import Costs, price_together
from windtunnel.predict.program.demands import gathered_elements
from windtunnel.predict.program.passes import host_of_pass
from windtunnel.search.bound.chains import Chains
from windtunnel.search.bound.layouts import keys_without_policy
from windtunnel.search.bound.update import Update, UpdateFloor
from windtunnel.search.change import Change
from windtunnel.spec import Cluster, Job, check
from windtunnel.workload import Axis, Workload, Written, build, build_together, shares_units
from windtunnel.workload.identity import BlockKey, BlockKind
from windtunnel.workload.ops import CONTEXT_AXES
from windtunnel.workload.optimizers import Held
from windtunnel.workload.passes.fsdp import kept_root
from windtunnel.workload.passes.optimizer import held_by
from windtunnel.workload.schedules import Pass

INSIDE_STAGE = (Axis.TP, *CONTEXT_AXES, Axis.EP, Axis.ETP)
"""Groups of calls inside a micro batch's passes."""


@dataclass(frozen=True)
class Cell:
    """Columns over the blocks of a cell's job.

    `keys` as `layouts.keys_without_policy` has them. `times`: least seconds [measures, passes, written blocks] for each kind of
    ranks, of which `columns` are the cell's blocks. `dense`, `experts`, `quantised`, `frozen`: elements on one GPU before
    sharding; `sharded` those outside of experts that full sharding gathers, `again` those that it may gather again for backward.
    `saved`, `working`: bytes as `memory.walk.Needs`. `boundary`: those of a pipeline transfer. `update` follows from what is
    `held` before sharding.
    """

    job: Job
    keys: tuple[BlockKey, ...]
    times: tuple[Floats, ...]
    columns: Int64s
    dense: Floats
    experts: Floats
    quantised: Floats
    frozen: Floats
    frozen_quantised: Floats
    sharded: Floats
    again: Floats
    saved: Floats
    working: Floats
    boundary: float
    update: Update
    held: Held

    @property
    def pass_host(self) -> tuple[float, ...]:
        """Seconds of the host at the begin of each kind of pass."""
        return tuple(host_of_pass(self.job, way)[1] for way in Pass)


def kinds_of(job: Job) -> tuple[Cluster, ...]:
    """The cluster as each kind of its ranks has it, all of one speed if the job names their speeds: the job's own first."""
    unequal = job.unequal
    if unequal is None:
        return (job.cluster,)
    even = {"gpu_spread": 0.0, "slow_nodes": 0.0} if unequal.names_speeds else {}
    node = job.cluster.node
    nodes = [node, *(one.node or node.model_copy(update={"gpu": one.gpu}) for one in unequal.mixed)]
    return tuple(job.cluster.model_copy(update=even | {"node": other}) for other in nodes)


def one_stage_job(job: Job) -> Job:
    """`job` on equal ranks of its first kind, with one pipeline stage and one micro batch. `recompute_layers` stays stated or not.
    Raises as `spec.check` does."""
    plan = job.plan
    ranks = job.cluster.gpus // (plan.tp * plan.cp)
    alone = plan.pp == ranks and plan.cp == 1
    small = Change.of(
        plan__pp=1,
        plan__vpp=1,
        plan__dp=None,
        plan__stages=None,
        plan__schedule="auto",
        plan__global_batch=plan.micro_batch * ranks,
        plan__recompute_layers=None if plan.recompute_layers is None else 0,
        plan__sharding="none" if alone else plan.sharding,
        runtime__fp8_amax_reduce="none" if alone and job.runtime.fp8_amax_reduce == "dp" else job.runtime.fp8_amax_reduce,
        plan__offload__parameters="none" if alone else plan.offload.parameters,  # outside of cells, and only beside sharding
        unequal=None,
        cluster=kinds_of(job)[0],
    ).apply_unchecked(job)
    return check(small)


def graphs_of(jobs: Sequence[Job], written: Written | None) -> tuple[Workload, ...]:
    """The graphs of jobs of `one_stage_job` that differ in `plan.recompute` and its modules only, in one table; `written` as in
    `build_together`. Raises as `build` does."""
    return build_together(jobs, written) if shares_units(jobs[0]) else (build(jobs[0]),)


def lies_apart(placement: Sequence[str]) -> bool:
    """Whether replicas or stages lie between ranks that share a micro batch, so that their groups are not those of the one stage of
    a cell, which has more replicas."""
    return [axis for axis in placement if axis != "ep"][2:] != ["dp", "pp"]


def _book(job: Job, plan: Job) -> CallBook:
    """Prices of the calls of a cell's `job`, over the groups that `plan` has on the same cluster."""
    if not lies_apart(plan.plan.placement):
        return CallBook(job)
    placed = Change.of(cluster=job.cluster).apply_unchecked(plan)
    return CallBook(job).with_groups({axis: group(placed, axis) for axis in INSIDE_STAGE})


def _leave_out_amax(workload: Workload, costs: Costs) -> Costs:
    """The costs without exchanges of amax histories, which take longer in a cell: it has more layers and replicas."""
    exchanges = [block for block in workload.blocks if block.key.kind is BlockKind.AMAX]
    if not exchanges:
        return costs
    seconds = costs.seconds.copy()
    for block in exchanges:
        for rows in (block.forward, block.backward):
            seconds[rows.start : rows.stop] = 0.0
    return replace(costs, seconds=seconds)


def cells_of(
    tables: Sequence[tuple[Workload, ...]], plans: Sequence[Job], chains: Chains, updates: UpdateFloor
) -> list[list[Cell]]:
    """The cells of `graphs_of` jobs, of each of which `plans` has one with its pipeline. Their times on each of the kinds of
    `updates`, of which the first is that of their jobs, are there after `chains.measure`."""
    joint = [replace(each[0], blocks=tuple({id(b): b for one in each for b in one.blocks}.values())) for each in tables]
    on = [
        joint,
        *([replace(one, job=Change.of(cluster=kind).apply_unchecked(one.job)) for one in joint] for kind in updates.kinds[1:]),
    ]
    costs = [price_together(of_kind, [_book(one.job, plan) for one, plan in zip(of_kind, plans, strict=True)]) for of_kind in on]
    cells: list[list[Cell]] = []
    for number, workloads in enumerate(tables):
        times = tuple(
            chains.add(of_kind[number], _leave_out_amax(of_kind[number], cost[number]))
            for of_kind, cost in zip(on, costs, strict=True)
        )
        place = {id(block): at for at, block in enumerate(joint[number].blocks)}
        some: list[Cell] = []
        for workload in workloads:
            columns = np.array([place[id(block)] for block in workload.blocks], np.int64)
            some.append(_cell(workload, times, columns, updates, some[0] if some else None))
        cells.append(some)
    return cells


def _cell(workload: Workload, times: tuple[Floats, ...], columns: Int64s, updates: UpdateFloor, like: Cell | None) -> Cell:
    """The cell of a workload on one stage; `like` has another policy of recompute, and so as many elements."""
    job, blocks, needs = workload.job, workload.blocks, block_needs(workload)

    def column(values: list[float]) -> Floats:
        return np.array(values, np.float64)

    keys = keys_without_policy(blocks, job.plan.recompute)
    saved, working = column([n.saved for n in needs]), column([n.working for n in needs])
    if like is not None:
        return replace(like, job=job, keys=keys, columns=columns, saved=saved, working=working)
    repeats = [(blocks[b], count) for chunk in workload.stages[0] for b, count in chunk.blocks]
    held = held_by(workload.stage_parameters[0], workload.stage_experts[0], repeats)
    gathered, kept = [gathered_elements(job, block) for block in blocks], kept_root(workload)
    return Cell(
        job=job,
        keys=keys,
        times=times,
        columns=columns,
        dense=column([b.parameters - b.expert_parameters for b in blocks]),
        experts=column([b.expert_parameters for b in blocks]),
        quantised=column([b.quantised for b in blocks]),
        frozen=column([b.frozen for b in blocks]),
        frozen_quantised=column([b.frozen_quantised for b in blocks]),
        sharded=column(gathered),
        again=column([0.0 if b in kept else elements for b, elements in enumerate(gathered)]),
        saved=saved,
        working=working,
        boundary=workload.boundary,
        update=updates.of(job, held),
        held=held,
    )


ALIKE = ("none", "zero1")
"""Shardings under which all passes are the same."""


def reshard_cell(cell: Cell, job: Job, updates: UpdateFloor) -> Cell:
    """The cell of a job of `one_stage_job` that differs from that of `cell` in which of the `ALIKE` shardings it has."""
    return replace(cell, job=job, update=updates.of(job, cell.held))
