"""The cells of all plans of a frame: which there are, and what they share when they are written and priced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from windtunnel.base.arrays import Bools, Int64s
from windtunnel.base.errors import WindtunnelError
from windtunnel.search.bound.cells import ALIKE, Cell, cells_of, graphs_of, kinds_of, lies_apart, one_stage_job, reshard_cell
from windtunnel.search.bound.chains import Chains
from windtunnel.search.bound.grouping import count_reason, group_rows
from windtunnel.search.bound.layouts import SPLIT
from windtunnel.search.bound.update import UpdateFloor
from windtunnel.search.space import PlanColumns
from windtunnel.spec import Job
from windtunnel.workload import Workload, Written, shares_units

BY_ROW = ("overlap_grad_reduce", "overlap_param_gather", "overlap_p2p")
"""Switches of the runtime that are columns of `step.PlanRows`."""

ROW_FIELDS = tuple(f"runtime.{name}" for name in BY_ROW)

RECOMPUTE = "plan.recompute"
"""The field that plans with one layout may differ in, since their blocks do not."""

OUTSIDE = ("plan.pp", "plan.vpp", "plan.stages", "plan.schedule", "plan.global_batch", "plan.dp", *ROW_FIELDS)
"""Fields that do not change a cell."""

TOGETHER = (RECOMPUTE, "plan.recompute_modules", "plan.sharding")
"""Fields of cells that are written together."""

OF_EXPERTS = ("plan.ep", "plan.etp")
"""Fields on which blocks without experts do not depend."""

PRICED = 32
"""Tables of cells that are priced at once."""

MEASURED = 1000
"""Cells whose passes are kept to be measured at once."""


def every_cell(
    columns: PlanColumns, reasons: dict[str, int], progress: Callable[[float], object] | None
) -> tuple[Int64s, list[Cell | None]]:
    """For each plan the number of its cell; the cells, None for one that cannot be."""
    inside = {"plan.pp"} if any(map(lies_apart, columns.values.get("plan.placement", (columns.job.plan.placement,)))) else set()
    paths = [path for path in columns.codes if path not in OUTSIDE or path in inside]
    halves = any(name in SPLIT for name in columns.values.get("plan.schedule", (columns.job.plan.schedule,)))
    # a plan with one rank per shard of state has no copies of sharded parameters
    ranks = columns.job.cluster.gpus // (columns.numbers("plan.tp") * columns.numbers("plan.cp") * columns.numbers("plan.pp"))
    alone = ranks * columns.numbers("plan.cp") == 1
    number, chains, updates = np.zeros(len(columns), np.int64), Chains(halves), UpdateFloor(kinds_of(columns.job))
    together: dict[tuple[int, ...], list[int]] = {}  # by all fields but `TOGETHER`: numbers of cells
    apart = [path for path in paths if path not in TOGETHER]
    groups = [part for whole in group_rows(columns, np.arange(len(columns)), paths) for part in _split_alone(whole, alone)]
    for place, rows in enumerate(groups):
        number[rows], first = place, int(rows[0])
        fields = (int(alone[first]), *(int(columns.codes[path][first]) for path in apart))
        together.setdefault(fields, []).append(place)
    cells: list[Cell | None] = [None] * len(groups)
    drafts: list[Draft] = []
    known: dict[tuple[int, ...], dict[object, Written]] = {}  # by all fields but `TOGETHER` and `OF_EXPERTS`
    several = any(path in columns.codes for path in OF_EXPERTS)
    for done, places in enumerate(together.values()):
        first = int(groups[places[0]][0])
        fields = (int(alone[first]), *(int(columns.codes[path][first]) for path in apart if path not in OF_EXPERTS))
        alike = known.setdefault(fields, {}) if several else None
        drafts += _write(columns, [(place, int(groups[place][0])) for place in places], alike, reasons)
        if progress is not None:
            progress(0.8 * done / len(together))
        if len(drafts) >= PRICED:
            _price(drafts, cells, chains, updates)
            drafts = []
        if done % MEASURED == MEASURED - 1:
            chains.measure()
    _price(drafts, cells, chains, updates)
    chains.measure()
    return number, cells


Draft = tuple[tuple[Workload, ...], list[list[tuple[int, Job]]], Job]
"""Graphs of cells, and for each the numbers and jobs of the cells that have it; a job with the pipeline of one of its plans."""


def _price(drafts: Sequence[Draft], cells: list[Cell | None], chains: Chains, updates: UpdateFloor) -> None:
    """Prices what is written; fills the cells."""
    priced = cells_of([workloads for workloads, _, _ in drafts], [plan for _, _, plan in drafts], chains, updates)
    for (_, members, _), some in zip(drafts, priced, strict=True):
        for cell, ((place, _), *others) in zip(some, members, strict=True):
            cells[place] = cell
            for other, job in others:
                cells[other] = reshard_cell(cell, job, updates)


def _write(
    columns: PlanColumns, plans: Sequence[tuple[int, int]], known: dict[object, Written] | None, reasons: dict[str, int]
) -> Iterator[Draft]:
    """Writes the cells of `plans` (number of the cell, row) that differ in `TOGETHER` only; counts why one cannot be. `known`:
    blocks of plans that differ from these in `OF_EXPERTS` only, by sharding and policies of recompute."""
    policies: dict[str, dict[object, list[tuple[int, Job]]]] = {}  # by sharding, as far as it changes passes, and by recompute
    for place, row in plans:
        try:
            whole = columns.change(row).apply_unchecked(columns.job)
            job = one_stage_job(whole)
        except WindtunnelError as error:
            count_reason(reasons, error)
            continue
        plan = job.plan
        sharding = ALIKE[0] if plan.sharding in ALIKE else plan.sharding
        policies.setdefault(sharding, {}).setdefault((plan.recompute, plan.recompute_modules), []).append((place, job))
    for of_policy in policies.values():
        shared: list[list[tuple[int, Job]]] = []
        apart: list[list[tuple[int, Job]]] = []
        for members in of_policy.values():
            (shared if shares_units(members[0][1]) else apart).append(members)
        for some in ([shared] if shared else []) + [[members] for members in apart]:
            jobs = [members[0][1] for members in some]
            like = (jobs[0].plan.sharding, *((job.plan.recompute, job.plan.recompute_modules) for job in jobs))
            yield graphs_of(jobs, None if known is None else known.setdefault(like, {})), some, whole


def _split_alone(rows: Int64s, alone: Bools) -> list[Int64s]:
    return [part for part in (rows[alone[rows]], rows[~alone[rows]]) if len(part)]
