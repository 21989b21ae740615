"""Steps of equal ranks: all calls in closed form, or all but those of the whole job over a network engine.

Steps of equal ranks whose middle repeats: a few periods of it are run, and the rest is more of the same.

See docs/decisions/0058-folded-steady-state.md.

Whether the middle of a step is steady: each period runs as the one before it, later by the same time.

An operator starts at the latest of the times that it waits for, and the compute tax looks at what is in flight; both stay the
same if all times move by the same amount. So where every event of a stretch of time lies one period's time behind the same event
a period before, on all ranks, the next period does so, too, and all that follow (docs/decisions/0058-folded-steady-state.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.engine import Timeline, _core, run
from windtunnel.memory import memory_of
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.program.calls import NetworkCalls
from windtunnel.predict.program.lower import Lowered, lower
from windtunnel.predict.runs.setting import Setting
from windtunnel.predict.runs.step_run import StepRun, breakdown, bubble_rounds
from windtunnel.workload import Workload

if TYPE_CHECKING:
    from windtunnel.network.simulate.traffic import Traffic
    from windtunnel.predict.engines.fidelity import EngineRun

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.engine import Program
from windtunnel.engine.program import finest
from windtunnel.engine.steady import find_steady
from windtunnel.predict.category import Task
from windtunnel.predict.price.calls import CallKey
from windtunnel.predict.program.lower import MOST_INSTANCES, MOST_OPERATORS, finish_program, write_stages
from windtunnel.predict.program.periods import Periods, periods_of, without_periods
from windtunnel.predict.program.stage import Stage
from windtunnel.workload.graph import Orders
from windtunnel.workload.schedules import fewer_micro_batches, micro_batches_of_period

TOLERANCE = 1e-13
"""Largest difference of two times that are the same, as a share of the step."""

TOGETHER = (1, 2, 3, 4, 6, 8, 12)
"""Periods that may repeat together: ranks that wait for each other may take turns."""


@dataclass(frozen=True)
class SteadyPeriods:
    """`together` periods take `seconds` on every rank."""

    together: int
    seconds: float


def steady_state(program: Program, timeline: Timeline, periods: tuple[Periods, ...]) -> SteadyPeriods | None:
    """The steady state of a run whose outcomes were named; None if it had none at the end of its periods."""
    places = np.array([(of.first, of.last, of.size) for of in periods], np.int64)
    found = find_steady(program, timeline, places, TOGETHER, TOLERANCE)
    return None if found is None else SteadyPeriods(*found)


def behind_moves(whole: Timeline, fewer: Timeline, periods: tuple[Periods, ...], steady: SteadyPeriods) -> bool:
    """Whether all that follows the periods is later by the seconds of the periods that a run has more than another."""
    off = TOLERANCE * whole.makespan
    for rank, of in enumerate(periods):
        gone = steady.together * of.size
        begin, end = int(whole.rank_start[rank]) + of.last, int(whole.rank_start[rank + 1])
        back = int(fewer.rank_start[rank + 1]) - end
        for after, before in ((whole.begin, fewer.begin), (whole.end, fewer.end), (whole.transfer_begin, fewer.transfer_begin)):
            moved = after[begin - gone : end] - before[begin - gone + back : end + back] - steady.seconds
            if not bool((np.isnan(moved) | (np.abs(moved) <= off)).all()):
                return False
    return True


Progress = Callable[[float], object]


@dataclass(frozen=True)
class StepProgram:
    """A step that is ready to run; `engine` carries the calls that run over a network engine."""

    workload: Workload
    costs: Costs
    lowered: Lowered
    engine: EngineRun | None = None

    def execute(
        self, progress: Progress | None = None, record_ops: Iterable[int] = (), critical_path: bool = True
    ) -> tuple[Timeline, _core.Network | None]:
        """Runs the step once; returns its timeline and the network behind it."""
        network = None if self.engine is None else self.engine.network(progress)
        follows = None if self.engine is None else self.engine.follows
        return run(self.lowered.program, record_ops, critical_path, network, follows), network


def closed_program(workload: Workload, costs: Costs) -> StepProgram:
    """A step whose calls take the closed form's seconds."""
    return StepProgram(workload, costs, lower(workload, costs))


def engine_program(workload: Workload, costs: Costs, setting: Setting) -> StepProgram:
    """A step whose calls run over a network engine."""
    from windtunnel.predict.engines.fidelity import EngineRun, Fidelity  # imported lazily: slow to import

    fidelity = Fidelity.of(setting.network, costs.calls, setting.seed, setting.skip, (), setting.loads, setting.threads)
    live = NetworkCalls(costs.calls)
    lowered = lower(workload, costs, live)
    return StepProgram(workload, costs, lowered, EngineRun(fidelity, live))


