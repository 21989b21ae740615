"""A job whose ranks are not equal: draws steps, runs each, and says what differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.base.units import show_time
from windtunnel.engine import HopKind, Timeline, run
from windtunnel.memory import StageMemory, memory_of
from windtunnel.network.simulate.traffic import Traffic
from windtunnel.predict.category import Category
from windtunnel.predict.costs import Costs
from windtunnel.predict.live import Live
from windtunnel.predict.lower import Lowered, lower
from windtunnel.predict.metrics import breakdown
from windtunnel.predict.unequal.costs import KindCosts, on, with_calls_of
from windtunnel.predict.unequal.draws import Draw, draws_of
from windtunnel.predict.unequal.folding import Replicas, fold
from windtunnel.predict.unequal.lowering import graph_of, lower_apart, name_of
from windtunnel.predict.unequal.ranks import Ids, Ranks, ranks_of, slow_nics
from windtunnel.predict.unequal.result import Class, Unequally
from windtunnel.spec import Job
from windtunnel.spec.unequal import Unequal
from windtunnel.workload import Stream, Workload

if TYPE_CHECKING:
    from windtunnel.predict.fidelity import Run

Parts = tuple[dict[str, float], ...]
"""Breakdown of each stage."""


Progress = Callable[[float], object]


@dataclass(frozen=True)
class Setting:
    """How a step is run: over which network, with which seed; `price` makes costs of a workload."""

    network: str
    seed: int
    skip: bool
    price: Callable[[Workload], Costs]
    progress: Progress | None = None


@dataclass(frozen=True)
class Ran:
    """One step that was run; `costs` and `parts` by rank of the program, `groups` and `ranks` those of that step; `workload` is the
    first group's."""

    weight: float
    workload: Workload
    lowered: Lowered
    timeline: Timeline
    links: Run | None
    traffic: Traffic | None
    costs: tuple[Costs, ...]
    parts: Parts
    groups: list[Replicas]
    ranks: Ranks
    slow: Sequence[tuple[Ids, float]] = ()  # NICs that are slow in a network engine's graph

    @property
    def seconds(self) -> float:
        return self.timeline.makespan


@dataclass(frozen=True)
class Apart:
    """What `predict` needs of all drawn steps; `shown` is the one nearest to the mean."""

    step: float
    by_stage: Parts
    shown: Ran
    told: Unequally
    memory: tuple[StageMemory, ...]
    peak: float


def run_apart(job: Job, unequal: Unequal, workload: Workload, costs: Costs, setting: Setting) -> Apart:
    """Every drawn step of `job`, one after the other; means are over all of them."""
    kinds = KindCosts(workload, costs, setting.price)
    ran = [_step(job, unequal, workload, kinds, draw, setting) for draw in draws_of(job, unequal)]
    step = sum(one.weight * one.seconds for one in ran)
    shown = min(ran, key=lambda one: abs(one.seconds - step))
    stages = range(job.plan.pp)
    by_stage = tuple(_mean([one.parts[stage] for one in ran], [one.weight for one in ran]) for stage in stages)
    told, memory = _told(job, _equal(workload, costs, setting), ran, shown), _memory(job, workload, shown)
    return Apart(step, by_stage, shown, told, memory, _peak(job, shown.ranks))


def _step(job: Job, unequal: Unequal, workload: Workload, kinds: KindCosts, draw: Draw, setting: Setting) -> Ran:
    ranks = ranks_of(job, unequal, draw.down)
    links = ran = None
    slow: Sequence[tuple[Ids, float]] = ()
    if setting.network == "closed":
        groups = fold(job, unequal, ranks, draw)
        lowered = lower_apart(workload, kinds, unequal, ranks, groups, draw.number)
    else:
        from windtunnel.predict.fidelity import over_engine  # the engines' rooms take time to open

        kinds = KindCosts(workload, setting.price(workload), setting.price)  # engines change the prices of calls
        slow = slow_nics(job, unequal, ranks.places, draw.down)
        ranks = ranks_of(job, unequal, np.zeros_like(draw.down))  # slow links are in the engine's graph
        groups = fold(job, unequal, ranks, draw)

        def write(graph: Workload, priced: Costs, live: Live) -> Lowered:
            over = KindCosts(graph, priced, lambda other: with_calls_of(priced, kinds.first, kinds.of_job(other)))
            return lower_apart(graph, over, unequal, ranks, groups, draw.number, live)

        _, lowered, links = over_engine(setting.network, workload, kinds.first, setting.seed, setting.skip, slow, write)
        ran = links.network(setting.progress)
    timeline = run(lowered.program, network=ran)
    traffic = links.finish(ran, timeline.makespan) if links is not None and ran is not None else None
    costs = tuple(kinds.of(ranks.clusters, pace.kinds) for group in groups for pace in group.paces)
    parts = tuple(breakdown(timeline, of, rank) for rank, of in enumerate(costs))
    return Ran(draw.weight, graph_of(workload, groups[0]), lowered, timeline, links, traffic, costs, parts, groups, ranks, slow)


