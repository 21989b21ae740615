"""Lower bounds of step time and memory for all plans of a frame. The cells of all plans of a frame: which there are, and what they
share when they are written and priced. Rows of plans by the values of their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import WindtunnelError
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.search.bound.cells import (
    ALIKE,
    SPLIT,
    Cell,
    Chains,
    PipelineLayout,
    UpdateFloor,
    cells_of,
    graphs_of,
    kinds_of,
    layout_of,
    lies_apart,
    one_stage_job,
    reshard_cell,
    with_few_batches,
)
from windtunnel.search.bound.memory import MemoryFloor
from windtunnel.search.bound.stack import CallFloor, CellStack, Staged
from windtunnel.search.bound.step import Cases, Numbers, Pairs, PlanRows, StepFloor
from windtunnel.search.space import BY_SPEED, PlanColumns, micro_batches
from windtunnel.spec import Job, check
from windtunnel.workload import Workload, Written, shares_units


def group_rows(columns: PlanColumns, rows: Int64s, paths: Sequence[str], members: bool = False) -> list[Int64s]:
    """`rows`, or with `members` the places among them, split by equal values of `paths`."""
    if not len(rows):
        return []
    code = np.zeros(len(rows), np.int64)
    for path in paths:
        code = code * len(columns.values[path]) + columns.codes[path][rows]
    order = np.argsort(code, kind="stable")
    cuts = np.flatnonzero(np.diff(code[order])) + 1
    return np.split(order if members else rows[order], cuts)


def places(numbers: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """The different `numbers` below `count` in order, and the place of each among them."""
    present = np.zeros(count, np.bool_)
    present[numbers] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[numbers]


def count_reason(reasons: dict[str, int], error: WindtunnelError) -> None:
    where = getattr(error, "path", "") or str(error)[:60]
    reasons[where] = reasons.get(where, 0) + 1


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


CELLS_ONLY = (
    "plan.micro_batch",
    "plan.global_batch",
    "plan.sequence_parallel",
    "plan.recompute_modules",
    "plan.cp_kind",
    "plan.cp_sizes",
    "plan.cp_balance",
    "runtime.overlap_tp",
    "runtime.overlap_tp_dgrad",
)
"""Fields that matter inside cells only, or in the number of micro batches."""

INSIDE = (*CELLS_ONLY, "plan.recompute")
"""Fields that matter neither for how state is sharded nor for the calls that end a step."""

SAME_LAYOUT = (*CELLS_ONLY, "plan.tp", "plan.cp", "plan.ep", "plan.etp", "plan.sharding", "plan.shard_group")
"""Fields on which neither the blocks of a stage nor its schedule depend."""

LAYOUT_ONLY = ("plan.vpp", "plan.stages", "plan.schedule")
"""Fields of the layout alone, but for the copies of the model."""

DEGREES = ("plan.tp", "plan.cp", "plan.ep", "plan.etp")
"""Fields in which the plans of one step's floor may differ, if ranks do not."""

MOST_PAIRED = 1 << 18
"""Pairs of cells and layouts, times virtual stages, whose bounds are computed at once."""

MOST_STAGED = 1_000_000
"""Cells times layouts times virtual stages that are held at once."""


@dataclass(frozen=True)
class Bounds:
    """[N] `seconds` of a step, [N, 2] those in which the mean GPU is `computing` and those of products and attention alone,
    and `bytes` on the fullest stage, all lower bounds; `refused` plans contradict themselves. `cells`: jobs that were priced for
    them."""

    seconds: Floats
    computing: Floats
    bytes: Floats
    refused: Bools
    cells: int
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Floors:
    """What all plans of a frame share."""

    calls: CallFloor
    memory: MemoryFloor
    numbers: Numbers


def bounds(columns: PlanColumns, progress: Callable[[float], object] | None = None) -> Bounds:
    """Bounds of every plan of `columns`. `progress` gets the share that is done."""
    size = len(columns)
    least = Bounds(np.zeros(size), np.zeros((size, 2)), np.zeros(size), np.zeros(size, np.bool_), 0)
    if not size:
        return least
    job = columns.job
    floors = Floors(CallFloor(kinds_of(job), parse_settings(job.runtime.nccl, "runtime.nccl")), MemoryFloor(), {})
    cell_of_row, cells = every_cell(columns, least.reasons, progress)
    least.refused[:] = np.array([cell is None for cell in cells])[cell_of_row]
    rows_of = PlanRows(
        np.zeros(size, np.int64), micro_batches(columns), **{name: columns.flags(f"runtime.{name}") for name in BY_ROW}
    )
    families: dict[tuple[object, ...], list[int]] = {}
    for number, cell in enumerate(cells):
        if cell is not None:
            families.setdefault(cell.keys, []).append(number)
    for members in families.values():
        stack = CellStack.from_cells([one for number in members if (one := cells[number]) is not None])
        place_in = np.full(len(cells), -1, np.int64)
        place_in[members] = np.arange(len(members))
        rows = np.flatnonzero((place_in[cell_of_row] >= 0) & ~least.refused)
        _bound_family(columns, rows, replace(rows_of, pair=place_in[cell_of_row]), stack, floors, least)
    if progress is not None:
        progress(1.0)
    return replace(least, cells=sum(cell is not None for cell in cells))


