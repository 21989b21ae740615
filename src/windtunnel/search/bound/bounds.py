"""Lower bounds of step time and memory for all plans of a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.errors import WindtunnelError
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.search.bound.call_floor import CallFloor
from windtunnel.search.bound.cells import ALIKE, Cell, cells_of, kinds_of, one_stage, resharded, written
from windtunnel.search.bound.chains import Chains
from windtunnel.search.bound.layouts import SPLIT, PipelineLayout, few_batches, layout_of
from windtunnel.search.bound.memory import MemoryFloor
from windtunnel.search.bound.stack import CellStack, Staged
from windtunnel.search.bound.step import Cases, Groups, Pairs, PlanRows, StepFloor
from windtunnel.search.space import BY_SPEED, PlanColumns, micro_batches
from windtunnel.spec import Job, check
from windtunnel.workload import Workload, shares_units

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

BY_ROW = ("overlap_grad_reduce", "overlap_param_gather", "overlap_p2p")
"""Switches of the runtime that are columns of `step.PlanRows`."""

ROW_FIELDS = tuple(f"runtime.{name}" for name in BY_ROW)

LAYOUT_ONLY = ("plan.vpp", "plan.stages", "plan.schedule")
"""Fields of the layout alone, but for the copies of the model."""

RECOMPUTE = "plan.recompute"
"""The field that plans with one layout may differ in, since their blocks do not."""

TOGETHER = (RECOMPUTE, "plan.recompute_modules", "plan.sharding")
"""Fields of cells that are written together."""

DEGREES = ("plan.tp", "plan.cp", "plan.ep", "plan.etp")
"""Fields in which the plans of one step's floor may differ, if ranks do not."""

MOST_PAIRED = 1 << 18
"""Pairs of cells and layouts, times virtual stages, whose bounds are computed at once."""

MOST_STAGED = 1_000_000
"""Cells times layouts times virtual stages that are held at once."""

PRICED = 32
"""Tables of cells that are priced at once."""

MEASURED = 1000
"""Cells whose passes are kept to be measured at once."""

OUTSIDE = ("plan.pp", "plan.vpp", "plan.stages", "plan.schedule", "plan.global_batch", "plan.dp", *ROW_FIELDS)
"""Fields that do not change a cell."""


@dataclass(frozen=True)
class Bounds:
    """[N] `seconds` of a step, [N, 2] those in which the mean GPU is `computing` and those of products and attention alone,
    and `bytes` on the fullest stage, all lower bounds; `refused` plans contradict themselves. `cells`:
    jobs that were priced for them."""

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
    groups: Groups


def bounds(columns: PlanColumns, progress: Callable[[float], object] | None = None) -> Bounds:
    """Bounds of every plan of `columns`. `progress` gets the share that is done."""
    count = len(columns)
    least = Bounds(np.zeros(count), np.zeros((count, 2)), np.zeros(count), np.zeros(count, np.bool_), 0)
    if not count:
        return least
    job = columns.job
    floors = Floors(CallFloor(kinds_of(job), parse_settings(job.runtime.nccl, "runtime.nccl")), MemoryFloor(), {})
    cell_of_row, cells = _cells(columns, least.reasons, progress)
    least.refused[:] = np.array([cell is None for cell in cells])[cell_of_row]
    rows_of = PlanRows(
        np.zeros(count, np.int64), micro_batches(columns), **{name: columns.flags(f"runtime.{name}") for name in BY_ROW}
    )
    families: dict[tuple[object, ...], list[int]] = {}
    for number, cell in enumerate(cells):
        if cell is not None:
            families.setdefault(cell.keys, []).append(number)
    for members in families.values():
        stack = CellStack.stacked([one for number in members if (one := cells[number]) is not None])
        place_in = np.full(len(cells), -1, np.int64)
        place_in[members] = np.arange(len(members))
        rows = np.flatnonzero((place_in[cell_of_row] >= 0) & ~least.refused)
        _family(columns, rows, replace(rows_of, pair=place_in[cell_of_row]), stack, floors, least)
    if progress is not None:
        progress(1.0)
    return replace(least, cells=sum(cell is not None for cell in cells))