def run_closed(workload: Workload, costs: Costs) -> StepRun:
    """The run of a `closed_program`, of which a steady middle is folded, without its critical path."""
    folded = fold(workload, costs)
    if folded is not None:
        shorter = StepProgram(folded.workload, costs, folded.lowered)
        return replace(_read(shorter, costs, folded.timeline), workload=workload, folded=True)
    program = closed_program(workload, costs)
    return _read(program, costs, program.execute(critical_path=False)[0])


def run_engine(workload: Workload, costs: Costs, setting: Setting) -> StepRun:
    """The run of an `engine_program`; its costs have the engine's seconds for each call."""
    return _run(engine_program(workload, costs, setting), setting)


def _run(program: StepProgram, setting: Setting) -> StepRun:
    costs = program.costs
    timeline, network = program.execute(setting.progress)
    traffic = None
    if program.engine is not None and network is not None:
        traffic, means = program.engine.finish(network, timeline.makespan)
        costs = replace(costs, calls=costs.calls.with_measured(means))
    return _read(program, costs, timeline, traffic)


def _read(program: StepProgram, costs: Costs, timeline: Timeline, traffic: Traffic | None = None) -> StepRun:
    workload, job = program.workload, program.workload.job
    rounds = bubble_rounds(job, job.micro_batches)
    return StepRun(
        workload=workload,
        costs=(costs,) * job.plan.pp,
        lowered=program.lowered,
        timeline=timeline,
        memory=memory_of(job, workload),
        by_stage=tuple(breakdown(timeline, costs, stage, rounds) for stage in range(job.plan.pp)),
        step=timeline.makespan,
        peak=job.cluster.gpus * job.cluster.gpu.peak[job.runtime.precision],
        traffic=traffic,
    )


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
        missing = (job.micro_batches - fewer) // period
        shorter = _run_shorter(replace(workload, schedule=Orders(job, fewer)), costs, period // job.copies, missing)
        if shorter is None:
            continue
        together = period * shorter.steady.together
        if (job.micro_batches - fewer) % together:
            return None
        return _extend(replace(workload, schedule=Orders(job, fewer)), shorter, (job.micro_batches - fewer) // together)
    return None


def _run_shorter(workload: Workload, costs: Costs, step: int, more: int) -> _Shorter | None:
    """Runs a step that is shorter by `more` periods, with times as exact as the whole one's; None if it has no steady state."""
    builder, stages = write_stages(workload, costs)
    lowered = finish_program(builder, stages)
    program = lowered.program
    if _is_too_long(workload, program):
        return None
    found = periods_of(program, lowered.labels, step)
    if found is None or any(of.number < 3 for of in found):
        return None
    ends = [(int(start) + of.last, of.size) for start, of in zip(program.rank_start[:-1], found, strict=True)]
    grid = finest(program, [(end - size, end, more) for end, size in ends])
    whole = run(program, critical_path=False, grid=grid, outcomes=True)
    steady = steady_state(program, whole, found)
    if steady is None:
        return None
    cut = without_periods(program, found, steady.together)
    if cut is None:
        return None
    less = run(cut, critical_path=False, grid=grid)
    return _Shorter(lowered, stages, whole, less, found, steady) if behind_moves(whole, less, found, steady) else None


def _is_too_long(workload: Workload, program: Program) -> bool:
    """Whether the whole step is one that `lower` refuses, or nearly so: it gives the reason."""
    times = workload.job.micro_batches * workload.job.plan.pp / sum(map(len, workload.schedule))
    passes = 2.0 * workload.job.plan.vpp
    more = times * passes
    size = np.append(np.diff(program.template_start), 1)[program.template]
    operators = int((size * program.times).sum())
    return more * len(program.template) > 0.8 * MOST_INSTANCES or more * operators > 0.8 * MOST_OPERATORS


def _extend(workload: Workload, shorter: _Shorter, more: int) -> FoldedStep:
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
    calls = []
    for stage, labels, of, counted in zip(
        shorter.stages, shorter.lowered.labels, shorter.periods, shorter.lowered.calls, strict=True
    ):
        in_period = _calls(stage, labels[:, 0], of, shorter.steady.together)
        calls.append(counted + Counter({key: more * number for key, number in in_period.items()}))
    return FoldedStep(workload, replace(shorter.lowered, calls=tuple(calls)), timeline)


def _calls(stage: Stage, tasks: np.ndarray, of: Periods, together: int) -> Counter[CallKey]:
    """Calls of a stage in the periods that repeat together."""
    first = of.last - together * of.size
    counts = Counter(key for instance, key in stage.collectives if first <= instance < of.last)
    for key, task in zip(stage.moves, (Task.SEND, Task.RECEIVE), strict=True):
        number = int((tasks[first : of.last] == task).sum())
        if key is not None and number:
            counts[key] += number
    return counts
