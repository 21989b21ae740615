"""Steps of equal ranks whose middle repeats: a few periods of it are run, and the rest is more of the same.

See docs/decisions/0058-folded-steady-state.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.engine import Program, Timeline, run
from windtunnel.predict.category import Task
from windtunnel.predict.price.calls import CallKey
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.program.lower import MOST_INSTANCES, MOST_OPERATORS, Lowered, finish_program, write_stages
from windtunnel.predict.program.periods import Periods, periods_of, without_periods
from windtunnel.predict.program.pipeline import PipelineTransfers
from windtunnel.predict.program.stage import Stage
from windtunnel.predict.runs.steady import SteadyPeriods, behind_moves, steady_state
from windtunnel.workload import Workload
from windtunnel.workload.graph import Orders
from windtunnel.workload.schedules import fewer_micro_batches, micro_batches_of_period

MOST_TRIED = 0.3
"""Micro batches of all shorter steps that are tried, as a share of the step's: what a step without a steady state costs more."""

PERIODS = (2, 12)
"""Periods of the shorter steps that are tried, one after the other."""

PERIODS_OF = {"dualpipe": (6, 12)}
"""The same of schedules that are steady later: DualPipe's two directions meet in the middle of the pipeline first."""


@dataclass(frozen=True)
class FoldedStep:
    """The accounts of a step that was not run in full.

    `workload` and `lowered` are those of a shorter step, but `lowered.calls` count the whole one. `timeline`: makespan, accounts
    and ends of ranks are of the whole step, its instances are those of the shorter one.
    """

    workload: Workload
    lowered: Lowered
    timeline: Timeline


class _Shorter(NamedTuple):
    """A run of fewer micro batches, and one of fewer yet, by the periods of `steady`."""

    lowered: Lowered
    stages: Sequence[Stage]
    whole: Timeline
    less: Timeline
    periods: tuple[Periods, ...]
    steady: SteadyPeriods


def fold(workload: Workload, costs: Costs) -> FoldedStep | None:
    """The step of `workload` from a shorter one; None if its schedule does not repeat, or it does not reach a steady state within
    the micro batches that may be tried."""
    job, plan = workload.job, workload.job.plan
    shape = (plan.schedule_name, plan.pp, plan.vpp, job.micro_batches)
    period = micro_batches_of_period(*shape, job.runtime.moe_a2a_overlap)
    if period is None:
        return None
    tried = 0
    for periods in PERIODS_OF.get(plan.schedule_name, PERIODS):
        fewer = fewer_micro_batches(*shape, periods, job.runtime.moe_a2a_overlap)
        if fewer is None or (tried := tried + fewer) > MOST_TRIED * job.micro_batches:
            return None
        shorter = _run_shorter(replace(workload, schedule=Orders(job, fewer)), costs, period // job.copies)
        if shorter is None:
            continue
        together = period * shorter.steady.together
        if (job.micro_batches - fewer) % together:
            return None
        return _extend(replace(workload, schedule=Orders(job, fewer)), costs, shorter, (job.micro_batches - fewer) // together)
    return None


def _run_shorter(workload: Workload, costs: Costs, step: int) -> _Shorter | None:
    """Runs a shorter step; None if it has no steady state."""
    builder, stages = write_stages(workload, costs)
    lowered = finish_program(builder, stages)
    program = lowered.program
    if _is_too_long(workload, program):
        return None
    periods = []
    for rank, labels in enumerate(lowered.labels):
        of = periods_of(program, rank, labels, step)
        if of is None or of.number < 3:
            return None
        periods.append(of)
    found = tuple(periods)
    whole = run(program, "all", critical_path=False)
    steady = steady_state(program, whole, found)
    if steady is None:
        return None
    cut = without_periods(program, found, steady.together)
    if cut is None:
        return None
    less = run(cut, critical_path=False)
    return _Shorter(lowered, stages, whole, less, found, steady) if behind_moves(whole, less, found, steady) else None


def _is_too_long(workload: Workload, program: Program) -> bool:
    """Whether the whole step is one that `lower` refuses, or nearly so: it gives the reason."""
    times = workload.job.micro_batches * workload.job.plan.pp / sum(map(len, workload.schedule))
    passes = 2.0 * workload.job.plan.vpp
    more = times * passes
    size = np.append(np.diff(program.template_start), 1)[program.template]
    operators = int((size * program.times).sum())
    return more * len(program.template) > 0.8 * MOST_INSTANCES or more * operators > 0.8 * MOST_OPERATORS


def _extend(workload: Workload, costs: Costs, shorter: _Shorter, more: int) -> FoldedStep:
    """The step with `more` times the periods of its steady state."""
    whole, less = shorter.whole, shorter.less

    def grow(longer: Floats, short: Floats) -> Floats:
        return np.asarray(longer + more * (longer - short))

    timeline = replace(
        whole,
        makespan=whole.makespan + more * shorter.steady.seconds,
        ops=whole.ops + more * (whole.ops - less.ops),
        busy=grow(whole.busy, less.busy),
        idle=grow(whole.idle, less.idle),
        stretch=grow(whole.stretch, less.stretch),
        rank_end=grow(whole.rank_end, less.rank_end),
        host_end=grow(whole.host_end, less.host_end),
    )
    transfers = PipelineTransfers(workload, costs)
    calls = []
    for stage, labels, of, counted in zip(
        shorter.stages, shorter.lowered.labels, shorter.periods, shorter.lowered.calls, strict=True
    ):
        in_period = _calls(stage, transfers, labels[:, 0], of, shorter.steady.together)
        calls.append(counted + Counter({key: more * number for key, number in in_period.items()}))
    return FoldedStep(workload, replace(shorter.lowered, calls=tuple(calls)), timeline)


def _calls(stage: Stage, transfers: PipelineTransfers, tasks: np.ndarray, of: Periods, together: int) -> Counter[CallKey]:
    """Calls of a stage in the periods that repeat together."""
    first = of.last - together * of.size
    counts = Counter(key for instance, key in stage.collectives if first <= instance < of.last)
    for key, task in ((transfers.sent, Task.SEND), (transfers.gathered, Task.RECEIVE)):
        number = int((tasks[first : of.last] == task).sum())
        if key is not None and number:
            counts[key] += number
    return counts