def _family(columns: PlanColumns, rows: Int64s, plans: PlanRows, stack: CellStack, floors: Floors, least: Bounds) -> None:
    """Fills the bounds of `rows`, whose cells have the same blocks; `plans.pair`: the cell of each plan in `stack`."""
    inside = INSIDE if _frees_parameters(columns) else (*INSIDE, *ROW_FIELDS)
    by_speed = BY_SPEED in columns.values.get("plan.stages", ())  # then ranks matter, and so do the fields that place them
    alike = ROW_FIELDS if by_speed else (*ROW_FIELDS, *SAME_LAYOUT)
    of_layout = [path for path in columns.codes if path not in alike]
    apart = (*LAYOUT_ONLY, RECOMPUTE)  # fields that differ between plans of a step's floor
    free = apart if by_speed else (*apart, *DEGREES)
    of_step = [path for path in columns.codes if path not in free and (path not in inside or path in of_layout)]
    for same in _grouped(columns, rows, [path for path in of_layout if path not in apart]):
        used, cell = _places(plans.pair[same], len(stack.cells))
        some = stack.take(used)
        found = _layouts(columns, same, of_layout, some, least)
        plans.pair[same] = cell
        for layouts in _beside(found, len(used)):
            staged = Staged.of(some, [layout for layout, _ in layouts])
            number = np.repeat(np.arange(len(layouts)), [len(part) for _, part in layouts])
            members = np.concatenate([part for _, part in layouts])
            for at in _grouped(columns, members, of_step, members=True):
                _fill(columns, members[at], number[at], plans, (some, staged), floors, least)