def _mean(parts: Sequence[dict[str, float]], weights: Sequence[float]) -> dict[str, float]:
    """Each part's mean."""
    names = dict.fromkeys(name for one in parts for name in one)
    return {name: sum(w * one.get(name, 0.0) for one, w in zip(parts, weights, strict=True)) for name in names}


def _equal(workload: Workload, costs: Costs, setting: Setting) -> float:
    """Seconds of a step of equal ranks."""
    if setting.network == "closed":
        return run(lower(workload, costs).program, critical_path=False).makespan
    from windtunnel.predict.fidelity import over_engine

    _, lowered, links = over_engine(setting.network, workload, setting.price(workload), setting.seed, setting.skip)
    return run(lowered.program, critical_path=False, network=links.network(setting.progress)).makespan


def _told(job: Job, equal: float, ran: Sequence[Ran], shown: Ran) -> Unequally:
    pp = job.plan.pp
    classes = []
    of_replica = [0] * job.dp
    for number, group in enumerate(shown.groups):
        rows = range(number * pp, (number + 1) * pp)
        gpus = tuple(shown.ranks.named(pace.kinds) for pace in group.paces)
        idle = shown.timeline.idle[rows.start : rows.stop]
        pacing = min(rows, key=lambda r: shown.parts[r]["bubble"] + shown.parts[r].get("other_stages", 0.0))
        computing = shown.timeline.busy[rows.start : rows.stop, int(Stream.COMPUTE)].sum(axis=1)
        classes.append(
            Class(
                name_of(group),
                group.indices,
                group.micro_batches,
                gpus,
                tuple(max(p.slow, p.product) for p in group.paces),
                tuple(computing.tolist()),
                tuple(idle[:, Category.SLOWER_RANKS].tolist()),
                tuple(idle[:, Category.PIPELINE_BUBBLE].tolist()),
                shown.parts[pacing],
            )
        )
        for replica in group.indices:
            of_replica[replica] = number
    steps = tuple((one.weight, one.seconds) for one in ran)
    return Unequally(equal, culprit(job, shown), tuple(classes), tuple(of_replica), steps)


def culprit(job: Job, ran: Ran) -> str:
    """Which ranks the step waits for: those that most of the critical path runs on, and what is odd about them."""
    pp = ran.lowered.stages
    seconds: dict[int, float] = {}
    for hop in ran.timeline.path:
        if hop.kind is HopKind.OP:
            seconds[hop.rank] = seconds.get(hop.rank, 0.0) + hop.seconds
    if not seconds:
        return ""
    by_group: dict[int, float] = {}
    for rank, spent in seconds.items():
        by_group[rank // pp] = by_group.get(rank // pp, 0.0) + spent
    number = max(by_group, key=lambda g: (by_group[g], -g))
    group = ran.groups[number]
    usual = max(range(len(ran.ranks.clusters)), key=lambda k: (int((ran.ranks.kind == k).sum()), -k))
    odd = []
    for stage, pace in enumerate(group.paces):
        where = f"stage {stage}: " if pp > 1 else ""
        if pace.kinds != 1 << usual:
            odd.append(where + ran.ranks.named(pace.kinds))
        if max(pace.slow, pace.product) > 1.0005:
            odd.append(f"{where}{max(pace.slow, pace.product) - 1.0:.1%} slower")
        if pace.pauses:
            odd.append(f"{where}paused for {show_time(sum(seconds for _, seconds in pace.pauses))}")
    if group.micro_batches != job.micro_batches:
        odd.append(f"{group.micro_batches} micro batches")
    for hit, rate in ran.slow:
        nodes = np.unique(ran.ranks.places.node[hit])
        odd.append(f"NICs of {f'node {nodes[0]}' if len(nodes) == 1 else f'{len(nodes)} nodes'} at {rate:.0%}")
    shown = ", ".join(odd[:3]) + (f" and {len(odd) - 3} more" if len(odd) > 3 else "")
    return name_of(group) + (f" ({shown})" if shown else "")


def _memory(job: Job, workload: Workload, shown: Ran) -> tuple[StageMemory, ...]:
    """Of each stage the ranks with least room, whatever GPU they have."""
    used = [0] * job.plan.pp
    for group in shown.groups:
        for stage, pace in enumerate(group.paces):
            used[stage] |= pace.kinds
    rooms: dict[float, tuple[StageMemory, ...]] = {}
    found: list[StageMemory] = []
    for stage, kinds in enumerate(used):
        ways = []
        for k, cluster in enumerate(shown.ranks.clusters):
            if kinds >> k & 1:
                here = on(job, cluster)
                if cluster.gpu.memory not in rooms:
                    rooms[cluster.gpu.memory] = memory_of(here, replace(workload, job=here))
                ways.append(rooms[cluster.gpu.memory][stage])
        found.append(max(ways, key=lambda m: m.missing))
    return tuple(found)


def _peak(job: Job, ranks: Ranks) -> float:
    """FLOP/s of all GPUs together."""
    each = np.array([cluster.gpu.peak[job.runtime.precision] for cluster in ranks.clusters])
    return float(each[ranks.kind].sum())
