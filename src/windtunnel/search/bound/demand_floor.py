"""Least seconds of a step's calls between blocks, for columns of plans.

Which calls there are, and when, `predict.program.demands` says of each job. Here its rows become columns over jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.network.groups.shape import group
from windtunnel.predict.price.calibrated import call_factor
from windtunnel.predict.program import demands
from windtunnel.predict.program.demands import Demand, Moment, Quantity, Switches, Widths
from windtunnel.search.bound.call_floor import CallFloor
from windtunnel.spec import Job
from windtunnel.workload import Axis, Comm, Stream

Numbers = dict[object, dict[tuple[Comm, Axis], int]]
"""Numbers of calls over an axis, for each way to split the ranks."""


class DemandColumn(NamedTuple):
    """The same row of K jobs: `numbers` [K]: those of its call over each job's group of ranks; `width` [K]: bytes for each of what
    it is `of`; `factor` [K]: that of the calibration."""

    of: Quantity
    moment: Moment
    stream: Stream
    numbers: Int64s
    width: Floats
    factor: Floats

    @property
    def call(self) -> object:
        """What its seconds depend on."""
        return self.of, self.numbers.tobytes(), self.width.tobytes(), self.factor.tobytes()


def least_widths(job: Job) -> Widths:
    """At most the widths of a job, whatever share of its parameters is quantised."""
    each = (demands.widths_of(job, 1.0, quantised) for quantised in (0.0, 1.0))
    return Widths(*map(min, zip(*each, strict=True)))


class DemandFloor:
    """Calls of K `jobs`, as far as they are of what is `counted`."""

    def __init__(self, jobs: Sequence[Job], calls: CallFloor, numbers: Numbers, counted: Collection[Quantity]) -> None:
        """`numbers`: cache of calls' numbers, shared by all floors of a frame."""
        self.jobs, self.calls, self.counted = jobs, calls, {*counted, Quantity.BOUNDARY, Quantity.CALL}
        self.widths = [least_widths(job) for job in jobs]
        self._numbers = [numbers.setdefault(_split_of(job), {}) for job in jobs]
        self._factors: dict[Axis, float] = {}
        self._known: list[tuple[list[tuple[Demand, ...]], list[DemandColumn]]] = []

    def transfers(self, switches: Switches) -> list[DemandColumn]:
        """Calls of one transfer between stages."""
        return self._columns([demands.transfers(job, switches) for job in self.jobs])

    def gathers(self, switches: Switches) -> list[DemandColumn]:
        """Calls that gather parameters."""
        return self._columns([demands.parameter_gathers(*each, switches) for each in zip(self.jobs, self.widths, strict=True)])

    def reductions(self, switches: Switches) -> list[DemandColumn]:
        """Calls that reduce gradients."""
        return self._columns([demands.gradient_reductions(*each, switches) for each in zip(self.jobs, self.widths, strict=True)])

    def norm(self) -> float:
        """Seconds of the norm's reduction."""
        columns = self._columns([(demands.norm_reduction(job),) for job in self.jobs])
        case = np.arange(len(self.jobs))
        return sum(float(self.seconds(column, case, np.ones(len(case))).min()) for column in columns)

    def seconds(self, column: DemandColumn, case: Int64s, amounts: Floats) -> Floats:
        """Seconds of a call for so much of what it is `of`, [U, ...] `amounts` of the jobs with these numbers [U]."""
        moved, factor = (each[case].reshape(-1, *(1,) * (amounts.ndim - 1)) for each in (column.width, column.factor))
        return np.asarray(self.calls.seconds(column.numbers[case], amounts * moved) * factor, np.float64)

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
        alike = {(row.of, row.moment, row.stream) for row in rows}
        if len(alike) > 1:
            raise AssertionError(f"calls of jobs in one floor differ: {alike}")
        numbers = np.array([self._number(place, row) for place, row in enumerate(rows)], np.int64)
        width = np.array([row.size(1.0) for row in rows])
        factor = np.array([self._factor(row.axis) for row in rows])
        return DemandColumn(*alike.pop(), numbers, width, factor)

    def _factor(self, axis: Axis) -> float:
        if axis not in self._factors:
            self._factors[axis] = call_factor(axis, self.jobs[0].calibration)
        return self._factors[axis]

    def _number(self, place: int, row: Demand) -> int:
        """The number of a row's call over the group of ranks that a job has."""
        known, call = self._numbers[place], (row.comm, row.axis)
        if call not in known:
            known[call] = self.calls.no_call()
            if row.axis:
                with suppress(ValueError):  # no such groups: the plan contradicts itself, as its prediction would say
                    known[call] = self.calls.number(row.comm, group(self.jobs[place], row.axis))
        return known[call]


def _split_of(job: Job) -> object:
    """All that a job's groups of ranks depend on, in a frame."""
    plan = job.plan
    ranks = (plan.tp, plan.cp, plan.pp, plan.ep, plan.etp, job.dp, job.shard_ranks, job.expert_shard_ranks, job.near_ranks)
    return ranks, plan.placement, job.cp_sizes
