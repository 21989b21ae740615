"""Steps of a job whose ranks are not equal: each drawn step is run; means are over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import PlanError
from windtunnel.base.units import show_time
from windtunnel.engine import HopKind, Timeline, run
from windtunnel.memory import StageMemory, memory_of
from windtunnel.predict.category import Category, idle_key
from windtunnel.predict.prediction import ReplicaClass, UnequalResult
from windtunnel.predict.price.calls import CallKey
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.price.mixed import MixedCosts, on
from windtunnel.predict.program.calls import NetworkCalls
from windtunnel.predict.program.unequal import graph_of, lower_unequal, name_of
from windtunnel.predict.ranks.draws import Draw, draws_of
from windtunnel.predict.ranks.folding import Replicas, fold
from windtunnel.predict.ranks.places import Ranks, ranks_of, slow_nics
from windtunnel.predict.runs.equal import StepProgram, closed_program, engine_program
from windtunnel.predict.runs.setting import Setting
from windtunnel.predict.runs.step_run import Breakdown, StepRun, breakdown, bubble_rounds
from windtunnel.spec import Job
from windtunnel.spec.unequal import Unequal
from windtunnel.workload import Stream, Workload

if TYPE_CHECKING:
    from windtunnel.network.simulate.traffic import Traffic

BUBBLE, OTHER_STAGES = idle_key(Category.PIPELINE_BUBBLE), idle_key(Category.OTHER_STAGES)

FEW_DRAWS, MOST_DRAWN, OF_A_DRAW = 64, 1e7, 5e3
"""Draws that any job may have; limit of instances in all drawn programs; instances that take as long as the fixed cost of a
draw."""

ODD = 1.0005
"""Factor above which a rank counts as slow in the culprit's name."""
MOST_ODD = 3
"""Maximum number of deviations that the culprit's name lists."""


@dataclass(frozen=True)
class DrawnProgram:
    """One drawn step that is ready to run; `costs` by rank of the program. `slow`: NICs that are slow in an engine's graph."""

    step: StepProgram
    draw: Draw
    costs: tuple[Costs, ...]
    groups: list[Replicas]
    ranks: Ranks
    slow: Sequence[tuple[Int64s, float]] = ()


@dataclass(frozen=True)
class DrawnRun:
    """The run of a drawn step; `parts` by rank of the program."""

    program: DrawnProgram
    timeline: Timeline
    parts: tuple[Breakdown, ...]
    traffic: Traffic | None
    means: dict[CallKey, float]

    @property
    def weight(self) -> float:
        return self.program.draw.weight

    @property
    def seconds(self) -> float:
        return self.timeline.makespan


def run_unequal(workload: Workload, costs: Costs, setting: Setting) -> StepRun:
    """Runs every drawn step of a job with `unequal`; program and timeline are those of the step nearest to the mean."""
    job, mixed = workload.job, MixedCosts(workload, costs, setting.price)
    draws = draws_of(job, _unequal(job))
    first = drawn_program(workload, mixed, draws[0], setting)
    _check_draws(job, len(draws), len(first.step.lowered.program.template))
    runs = [_run(first, setting)]
    runs += [_run(drawn_program(workload, mixed, draw, setting), setting) for draw in draws[1:]]
    step = sum(one.weight * one.seconds for one in runs)
    shown = min(runs, key=lambda one: abs(one.seconds - step))
    stages, weights = range(job.plan.pp), [one.weight for one in runs]
    program = shown.program
    return StepRun(
        workload=program.step.workload,
        costs=tuple(replace(c, calls=c.calls.with_measured(shown.means)) for c in program.costs[: job.plan.pp]),
        lowered=program.step.lowered,
        timeline=shown.timeline,
        memory=_memory(job, workload, program),
        by_stage=tuple(_mean([one.parts[stage] for one in runs], weights) for stage in stages),
        step=step,
        peak=_peak(job, program.ranks),
        traffic=shown.traffic,
        unequal=_result(job, _equal_step(workload, costs, setting), runs, shown),
        draw=program.draw.number,
    )


