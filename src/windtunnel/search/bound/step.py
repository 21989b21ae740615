"""A lower bound of the time of a step, for columns of plans.

A stage's first pass waits for the forward passes of all parts of the model before it, and after its last backward pass the parts
before it still run theirs. In between the stage runs its own passes of every micro batch. So with `head` and `tail`

    step >= head + micro batches * work + tail        for every stage

whatever the schedule, and plain and interleaved 1F1B reach it where stages are equal. Then come the calls and kernels that end a
step: the gradients' reduction as far as nothing hides it, their norm, the update, the gather of parameters. Host and streams of
calls give bounds of their own; the largest of all counts. What is left out (waits for each other's transfers, SMs that calls take,
buckets' latency) only makes a step longer. Which calls there are, and who waits for them, `predict.program.demands` says.

Least seconds of a step's calls between blocks, for columns of plans.

Which calls there are, and when, `predict.program.demands` says of each job. Here its rows become columns over jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.compute.cpu import cpu_seconds, update_bytes
from windtunnel.network.groups.shape import group
from windtunnel.predict.price.calibrated import call_factor
from windtunnel.predict.program import demands
from windtunnel.predict.program.demands import Demand, Moment, Quantity, Widths
from windtunnel.predict.program.offload import cpu_memory_rate
from windtunnel.predict.ranks.places import Ranks, ranks_of
from windtunnel.search.bound.cells import SIZES
from windtunnel.search.bound.stack import ELEMENTS, CallFloor, CellStack, Staged
from windtunnel.spec import Job, Runtime
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.workload import Axis, Stream
from windtunnel.workload.passes.optimizer import updated_parameters

AXES = 1 + max(Axis)
"""Numbers of axes."""

Numbers = dict[object, dict[int, int]]
"""Numbers of calls over an axis, which are numbers too, for each way to split the ranks."""


class DemandColumn(NamedTuple):
    """The same row of K jobs: `numbers` [K]: those of its call over each job's group of ranks; `width` [K]: bytes for each of what
    it is `of`; `factor` [K]: that of the calibration, if there is one."""

    of: Quantity
    moment: Moment
    stream: Stream
    numbers: Int64s
    width: Floats
    factor: Floats | None

    @property
    def call(self) -> object:
        """What its seconds depend on."""
        return self.of, self.numbers.tobytes(), self.width.tobytes(), None if self.factor is None else self.factor.tobytes()


def least_widths(runtime: Runtime) -> Widths:
    """At most the widths in a job, whatever share of its parameters is quantised."""
    each = (demands.widths_of(runtime, 1.0, quantised) for quantised in (0.0, 1.0))
    return Widths(*map(min, zip(*each, strict=True)))


class DemandFloor:
    """Calls of K `jobs`, as far as they are of what is `counted`."""

    def __init__(self, jobs: Sequence[Job], calls: CallFloor, numbers: Numbers, counted: Collection[Quantity]) -> None:
        """`numbers`: cache of calls' numbers, shared by all floors of a frame."""
        self.jobs, self.calls, self.counted = jobs, calls, {*counted, Quantity.BOUNDARY, Quantity.CALL}
        self.widths = least_widths(jobs[0].runtime)  # which has no degrees
        self._numbers = [numbers.setdefault(_split_of(job), {}) for job in jobs]
        self._known: list[tuple[list[tuple[Demand, ...]], list[DemandColumn]]] = []

    def transfers(self, sequence_parallel: bool) -> list[DemandColumn]:
        """Calls of one transfer between stages."""
        return self._columns([demands.transfers(job, sequence_parallel) for job in self.jobs])

    def gathers(self, overlap_param_gather: bool) -> list[DemandColumn]:
        """Calls that gather parameters."""
        return self._columns([demands.parameter_gathers(job, self.widths, overlap_param_gather) for job in self.jobs])

    def reductions(self, overlap_grad_reduce: bool, overlap_param_gather: bool) -> list[DemandColumn]:
        """Calls that reduce gradients."""
        switches = overlap_grad_reduce, overlap_param_gather
        return self._columns([demands.gradient_reductions(job, self.widths, *switches) for job in self.jobs])

    def norm(self) -> float:
        """Seconds of the norm's reduction."""
        columns = self._columns([(demands.norm_reduction(job),) for job in self.jobs])
        case = np.arange(len(self.jobs))
        return sum(float(self.seconds(column, case, np.ones(len(case))).min()) for column in columns)

    def seconds(self, column: DemandColumn, case: Int64s, amounts: Floats) -> Floats:
        """Seconds of a call for so much of what it is `of`, [U, ...] `amounts` of the jobs with these numbers [U]."""
        of_rows = (-1, *(1,) * (amounts.ndim - 1))
        seconds = self.calls.seconds(column.numbers[case], amounts * column.width[case].reshape(of_rows))
        return seconds if column.factor is None else np.asarray(seconds * column.factor[case].reshape(of_rows), np.float64)

    def _columns(self, rows: list[tuple[Demand, ...]]) -> list[DemandColumn]:
        """The rows of all jobs, place by place, without those that are no call in any. Where there is nothing to send, there need
        be no group of ranks either."""
        for known, columns in self._known:  # enumerations are slow to hash, and fast to compare
            if rows == known:
                return columns
        columns = [
            self._column(alike)
            for alike in zip(*rows, strict=True)
            if alike[0].of in self.counted and any(row.axis for row in alike)
        ]
        self._known.append((rows, columns))
        return columns

    def _column(self, rows: Sequence[Demand]) -> DemandColumn:
        """One row of each job. AssertionError if they are not of the same, at the same moment, on the same stream."""
        of, moment, stream = rows[0].of, rows[0].moment, rows[0].stream
        if not all(row.of is of and row.moment is moment and row.stream is stream for row in rows):
            raise AssertionError(f"calls of jobs in one floor differ: {set(rows)}")
        numbers = np.array([self._number(place, row) for place, row in enumerate(rows)], np.int64)
        width = np.array([row.size(1.0) for row in rows])
        calibration = self.jobs[0].calibration
        factor = None if calibration is None else np.array([call_factor(row.axis, calibration) for row in rows])
        return DemandColumn(of, moment, stream, numbers, width, factor)

    def _number(self, place: int, row: Demand) -> int:
        """The number of a row's call over the group of ranks that a job has."""
        known, call = self._numbers[place], row.comm * AXES + row.axis
        if call not in known:
            known[call] = self.calls.no_call()
            if row.axis:
                with suppress(ValueError, SpecError):  # no such groups: the plan contradicts itself, as its prediction would say
                    known[call] = self.calls.number(row.comm, group(self.jobs[place], row.axis))
        return known[call]


