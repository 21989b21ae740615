"""Cells: what a micro batch costs on one GPU, for all plans that differ only in pipeline, data parallelism and batch.

A cell is one small job: the whole model on one pipeline stage, with the plan's degrees inside a stage, its micro batch, recompute
and runtime. Its blocks are written and priced once by the code that predicts. A space of a million plans has a few hundred cells.

The least time that one pass through a block takes, whatever runs before and after it.

Operators of a stream run in order, and the compute stream runs block after block. So the longest chain of operators that leads from
a free compute stream to the block's last computation adds up over blocks and passes, and so do the host's costs. A schedule that
runs two passes beside each other may hide calls of one behind the other; then only the sum of each stream remains.

A lower bound of the update at the end of a step, per element that a GPU updates.

A kernel that moves bytes is faster where part of them stays in the cache, so its least seconds a byte are those of the smallest
launch that it may have. Multi-tensor kernels cover a fixed number of elements; fewer are one launch of any size. Rows that do not
cover all elements (Muon's products, norms of tensors) are left out.

Layouts: which blocks each virtual stage has, for all plans with the same pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.compute import estimate
from windtunnel.memory.walk import block_needs
from windtunnel.network import group
from windtunnel.predict.price.calibrated import kernel_factors
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.price.costs import Costs, price_together
from windtunnel.predict.program.demands import crossed_boundaries, gathered_elements
from windtunnel.predict.program.passes import PassRows, half, host_of_blocks, host_of_pass
from windtunnel.search.change import Change
from windtunnel.spec import Cluster, Job, check
from windtunnel.spec.shapes import SHAPES, Places
from windtunnel.workload import Axis, Kind, Phase, Stream, Workload, Written, build, build_together, shares_units
from windtunnel.workload.blocks.quantise import weight_update
from windtunnel.workload.graph import Block
from windtunnel.workload.identity import BlockKey, BlockKind, Module
from windtunnel.workload.ops import CONTEXT_AXES, Op, OpTable
from windtunnel.workload.optimizers import Held
from windtunnel.workload.optimizers.update import TENSORS_PER_CHUNK
from windtunnel.workload.passes.fsdp import kept_root
from windtunnel.workload.passes.optimizer import held_by, optimizer_rows, updated_parameters
from windtunnel.workload.schedules import Pass, table


class Measure(IntEnum):
    """What is counted of a pass; each is a lower bound of its own and adds up over passes.

    CHAIN: longest chain on the device. HOST: seconds of the host. LOCKED: the earlier of host and device, where the host waits for
    the device inside the pass. COMPUTE: computation alone. CALLS: exchanges of tokens with experts alone.
    TENSOR: matrix products and attention alone.
    """

    CHAIN = 0
    HOST = 1
    LOCKED = 2
    COMPUTE = 3
    CALLS = 4
    TENSOR = 5


PRODUCTS = (Kind.GEMM, Kind.GROUPED_GEMM, Kind.ATTENTION, Kind.ATTENTION_BACKWARD)
"""Kernels that keep the tensor cores busy."""

_IS_PRODUCT = np.isin(np.arange(max(Kind) + 1), PRODUCTS)
_COMPUTE, _TOKENS = int(Stream.COMPUTE), int(Stream.EP)


@dataclass
class _Waiting:
    """Passes of equal form that are not measured yet: `seconds` and `host` of the rows of each, and where its measures go."""

    piece: PassRows
    streams: np.ndarray
    sync: np.ndarray
    tensor: np.ndarray
    seconds: list[Floats]
    host: list[Floats]
    places: list[Floats]


class Chains:
    """Measures passes of many workloads, all those of one form at once: the same rows in the same order, with other seconds."""

    def __init__(self, halves: bool) -> None:
        """`halves`: also of split backward passes."""
        self.ways = tuple(Pass) if halves else (Pass.FORWARD, Pass.BACKWARD)
        self._waiting: dict[tuple[object, ...], _Waiting] = {}

    def add(self, workload: Workload, costs: Costs) -> Floats:
        """[measures, passes, blocks] least seconds, which are there after `measure`; 0 for passes that are not measured."""
        runtime, ops = workload.job.runtime, workload.ops
        block_host = host_of_blocks(workload)
        out = np.zeros((len(Measure), len(Pass), len(workload.blocks)))
        pairs = np.array([(w + (-1, -1))[:2] for w in workload.waits], np.int32).reshape(-1, 2)
        for place, block in enumerate(workload.blocks):
            for way in self.ways:
                part = block.forward if way is Pass.FORWARD else block.backward
                waiting = self._of_form(ops, slice(part.start, part.stop), pairs, way)
                rows, live = part.start + waiting.piece.rows, waiting.piece.live
                seconds, host = costs.seconds[rows] * live, costs.host[rows] * live
                if len(rows):
                    (seconds if runtime.launch_blocking else host)[0] += block_host[way][place]
                waiting.seconds.append(seconds)
                waiting.host.append(host)
                waiting.places.append(out[:, way, place])
        return out

    def _of_form(self, ops: OpTable, part: slice, pairs: np.ndarray, way: Pass) -> _Waiting:
        """Where passes wait that look like this one."""
        columns = (ops.kind[part], ops.phase[part], ops.stream[part], ops.sync[part], pairs[part])
        form = (way, *(column.tobytes() for column in columns))
        if form not in self._waiting:
            index = np.arange(part.start, part.stop)
            piece = PassRows(index, pairs[part], np.ones(len(index), np.bool_), np.zeros(len(index)))
            if way in (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT):
                piece = half(ops, piece, weight=way is Pass.WEIGHT_GRADIENT)
            streams, sync, tensor = ops.stream[piece.rows], ops.sync[piece.rows] & piece.live, _IS_PRODUCT[ops.kind[piece.rows]]
            self._waiting[form] = _Waiting(replace(piece, rows=piece.rows - part.start), streams, sync, tensor, [], [], [])
        return self._waiting[form]

    def measure(self) -> None:
        """Measures all that was added."""
        for waiting in self._waiting.values():
            if waiting.places:
                for place, measures in zip(waiting.places, _measure_passes(waiting), strict=True):
                    place[:] = measures
            waiting.seconds, waiting.host, waiting.places = [], [], []


def _measure_passes(of: _Waiting) -> Floats:
    """[passes, measures] of passes of one form."""
    seconds, host = np.stack(of.seconds), np.stack(of.host)
    chain, _ = _ends(of.streams, seconds, of.piece.waits, None, of.sync)
    locked = np.zeros_like(chain)
    if of.sync.any():
        device, launched = _ends(of.streams, seconds, of.piece.waits, host, of.sync)
        locked = np.minimum(device, launched)
    alone = (seconds[:, which].sum(axis=1) for which in (of.streams == _COMPUTE, of.streams == _TOKENS, of.tensor))
    return np.stack([chain, host.sum(axis=1), locked, *alone], axis=1)


def _ends(streams: np.ndarray, seconds: Floats, waits: np.ndarray, host: Floats | None, sync: np.ndarray) -> tuple[Floats, Floats]:
    """[passes] when the compute stream and the host are done, if both are free at 0 and so is every other stream."""
    launched = none = np.zeros(len(seconds))
    free: dict[int, Floats] = {}
    ends: list[Floats] = []
    took = np.ascontiguousarray(seconds.T)
    launches = None if host is None else np.ascontiguousarray(host.T)
    stream_of = streams.tolist()
    for row, (stream, awaited, blocks) in enumerate(zip(stream_of, waits.tolist(), sync.tolist(), strict=True)):
        start = free.get(stream, none)
        if launches is not None:
            launched = launched + launches[row]
            start = np.maximum(start, launched)
        for before in awaited:
            if before >= 0 and stream_of[before] != stream:  # rows of a stream end in order
                start = np.maximum(start, ends[before])
        free[stream] = start + took[row]
        ends.append(free[stream])
        if blocks and launches is not None:
            launched = free[stream]
    return free.get(_COMPUTE, none), launched


CACHED = 1e5
"""Bytes of a launch that fit into every cache."""

SIZES = (0.0, TENSORS_PER_CHUNK / 16, TENSORS_PER_CHUNK / 4, TENSORS_PER_CHUNK)
"""Elements from which on a GPU's launches have at least some size."""