def _check_draws(job: Job, draws: int, instances: int) -> None:
    """Raises PlanError if the draws of a program with so many instances would take more than about a minute."""
    most = max(FEW_DRAWS, int(MOST_DRAWN / (OF_A_DRAW + instances)))
    if draws > 2 * most:  # steps with an event and steps without
        allowed = f"at most {most:,} for this job, whose program has {instances:,} passes and calls"
        raise PlanError("unequal.draws", _unequal(job).draws, allowed, f"Write --set unequal.draws={most}.")


def drawn_program(workload: Workload, mixed: MixedCosts, draw: Draw, setting: Setting) -> DrawnProgram:
    """The program of one drawn step."""
    job, unequal = workload.job, _unequal(workload.job)
    slow: Sequence[tuple[Int64s, float]] = ()
    if setting.network == "closed":
        ranks = ranks_of(job, unequal, draw.down)
        groups = fold(job, unequal, ranks, draw)
        lowered, engine = lower_unequal(workload, mixed, unequal, ranks, groups, draw.number), None
    else:
        from windtunnel.predict.engines.fidelity import EngineRun, Fidelity  # imported lazily: slow to import

        ranks = ranks_of(job, unequal, np.zeros_like(draw.down))  # the engine's graph has the slow links
        slow = slow_nics(job, unequal, ranks.places, draw.down)
        groups = fold(job, unequal, ranks, draw)
        closed = mixed.first
        fidelity = Fidelity.of(setting.network, closed.calls, setting.seed, setting.skip, slow, setting.loads, setting.threads)
        live = NetworkCalls(closed.calls)
        lowered = lower_unequal(workload, mixed, unequal, ranks, groups, draw.number, live)
        engine = EngineRun(fidelity, live)
    costs = tuple(mixed.of(ranks.clusters, pace.kinds) for group in groups for pace in group.paces)
    step = StepProgram(graph_of(workload, groups[0]), costs[0], lowered, engine)
    return DrawnProgram(step, draw, costs, groups, ranks, slow)


def _run(program: DrawnProgram, setting: Setting) -> DrawnRun:
    engine = program.step.engine
    timeline, network = program.step.execute(setting.progress)
    job = program.step.workload.job
    rounds = [bubble_rounds(job, group.micro_batches) for group in program.groups for _ in range(job.plan.pp)]
    parts = tuple(breakdown(timeline, costs, rank, rounds[rank]) for rank, costs in enumerate(program.costs))
    if engine is None or network is None:
        return DrawnRun(program, timeline, parts, None, {})
    return DrawnRun(program, timeline, parts, *engine.finish(network, timeline.makespan))


def _unequal(job: Job) -> Unequal:
    return job.unequal if job.unequal is not None else Unequal.model_validate({})


def _mean(parts: Sequence[Breakdown], weights: Sequence[float]) -> Breakdown:
    """Each part's mean."""
    names = dict.fromkeys(name for one in parts for name in one)
    return {name: sum(w * one.get(name, 0.0) for one, w in zip(parts, weights, strict=True)) for name in names}


def _equal_step(workload: Workload, costs: Costs, setting: Setting) -> float:
    """Seconds of a step of equal ranks."""
    if setting.network == "closed":
        return run(closed_program(workload, costs).lowered.program, critical_path=False).makespan
    program = engine_program(workload, costs, setting)
    return program.execute(setting.progress, critical_path=False)[0].makespan