def _fill(
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
    case, jobs = np.zeros(len(rows), np.int64), []
    for members in _grouped(columns, rows, [path for path in DEGREES if path in columns.codes], members=True):
        case[members] = len(jobs)
        jobs.append(columns.change(int(rows[members[0]])).apply_unchecked(columns.job))
    pair = (case * len(stack.cells) + plans.pair[rows]) * len(staged.layouts) + layout
    order = np.argsort(pair, kind="stable")
    begins = np.append(np.flatnonzero(np.diff(pair[order], prepend=-1)), len(order))  # of the plans of each pair
    most = max(1, MOST_PAIRED // staged.last[0, 0].size)
    for first in range(0, len(begins) - 1, most):
        ends = begins[first : first + most + 1]
        here, (of_job, paired) = rows[order[ends[0] : ends[-1]]], np.divmod(pair[order[ends[:-1]]], len(stack.cells) * len(staged.layouts))
        used, at = _places(of_job, len(jobs))
        cases = Cases(tuple(jobs[number] for number in used.tolist()), at)
        pairs = Pairs(stack, staged, *np.divmod(paired, len(staged.layouts)))
        some = replace(plans.take(here), pair=np.repeat(np.arange(len(ends) - 1), np.diff(ends)))
        least.computing[here] = pairs.each(staged.computing)[some.pair] * (some.micro_batches // jobs[0].copies)[:, None]
        least.seconds[here] = StepFloor(cases, pairs, floors.calls, floors.groups).seconds(some)
        least.bytes[here] = floors.memory.allocated(cases, pairs, some)


def _beside(found: Sequence[tuple[PipelineLayout, Int64s]], cells: int) -> Iterator[list[tuple[PipelineLayout, Int64s]]]:
    """Layouts with their plans, split into such with as many copies of the model, and so many that arrays stay small."""
    for copies in sorted({layout.copies for layout, _ in found}):
        alike = [one for one in found if one[0].copies == copies]
        virtual = max(layout.stage_parts.size for layout, _ in alike)
        most = max(1, MOST_STAGED // (cells * virtual))
        yield from (alike[at : at + most] for at in range(0, len(alike), most))


def _places(numbers: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """The different `numbers` below `count` in order, and the place of each among them."""
    present = np.zeros(count, np.bool_)
    present[numbers] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[numbers]


def _frees_parameters(columns: PlanColumns) -> bool:
    """Whether a switch changes how state is sharded: ZeRO-2 that gathers parameters again."""
    return "zero2" in columns.values.get("plan.sharding", (columns.job.plan.sharding,))


def _layouts(
    columns: PlanColumns, rows: Int64s, paths: Sequence[str], stack: CellStack, least: Bounds
) -> list[tuple[PipelineLayout, Int64s]]:
    """The layouts of `rows`, which `paths` tell apart, each with its plans and with the blocks of the stack's first cell. Plans of
    which no pipeline can be are refused."""
    found: dict[tuple[int, ...], tuple[PipelineLayout, list[Int64s]]] = {}
    for part in _grouped(columns, rows, paths):
        first = int(part[0])
        key = tuple(int(columns.codes[path][first]) for path in paths if path != RECOMPUTE)
        try:
            job = columns.change(first).apply_unchecked(columns.job)
            if key in found:
                check(few_batches(job))
            else:
                found[key] = (layout_of(job), [])
        except WindtunnelError as error:
            _count(least.reasons, error)
            least.refused[part] = True
            continue
        found[key][1].append(part)
        if found[key][0].keys != stack.cells[0].keys:
            raise AssertionError("blocks of cell and layout differ")
    return [(layout, np.concatenate(parts)) for layout, parts in found.values()]


def _count(reasons: dict[str, int], error: WindtunnelError) -> None:
    where = getattr(error, "path", "") or str(error)[:60]
    reasons[where] = reasons.get(where, 0) + 1


def _grouped(columns: PlanColumns, rows: Int64s, paths: Sequence[str], members: bool = False) -> list[Int64s]:
    """`rows`, or with `members` the places among them, split by equal values of `paths`."""
    if not len(rows):
        return []
    code = np.zeros(len(rows), np.int64)
    for path in paths:
        code = code * len(columns.values[path]) + columns.codes[path][rows]
    order = np.argsort(code, kind="stable")
    cuts = np.flatnonzero(np.diff(code[order])) + 1
    return np.split(order if members else rows[order], cuts)


def _cells(
    columns: PlanColumns, reasons: dict[str, int], progress: Callable[[float], object] | None
) -> tuple[Int64s, list[Cell | None]]:
    """For each plan the number of its cell; the cells, None for one that cannot be."""
    paths = [path for path in columns.codes if path not in OUTSIDE]
    halves = any(name in SPLIT for name in columns.values.get("plan.schedule", (columns.job.plan.schedule,)))
    # a plan with one rank per shard of state has no copies of sharded parameters
    ranks = columns.job.cluster.gpus // (columns.numbers("plan.tp") * columns.numbers("plan.cp") * columns.numbers("plan.pp"))
    alone = ranks * columns.numbers("plan.cp") == 1
    number = np.zeros(len(columns), np.int64)
    chains = Chains(halves)
    together: dict[tuple[int, ...], list[int]] = {}  # by all fields but `TOGETHER`: numbers of cells
    apart = [path for path in paths if path not in TOGETHER]
    groups = [part for whole in _grouped(columns, np.arange(len(columns)), paths) for part in _halved(whole, alone)]
    for place, rows in enumerate(groups):
        number[rows], first = place, int(rows[0])
        fields = (int(alone[first]), *(int(columns.codes[path][first]) for path in apart))
        together.setdefault(fields, []).append(place)
    cells: list[Cell | None] = [None] * len(groups)
    drafts: list[Draft] = []

    def finish() -> None:
        """Prices what is written."""
        priced = cells_of([workloads for workloads, _ in drafts], kinds_of(columns.job), chains)
        for (_, members), some in zip(drafts, priced, strict=True):
            for cell, ((place, _), *others) in zip(some, members, strict=True):
                cells[place] = cell
                for other, job in others:
                    cells[other] = resharded(cell, job)
        drafts.clear()

    for done, places in enumerate(together.values()):
        drafts += _write(columns, [(place, int(groups[place][0])) for place in places], reasons)
        if progress is not None:
            progress(0.8 * done / len(together))
        if len(drafts) >= PRICED:
            finish()
        if done % MEASURED == MEASURED - 1:
            chains.measure()
    finish()
    chains.measure()
    return number, cells


Draft = tuple[tuple[Workload, ...], list[list[tuple[int, Job]]]]
"""Graphs of cells, and for each the numbers and jobs of the cells that have it."""


def _write(columns: PlanColumns, plans: Sequence[tuple[int, int]], reasons: dict[str, int]) -> Iterator[Draft]:
    """Writes the cells of `plans` (number of the cell, row) that differ in `TOGETHER` only; counts why one cannot be."""
    policies: dict[str, dict[object, list[tuple[int, Job]]]] = {}  # by sharding, as far as it changes passes, and by recompute
    for place, row in plans:
        try:
            job = one_stage(columns.change(row).apply_unchecked(columns.job))
        except WindtunnelError as error:
            _count(reasons, error)
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
            yield written([members[0][1] for members in some]), some


def _halved(rows: Int64s, alone: Bools) -> list[Int64s]:
    return [part for part in (rows[alone[rows]], rows[~alone[rows]]) if len(part)]


__all__ = ["Bounds", "bounds"]