def _split_of(job: Job) -> object:
    """All that a job's groups of ranks depend on, in a frame."""
    plan = job.plan
    ranks = (plan.tp, plan.cp, plan.pp, plan.ep, plan.etp, job.dp, job.shard_ranks, job.expert_shard_ranks, job.near_ranks)
    return ranks, plan.placement, job.cp_sizes


COUNTED = {Quantity.DENSE: "dense", Quantity.EXPERTS: "experts", Quantity.GATHERED: "sharded", Quantity.AGAIN: "again"}
"""What calls may be of, and the column of `ELEMENTS` that counts it. Calls of anything else are left out."""

CHUNK = 4096
"""Plans whose bounds are computed at once."""


@dataclass(frozen=True)
class PlanRows:
    """N plans of a `StepFloor`: `pair`, places in its pairs; `micro_batches`; and the runtime's switches of these names."""

    pair: Int64s
    micro_batches: Int64s
    overlap_grad_reduce: Bools
    overlap_param_gather: Bools
    overlap_p2p: Bools

    def take(self, rows: Int64s | slice) -> PlanRows:
        return PlanRows(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def parts(self) -> Iterator[tuple[slice, PlanRows]]:
        """The rows in parts that stay in a processor's cache."""
        for start in range(0, len(self.pair), CHUNK):
            part = slice(start, start + CHUNK)
            yield part, self.take(part)


@dataclass(frozen=True)
class Pairs:
    """Q pairs of a cell and a layout that plans have: places [Q] in a stack and in the layouts of what is staged of it."""

    stack: CellStack
    staged: Staged
    cell: Int64s
    layout: Int64s

    def take_pairs(self, values: Floats) -> Floats:
        """Those of [C, L, ...] `values` that belong to the pairs."""
        return np.asarray(values[self.cell, self.layout], np.float64)

    def of_layout(self, values: list[bool] | list[int]) -> Int64s:
        """[Q] from values of each layout."""
        return np.array(values, np.int64)[self.layout]


@dataclass(frozen=True)
class Cases:
    """K `jobs` that differ in tp, cp, ep and etp, what follows from them, and what cells contain; `of` [Q]: that of each pair."""

    jobs: tuple[Job, ...]
    of: Int64s

    def column(self, value: Callable[[Job], float]) -> Floats:
        """[K] a number of each job."""
        return np.array([value(job) for job in self.jobs], np.float64)


class SwitchValues(NamedTuple):
    """[D * Q, ...] values of Q pairs, D times, and `begins` [T]: the place where those that each of T switches has begin."""

    values: Floats
    begins: Int64s

    @classmethod
    def of(cls, arrays: Sequence[Floats]) -> SwitchValues:
        """From the values that each of the switches has, of which some may be the same object."""
        different = {id(array): array for array in arrays}
        places = {key: place * len(arrays[0]) for place, key in enumerate(different)}
        return cls(np.concatenate(list(different.values())), np.array([places[id(array)] for array in arrays]))

    def take(self, switches: Int64s, pair: Int64s) -> Floats:
        """[N, ...] for the places [N] of switches and of pairs."""
        return self.values.take(self.begins[switches] + pair if self.begins.any() else pair, axis=0)


class StepFloor:
    """Bounds of plans; each job differs from one of `cases` only in what cells contain, in the layout, in the batch and in
    `PlanRows`.

    All layouts have the stages of the jobs and their copies of the model. Elements [U, L, S] and what follows from them have a row
    for each job and cell whose elements differ; all else has one for each pair of a cell and a layout.
    """

    def __init__(self, cases: Cases, pairs: Pairs, calls: CallFloor, numbers: Numbers) -> None:
        """`numbers`: cache of calls' numbers, shared by all floors of a frame."""
        self.cases, self.pairs = cases, pairs
        self.job = cases.jobs[0]
        self.stack, self.staged = pairs.stack, pairs.staged
        counted = [of for of, name in COUNTED.items() if self.stack.elements[:, ELEMENTS.index(name)].any()]
        self.demands = DemandFloor(cases.jobs, calls, numbers, counted)
        used, self.of = np.unique(cases.of * len(self.stack.elements) + self.stack.of[pairs.cell], return_inverse=True)
        self.case, self.used = np.divmod(used, len(self.stack.elements))  # [U]
        self._known: dict[object, Floats] = {}  # seconds of calls

    def seconds(self, rows: PlanRows) -> Floats:
        """[N] least seconds of a step."""
        staged, each, layouts = self.staged, self.pairs.take_pairs, self.staged.layouts
        send = self._transfer_seconds()[:, None]  # [Q, 1]
        head_sends, sends = staged.head_sends[self.pairs.layout], staged.sends[self.pairs.layout]
        heads, tails = each(staged.head) + head_sends * send, each(staged.tail) + head_sends * send
        of_switches, streams, behind, finishes, after = self._calls(rows)
        work, before_weights = np.maximum(each(staged.work), self._slowest_work()), each(staged.before_weights)
        first = self.pairs.of_layout([int(np.flatnonzero((of.stage_parts == 0).any(axis=1))[0]) for of in layouts])
        waits = self._sender_waits()
        split = self.pairs.of_layout([of.split for of in layouts]) > 0
        norm, out, reduces = self.demands.norm(), np.empty(len(rows.pair)), behind.values.any()
        before_norm = self._kernel_seconds(0)
        for part, some in rows.parts():
            pair, runs = some.pair, (some.micro_batches // self.job.copies).astype(np.float64)[:, None]
            under = of_switches[part], pair
            blocked = waits[some.overlap_p2p.astype(np.int64), pair]
            between = np.maximum(0.0, runs * sends[pair] - 1.0) * send[pair] * blocked[:, None]
            head, finish = heads[pair] + between, finishes.take(*under)
            turned = np.maximum(head + runs * work[pair], runs * streams.take(*under))
            ends = turned + finish
            if reduces:  # the stages before do not wait for these
                ends = np.maximum(ends, runs * behind.take(*under) + before_norm[pair])
            if split.any():
                turned = np.where(split[pair, None], head + runs * before_weights[pair], turned)
            at_first = finish[np.arange(len(pair)), first[pair]]
            whole = np.maximum(ends.max(axis=1), (turned + tails[pair]).max(axis=1) + at_first)
            out[part] = whole + norm + after.take(*under)
        return out

    def _slowest_work(self) -> Floats:
        """[Q, S] work of each stage's slowest rank, if ranks differ."""
        by_kind = self.pairs.take_pairs(self.staged.by_kind)  # [Q, 2, kinds, S]
        out = np.asarray(by_kind[:, 0, 0], np.float64)
        if self.job.unequal is None:
            return out
        out = np.zeros_like(out)
        for case, (job, ranks) in enumerate(zip(self.cases.jobs, self._ranks, strict=True)):
            mine = self.cases.of == case
            for stage in range(job.plan.pp):
                here = ranks.places.stage == stage
                for kind in np.unique(ranks.kind[here]).tolist():
                    slow = float(ranks.slow[here & (ranks.kind == kind)].max())
                    chain, compute = by_kind[mine, 0, kind, stage], by_kind[mine, 1, kind, stage]
                    out[mine, stage] = np.maximum(out[mine, stage], np.maximum(chain, slow * compute))
        return out

    @cached_property
    def _ranks(self) -> tuple[Ranks, ...]:
        """The ranks of each case, if they differ."""
        unequal = self.job.unequal
        if unequal is None:
            return ()
        return tuple(ranks_of(job, unequal, np.zeros(len(unequal.links), np.bool_)) for job in self.cases.jobs)

    def _of_pairs(self, values: Floats) -> Floats:
        """[Q, ...] from [U, L, ...]."""
        return np.asarray(values[self.of, self.pairs.layout], np.float64)

    def _transfer_seconds(self) -> Floats:
        """[Q] seconds of a transfer between stages."""
        out, parallel = np.zeros(len(self.pairs.cell)), self.stack.sequence_parallel[self.pairs.cell]
        for flag in np.unique(parallel).tolist():
            mine = parallel == flag
            of, sizes = self.cases.of[mine], self.stack.boundary[self.pairs.cell[mine]]
            for column in self.demands.transfers(flag):
                out[mine] += self.demands.seconds(column, of, sizes)
        return out

    def _sender_waits(self) -> Bools:
        """[2, Q] whether the sender's next pass waits for a transfer, without and with `overlap_p2p`."""
        each = [[demands.sender_waits(layout.schedule, overlap) for layout in self.staged.layouts] for overlap in (False, True)]
        return np.array(each)[:, self.pairs.layout]

    def _calls(self, rows: PlanRows) -> tuple[Int64s, SwitchValues, SwitchValues, SwitchValues, SwitchValues]:
        """[N] which of T switches each row has; for each of these `_stream_seconds`, `_reduction_seconds`, `_finish_seconds` and
        `_update_seconds`."""
        codes, of_row = np.unique(rows.overlap_grad_reduce * 2 + rows.overlap_param_gather, return_inverse=True)
        gathers = {flag: self.demands.gathers(flag) for flag in np.unique(rows.overlap_param_gather).tolist()}
        found = []
        for code in codes.tolist():
            grad_reduce, param_gather = code > 1, code % 2 > 0
            columns = [*gathers[param_gather], *self.demands.reductions(grad_reduce, param_gather)]
            of = {moment: [column for column in columns if column.moment is moment] for moment in Moment}
            ahead = of[Moment.BEFORE_FORWARD] + of[Moment.BEFORE_BACKWARD]
            # a pass that waits for gathers takes longer than its own kernels, and hides more
            last = [] if ahead else of[Moment.AFTER_LAST_BACKWARD]
            found.append(
                (
                    self._seconds_once(self._stream_seconds, ahead),
                    self._seconds_once(self._reduction_seconds, of[Moment.AFTER_BACKWARD], ahead),
                    self._seconds_once(self._finish_seconds, last, of[Moment.AFTER_PASSES]),
                    self._seconds_once(self._update_seconds, of[Moment.AFTER_UPDATE]),
                )
            )
        paced, behind, finish, after = (SwitchValues.of(each) for each in zip(*found, strict=True))
        return of_row, paced, behind, finish, after

    def _seconds_once(self, seconds: Callable[..., Floats], *columns: list[DemandColumn]) -> Floats:
        """The seconds of some calls, the same object for the same calls."""
        key = seconds.__name__, *(tuple((column.stream, column.call) for column in some) for some in columns)
        if key not in self._known:
            self._known[key] = seconds(*columns)
        return self._known[key]

    def _stream_seconds(self, ahead: list[DemandColumn]) -> Floats:
        """[Q, S] seconds of a micro batch on its slowest stream beside that of computation, or on the host."""
        each, staged = self.pairs.take_pairs, self.staged
        passes = np.maximum(np.maximum(each(staged.host), each(staged.locked)), each(staged.calls))
        return np.maximum(passes, self._busiest_stream(ahead)) if ahead else passes

    def _reduction_seconds(self, reductions: list[DemandColumn], ahead: list[DemandColumn]) -> Floats:
        """[Q, S] seconds of a micro batch on the slowest stream that the update waits for, but no pass."""
        streams = {column.stream for column in reductions}
        return self._busiest_stream([*reductions, *(column for column in ahead if column.stream in streams)])

    def _finish_seconds(self, last: list[DemandColumn], end: list[DemandColumn]) -> Floats:
        """[Q, S] seconds between the last backward pass and the gradients' norm."""
        out = kernels = self._kernel_seconds(0)
        for stream in {column.stream for column in (*last, *end)}:
            exposed = self._exposed_seconds([column for column in last if column.stream is stream])
            behind = self._busiest_stream([column for column in end if column.stream is stream])
            out = np.maximum(out, kernels + exposed + behind)
        return out

    def _update_seconds(self, gathers: list[DemandColumn]) -> Floats:
        """[Q] seconds behind the norm, on the slowest stage."""
        return np.asarray((self._kernel_seconds(1) + self._busiest_stream(gathers)).max(axis=1), np.float64)

    def _busiest_stream(self, columns: list[DemandColumn]) -> Floats:
        """[Q, S] seconds of these calls on their slowest stream."""
        streams: dict[int, Floats] = {}
        for column in columns:
            seconds = self._stage_seconds(column)
            streams[column.stream] = streams[column.stream] + seconds if column.stream in streams else seconds
        if not streams:
            return np.zeros((len(self.of), self.job.plan.pp))
        return self._of_pairs(reduce(np.maximum, streams.values()))

    def _stage_seconds(self, column: DemandColumn) -> Floats:
        """[U, L, S] seconds of a call for all that a stage has."""
        call = column.call
        if call not in self._known:
            elements = self.staged.elements[self.used, ELEMENTS.index(COUNTED[column.of])]
            if column.of is Quantity.AGAIN and (reuse := self.job.runtime.reuse_distance) is not None:
                largest = self.stack.elements[self.used, ELEMENTS.index("again")].max(axis=1)
                parts = self.staged.part_elements[self.used, ELEMENTS.index("again")]
                elements = np.maximum(0.0, parts - reuse - largest[:, None, None, None]).sum(axis=3)  # the others may stay
            self._known[call] = self.demands.seconds(column, self.case, elements)
        return self._known[call]

    def _exposed_seconds(self, columns: list[DemandColumn]) -> Floats:
        """[Q, S] seconds of calls of one stream that the slowest rank's last backward pass of a virtual stage leaves open."""
        parts = self.staged.part_elements  # [W, 7, L, S, V]
        reduced = np.zeros(())
        for column in columns:
            elements = parts[self.used, ELEMENTS.index(COUNTED[column.of])]
            reduced = reduced + self.demands.seconds(column, self.case, elements)
        if not reduced.ndim:
            return reduced
        slowest = max((1.0, *(float(ranks.slow.max()) for ranks in self._ranks)))
        exposed = self._of_pairs(reduced) - self.pairs.take_pairs(self.staged.last) * slowest
        return np.asarray(np.maximum(0.0, exposed.min(axis=2)), np.float64)

    def _kernel_seconds(self, part: int) -> Floats:
        """[Q, S] seconds of the update up to the norm (0) or after it (1), on the GPU or by the CPUs."""
        share = self.job.plan.offload.updated_away
        updated = self._updated_elements
        size = np.searchsorted(SIZES, updated, side="right") - 1
        seconds = np.asarray(updated * self.stack.update[self.pairs.cell[:, None], size, part], np.float64)
        if part == 1 and self.stack.narrow.any():
            quantised = self._of_pairs(self.staged.elements[self.used, ELEMENTS.index("quantised")])
            seconds += quantised * self.stack.narrow[self.pairs.cell][:, None]
        if not share or part == 0:
            return seconds
        width = DTYPE_BYTES[self.job.runtime.gradient_dtype]
        each = cpu_seconds(update_bytes(self.job, width), cpu_memory_rate(self.job.cluster))
        return np.maximum(seconds, updated * share * each)

    @cached_property
    def _updated_elements(self) -> Floats:
        """[Q, S] elements that a GPU updates."""
        shares = np.array([(updated_parameters(job, 1.0), updated_parameters(job, 1.0, 1.0)) for job in self.cases.jobs])
        dense, experts = (self.staged.elements[self.used, ELEMENTS.index(name)] for name in ("dense", "experts"))
        of_dense, of_experts = shares[self.case].T[:, :, None, None]
        return self._of_pairs(dense * of_dense + experts * of_experts)