def _result(job: Job, equal: float, runs: Sequence[DrawnRun], shown: DrawnRun) -> UnequalResult:
    """Comparison with a step of equal ranks, and the classes of equal replicas of the shown step."""
    pp, program = job.plan.pp, shown.program
    classes = []
    of_replica = [0] * job.dp
    for number, group in enumerate(program.groups):
        rows = range(number * pp, (number + 1) * pp)
        idle = shown.timeline.idle[rows.start : rows.stop]
        pacing = min(rows, key=lambda r: shown.parts[r][BUBBLE] + shown.parts[r].get(OTHER_STAGES, 0.0))
        computing = shown.timeline.busy[rows.start : rows.stop, int(Stream.COMPUTE)].sum(axis=1)
        classes.append(
            ReplicaClass(
                name=name_of(group),
                replicas=group.indices,
                micro_batches=group.micro_batches,
                gpus=tuple(program.ranks.kind_names(pace.kinds) for pace in group.paces),
                slow=tuple(max(p.slow, p.product) for p in group.paces),
                computing_s=tuple(computing.tolist()),
                waiting_s=tuple(idle[:, Category.SLOWER_RANKS].tolist()),
                bubble_s=tuple(shown.parts[row][BUBBLE] for row in rows),
                breakdown=shown.parts[pacing],
            )
        )
        for replica in group.indices:
            of_replica[replica] = number
    steps = tuple((one.weight, one.seconds) for one in runs)
    return UnequalResult(equal, culprit(job, shown), tuple(classes), tuple(of_replica), steps)


def culprit(job: Job, shown: DrawnRun) -> str:
    """The ranks that the step waits for: those on most of the critical path, and how they deviate."""
    program, pp = shown.program, job.plan.pp
    seconds: dict[int, float] = {}
    for hop in shown.timeline.path:
        if hop.kind is HopKind.OP:
            seconds[hop.rank] = seconds.get(hop.rank, 0.0) + hop.seconds
    if not seconds:
        return ""
    by_group: dict[int, float] = {}
    for rank, spent in seconds.items():
        by_group[rank // pp] = by_group.get(rank // pp, 0.0) + spent
    number = max(by_group, key=lambda g: (by_group[g], -g))
    group = program.groups[number]
    usual = max(range(len(program.ranks.clusters)), key=lambda k: (int((program.ranks.kind == k).sum()), -k))
    odd = []
    for stage, pace in enumerate(group.paces):
        prefix = f"stage {stage}: " if pp > 1 else ""
        if pace.kinds != 1 << usual:
            odd.append(prefix + program.ranks.kind_names(pace.kinds))
        if max(pace.slow, pace.product) > ODD:
            odd.append(f"{prefix}{max(pace.slow, pace.product) - 1.0:.1%} slower")
        if pace.pauses:
            odd.append(f"{prefix}paused for {show_time(sum(seconds for _, seconds in pace.pauses))}")
    if group.micro_batches != job.micro_batches:
        odd.append(f"{group.micro_batches} micro batches")
    for hit, rate in program.slow:
        nodes = np.unique(program.ranks.places.node[hit])
        odd.append(f"NICs of {f'node {nodes[0]}' if len(nodes) == 1 else f'{len(nodes)} nodes'} at {rate:.0%}")
    listed = ", ".join(odd[:MOST_ODD]) + (f" and {len(odd) - MOST_ODD} more" if len(odd) > MOST_ODD else "")
    return name_of(group) + (f" ({listed})" if listed else "")


def _memory(job: Job, workload: Workload, program: DrawnProgram) -> tuple[StageMemory, ...]:
    """Memory of each stage's ranks with the least room, over all kinds of GPUs."""
    used = [0] * job.plan.pp
    for group in program.groups:
        for stage, pace in enumerate(group.paces):
            used[stage] |= pace.kinds
    rooms: dict[float, tuple[StageMemory, ...]] = {}
    stages: list[StageMemory] = []
    for stage, kinds in enumerate(used):
        ways = []
        for k, cluster in enumerate(program.ranks.clusters):
            if kinds >> k & 1:
                on_cluster = on(job, cluster)
                if cluster.gpu.memory not in rooms:
                    rooms[cluster.gpu.memory] = memory_of(on_cluster, replace(workload, job=on_cluster))
                ways.append(rooms[cluster.gpu.memory][stage])
        stages.append(max(ways, key=lambda m: m.missing))
    return tuple(stages)


def _peak(job: Job, ranks: Ranks) -> float:
    """FLOP/s of all GPUs together."""
    peaks = np.array([cluster.gpu.peak[job.runtime.precision] for cluster in ranks.clusters])
    return float(peaks[ranks.kind].sum())