def _bound_family(columns: PlanColumns, rows: Int64s, plans: PlanRows, stack: CellStack, floors: Floors, least: Bounds) -> None:
    """Fills the bounds of `rows`, whose cells have the same blocks; `plans.pair`: the cell of each plan in `stack`."""
    inside = (*INSIDE, *ROW_FIELDS)
    by_speed = BY_SPEED in columns.values.get("plan.stages", ())  # then ranks matter, and so do the fields that place them
    alike = ROW_FIELDS if by_speed else (*ROW_FIELDS, *SAME_LAYOUT)
    of_layout = [path for path in columns.codes if path not in alike]
    apart = (*LAYOUT_ONLY, RECOMPUTE)  # fields that differ between plans of a step's floor
    free = apart if by_speed else (*apart, *DEGREES)
    of_step = [path for path in columns.codes if path not in free and (path not in inside or path in of_layout)]
    for same in group_rows(columns, rows, [path for path in of_layout if path not in apart]):
        used, cell = places(plans.pair[same], len(stack.cells))
        some = stack.take(used)
        found = _find_layouts(columns, same, of_layout, some, least)
        plans.pair[same] = cell
        for layouts in _split_layouts(found, len(used)):
            staged = Staged.of(some, [layout for layout, _ in layouts])
            number = np.repeat(np.arange(len(layouts)), [len(part) for _, part in layouts])
            members = np.concatenate([part for _, part in layouts])
            for at in group_rows(columns, members, of_step, members=True):
                _bound_rows(columns, members[at], number[at], plans, (some, staged), floors, least)


def _bound_rows(
    columns: PlanColumns,
    rows: Int64s,
    layout: Int64s,
    plans: PlanRows,
    of: tuple[CellStack, Staged],
    floors: Floors,
    least: Bounds,
) -> None:
    """Fills the bounds of `rows`, which have the numbered layouts and differ in no other field that matters outside of cells but in
    `DEGREES`."""
    stack, staged = of
    case, jobs = np.zeros(len(rows), np.int64), list[Job]()
    for members in group_rows(columns, rows, [path for path in DEGREES if path in columns.codes], members=True):
        case[members] = len(jobs)
        jobs.append(columns.change(int(rows[members[0]])).apply_unchecked(columns.job))
    pair = (case * len(stack.cells) + plans.pair[rows]) * len(staged.layouts) + layout
    order = np.argsort(pair, kind="stable")
    begins = np.append(np.flatnonzero(np.diff(pair[order], prepend=-1)), len(order))  # of the plans of each pair
    most = max(1, MOST_PAIRED // staged.last[0, 0].size)
    for first in range(0, len(begins) - 1, most):
        ends = begins[first : first + most + 1]
        here = rows[order[ends[0] : ends[-1]]]
        of_job, paired = np.divmod(pair[order[ends[:-1]]], len(stack.cells) * len(staged.layouts))
        used, at = places(of_job, len(jobs))
        cases = Cases(tuple(jobs[number] for number in used.tolist()), at)
        pairs = Pairs(stack, staged, *np.divmod(paired, len(staged.layouts)))
        some = replace(plans.take(here), pair=np.repeat(np.arange(len(ends) - 1), np.diff(ends)))
        least.computing[here] = pairs.take_pairs(staged.computing)[some.pair] * (some.micro_batches // jobs[0].copies)[:, None]
        least.seconds[here] = StepFloor(cases, pairs, floors.calls, floors.numbers).seconds(some)
        least.bytes[here] = floors.memory.least_bytes(cases, pairs, some)


def _split_layouts(found: Sequence[tuple[PipelineLayout, Int64s]], cells: int) -> Iterator[list[tuple[PipelineLayout, Int64s]]]:
    """Layouts with their plans, split into such with as many copies of the model, and so many that arrays stay small."""
    for copies in sorted({layout.copies for layout, _ in found}):
        alike = [one for one in found if one[0].copies == copies]
        virtual = max(layout.stage_parts.size for layout, _ in alike)
        most = max(1, MOST_STAGED // (cells * virtual))
        yield from (alike[at : at + most] for at in range(0, len(alike), most))


def _find_layouts(
    columns: PlanColumns, rows: Int64s, paths: Sequence[str], stack: CellStack, least: Bounds
) -> list[tuple[PipelineLayout, Int64s]]:
    """The layouts of `rows`, which `paths` tell apart, each with its plans and with the blocks of the stack's first cell. Plans of
    which no pipeline can be are refused."""
    found: dict[tuple[int, ...], tuple[PipelineLayout, list[Int64s]]] = {}

    def place(part: Int64s) -> WindtunnelError | None:
        """Gives a part the layout of its first plan; why that plan cannot be."""
        first = int(part[0])
        key = tuple(int(columns.codes[path][first]) for path in paths if path != RECOMPUTE)
        try:
            job = columns.change(first).apply_unchecked(columns.job)
            if key in found:
                check(with_few_batches(job))
            else:
                found[key] = (layout_of(job), [])
        except WindtunnelError as error:
            return error
        found[key][1].append(part)
        if found[key][0].keys != stack.cells[0].keys:
            raise AssertionError("blocks of cell and layout differ")
        return None

    for part in group_rows(columns, rows, paths):
        if place(part) is None:
            continue
        for same in group_rows(columns, part, [path for path in columns.codes if path not in ROW_FIELDS]):
            if (error := place(same)) is not None:  # that of the first plan need not be that of all
                count_reason(least.reasons, error)
                least.refused[same] = True
    return [(layout, np.concatenate(parts)) for layout, parts in found.values()]
