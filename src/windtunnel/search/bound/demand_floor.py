"""Least seconds of a step's calls between blocks, for columns of plans.

Which calls there are, and when, `predict.program.demands` says of each job. Here its rows become columns over jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.errors import SpecError
from windtunnel.network.groups.shape import group
from windtunnel.predict.price.calibrated import call_factor
from windtunnel.predict.program import demands
from windtunnel.predict.program.demands import Demand, Moment, Quantity, Widths
from windtunnel.search.bound.call_floor import CallFloor
from windtunnel.spec import Job, Runtime
from windtunnel.workload import Axis, Stream

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