ELEMENTS = 1e9
"""Elements for which rows that are linear in them are written."""


class Update(NamedTuple):
    """Least seconds an updated element up to the gradient's norm and after it, for GPUs that update at least as many as each of
    `SIZES`; and after it for each element in low precision, sharded or not (`narrow`)."""

    rates: tuple[tuple[float, float], ...] = ((0.0, 0.0),) * len(SIZES)
    narrow: float = 0.0


class UpdateFloor:
    """Updates of the cells of a frame, on the fastest of `kinds` of its GPUs."""

    def __init__(self, kinds: Sequence[Cluster]) -> None:
        self.kinds = kinds
        self._rates: dict[tuple[object, ...], float] = {}

    def of(self, job: Job, held: Held) -> Update:
        """The update of a job of `cells.one_stage_job` that has `held` before sharding."""
        elements = updated_parameters(job, held.elements, held.experts)
        if elements < 1.0 or job.plan.offload.updated_away:
            return Update()
        chunks = max(1, -(-int(elements) // TENSORS_PER_CHUNK))
        rates = np.zeros((len(SIZES), 2))
        for part, rows in enumerate(optimizer_rows(job, held)):
            for row in rows:
                if row.kind is Kind.COMM or row.n != int(elements):
                    continue
                width, times = row.bytes / elements, row.launches / chunks
                for place, size in enumerate(SIZES if times.is_integer() else ()):
                    launch = min(size, TENSORS_PER_CHUNK / 2.0) * width / times
                    rates[place, part] += width * self._seconds(job, row, max(CACHED, launch))
                if not times.is_integer():
                    rates[:, part] += width * self._seconds(job, row, CACHED)
        quantised = weight_update(job, ELEMENTS, 0.0)
        narrow = sum(row.bytes / ELEMENTS * self._seconds(job, row, CACHED) for row in quantised)
        return Update(tuple((ahead, after) for ahead, after in rates.tolist()), narrow)

    def _seconds(self, job: Job, row: Op, moved: float) -> float:
        """Seconds a byte of a launch of such a row that moves so many, without what a launch takes."""
        key = (row.kind, row.role, job.runtime.framework, job.runtime.launch, round(moved))
        if key not in self._rates:
            of = Op(row.name, row.kind, Phase.OPTIMIZER, Module.OPTIMIZER, row.dtype, bytes=moved, role=row.role)
            table = OpTable.of([of, of._replace(bytes=0.0)])
            factor = 1.0 if job.calibration is None else float(np.min(kernel_factors(table, job.calibration)))
            took = [estimate(table, kind.gpu, job.kernel_runtime).seconds for kind in self.kinds]
            self._rates[key] = max(0.0, min(float(with_bytes - without) for with_bytes, without in took)) * factor / moved
        return self._rates[key]


SPLIT = ("zb-h1", "zb-h2", "interleaved-zb", "zbv", "dualpipe", "dualpipev")
"""Schedules that may run the halves of a backward pass apart."""


@dataclass(frozen=True)
class PipelineLayout:
    """`keys` of the blocks as `keys_without_policy` has them; `counts` [parts, blocks]: repeats of each block in each part of the
    model; `places`: parts of each stage's virtual stages.

    `copies` of the model are in one pipeline. `pairs`: some passes run beside each other; `split`: backward passes run in halves.
    `crosses` [parts]: whether a transfer comes before the part (the first never).
    """

    pp: int
    vpp: int
    schedule: str
    keys: tuple[BlockKey, ...]
    counts: Floats
    places: Places
    copies: int
    pairs: bool
    split: bool
    crosses: Bools

    @cached_property
    def stage_parts(self) -> Int64s:
        """[stages, virtual stages]: `places` as an array."""
        return np.array(self.places, np.int64)

    @cached_property
    def stage_counts(self) -> Floats:
        """[stages, blocks]: repeats of each block on each stage."""
        return np.stack([self.counts[list(parts)].sum(axis=0) for parts in self.places])


def with_few_batches(job: Job) -> Job:
    """`job` with few micro batches, which do not change the layout."""
    plan = job.plan
    shape = SHAPES[plan.schedule_name]
    rounds = max(shape.least, 2 if shape.even or job.runtime.moe_a2a_overlap else 1)
    return Change.of(plan__global_batch=plan.micro_batch * job.dp * plan.pp * rounds, unequal=None).apply_unchecked(job)


def keys_without_policy(blocks: Sequence[Block], recompute: str) -> tuple[BlockKey, ...]:
    """Keys of blocks, without the policy of those layers that have the plan's own: plans differ in it, but not in their layout."""
    keys = [block.key for block in blocks]
    return tuple(replace(key, recompute="") if key.layer is not None and key.recompute == recompute else key for key in keys)


def layout_of(job: Job) -> PipelineLayout:
    """The layout of a job's pipeline. Raises as `spec.check` and `build` do."""
    workload = build(check(with_few_batches(job)))
    plan = job.plan
    parts = plan.pp * plan.vpp if job.copies == 1 else plan.pp
    counts = np.zeros((parts, len(workload.blocks)))
    for stage, chunks in enumerate(workload.stages):
        for chunk, part in zip(chunks, job.places[stage], strict=True):
            counts[part] = 0.0
            for block, times in chunk.blocks:
                counts[part, block] += times
    paired = any(table(order)[:, 3].any() for order in workload.schedule)
    split = any(action.direction is Pass.INPUT_GRADIENT for order in workload.schedule for action in order)
    crosses = np.array([False, *crossed_boundaries(job)])
    keys = keys_without_policy(workload.blocks, plan.recompute)
    return PipelineLayout(plan.pp, plan.vpp, plan.schedule_name, keys, counts, job.places, job.copies, paired, split, crosses)


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
        return tuple(host_of_pass(self.job, way) for way in Pass)


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
