"""Steps of several jobs on one fabric, each repeated beside the others, at several phases.

A step is counted while all traffics run: it begins after the last of them has begun, and ends before the first of them ends. At
phase j of n, traffic k begins j k / n (of which only the fraction counts) of its own step later. The order of traffics is that of
their lowest nodes, so that the order in which jobs are named changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.engine import Program, run
from windtunnel.network.simulate.axis_calls import Machine
from windtunnel.network.simulate.traffic import Traffic, link_name
from windtunnel.predict.engines.shared import OF_PLANS, CallSet, SharedEngine, read_traffic
from windtunnel.predict.prediction import SharedLink, SharedTraffic, Sharing
from windtunnel.predict.program.calls import NetworkCalls
from windtunnel.predict.program.lower import MOST_INSTANCES
from windtunnel.predict.program.together import Course, JointProgram, join_programs

PHASES = {"flow": 8, "packet": 2}
"""Phases at which traffics are run beside each other."""
STEPS = {"flow": 2, "packet": 1}
"""Steps of the longest job that each phase counts at least."""
TRIES = 5
"""Runs of a phase, each longer than the one before, until enough steps are counted."""
MOST_LINKS = 12
"""Shared links that are listed."""
LEAST_SHARE = 0.01
"""Share of a link's rate that a traffic asks for at least, if it counts as one that uses it."""


@dataclass(frozen=True)
class Resident:
    """A traffic on the fabric that repeats: a job's step, a list of flows, or a part of a save. `on`: the fabric as it sees it."""

    name: str
    kind: str
    on: Machine
    program: Program
    live: NetworkCalls
    part: CallSet
    where: str = ""
    gpus: int = 0

    def run_alone(self, engine: str, skip: bool, threads: int = 1) -> float:
        """Seconds of a step without the others, on the same fabric."""
        step = OF_PLANS[engine](self.on, self.part.calls, self.part.plans, skip, threads)
        network = step.network(*self.live.table(), None, self.live.launches()) if self.part.calls else None
        return run(self.program, critical_path=False, network=network, follows=self.live.follows).makespan


@dataclass(frozen=True)
class _Phase:
    """A run of all traffics: for each of them the seconds of its counted steps, in their order; the traffic on the links."""

    steps: tuple[Floats, ...]
    traffic: Traffic
    load: Floats


def share_fabric(
    residents: Sequence[Resident],
    engine: str,
    skip: bool = False,
    phases: int | None = None,
    progress: Callable[[float], object] | None = None,
    threads: int = 1,
) -> Sharing:
    """What the traffics do to each other; the first is the job that is asked about.

    `phases` at which they run: left out, PHASES. `progress` is called with the share of phases that have ended; `threads` of
    packets change no result. SpecError for jobs of so unequal steps that the program would have more than MOST_INSTANCES instances.
    """
    number = phases or PHASES[engine]
    order = sorted(range(len(residents)), key=lambda at: (residents[at].kind != "job", int(_lowest(residents[at])), at))
    ordered = [residents[at] for at in order]
    alone = [one.run_alone(engine, skip, threads) for one in ordered]
    runs = []
    for phase in range(number):
        runs.append(_run_phase(ordered, alone, engine, skip, phase / number, threads))
        if progress is not None:
            progress((phase + 1) / number)
    seen = [_summarise(one, alone[k], [phase.steps[k] for phase in runs]) for k, one in enumerate(ordered)]
    back = np.argsort(order)
    asked = [seen[k] for k in back.tolist()]
    nearest = min(range(number), key=lambda j: (abs(_mean(runs[j].steps[int(back[0])]) - asked[0].mean_s), j))
    links = _shared_links(ordered, alone, runs[nearest].load)
    return Sharing(tuple(asked), number, links, runs[nearest].traffic)


def _lowest(one: Resident) -> int:
    ends = one.on.placed.endpoint
    return int(ends.min()) if len(ends) else 0


def _mean(steps: Floats) -> float:
    return float(steps.mean()) if len(steps) else math.inf


def _summarise(one: Resident, alone: float, phases: Sequence[Floats]) -> SharedTraffic:
    """A traffic's steps over all phases; a phase counts as much as another."""
    counted = [steps for steps in phases if len(steps)]
    means = tuple(float(steps.mean()) for steps in counted)
    mean = sum(means) / len(means) if means else math.nan
    worst = max((float(steps.max()) for steps in counted), default=math.nan)
    best = min((float(steps.min()) for steps in counted), default=math.nan)
    return SharedTraffic(one.name, one.kind, one.gpus, one.where, alone, mean, worst, best, means, sum(map(len, counted)))


def _run_phase(ordered: Sequence[Resident], alone: Sequence[float], engine: str, skip: bool, phase: float, threads: int) -> _Phase:
    """One run at a phase (0..1), long enough to count STEPS of the longest job."""
    delays = [math.fmod(phase * k, 1.0) * seconds for k, seconds in enumerate(alone)]
    jobs = [k for k, one in enumerate(ordered) if one.kind == "job"]
    taken = list(alone)
    asked = STEPS[engine] + 1.0
    for _ in range(TRIES):
        window = max(delays) + asked * max(taken[k] for k in jobs)
        steps = [max(2, math.ceil((window - delay) / seconds) + 1) for delay, seconds in zip(delays, taken, strict=True)]
        _check_length(ordered, steps, alone)
        joint = join_programs(
            [
                Course(one.program, *one.live.table(), one.live.follows, delay, number)
                for one, delay, number in zip(ordered, delays, steps, strict=True)
            ]
        )
        times, traffic, load = _run(ordered, joint, steps, engine, skip, threads)
        counted = _count_steps(times)
        if min(len(counted[k]) for k in jobs) >= STEPS[engine]:
            break
        taken = [float(np.diff(ends).max()) for ends in times]
        asked += 1.0
    return _Phase(tuple(counted), traffic, load)


def _count_steps(times: Sequence[Floats]) -> list[Floats]:
    """Seconds of the steps that lie between the last begin and the first end."""
    begin, end = max(float(one[0]) for one in times), min(float(one[-1]) for one in times)
    return [np.diff(one)[(one[:-1] >= begin * (1 - 1e-12)) & (one[1:] <= end * (1 + 1e-12))] for one in times]


def _run(
    ordered: Sequence[Resident], joint: JointProgram, steps: Sequence[int], engine: str, skip: bool, threads: int
) -> tuple[tuple[Floats, ...], Traffic, Floats]:
    """Times of all steps, the traffic of the run, and the mean share [L] of each link's rate that was used."""
    parts = [one.part for one in ordered]
    on = ordered[0].on
    step = SharedEngine(engine, on, parts, skip, threads).step()
    launches = np.concatenate([number * one.live.launches() for one, number in zip(ordered, steps, strict=True)])
    network = step.network(joint.key, joint.plan, None, launches.astype(np.int64))
    timeline = run(joint.program, critical_path=False, network=network, follows=joint.follows)
    seconds = timeline.makespan
    if network is None:
        raise SpecError("--beside", ", ".join(one.name for one in ordered[1:]), "jobs whose calls run over the network")
    moved = np.zeros(on.graph.links)
    for one, number in zip(ordered, steps, strict=True):
        moved += one.part.bytes_on_links(one.on, number * one.live.launches())
    return joint.times(timeline), read_traffic(step, network, seconds), moved / (on.placed.graph.link_rate * seconds)


def _check_length(ordered: Sequence[Resident], steps: Sequence[int], alone: Sequence[float]) -> None:
    """Raises SpecError for steps of very unequal lengths."""
    instances = sum(number * len(one.program.template) for one, number in zip(ordered, steps, strict=True))
    if instances <= MOST_INSTANCES:
        return
    short, long = (pick(range(len(alone)), key=lambda k: alone[k]) for pick in (min, max))
    raise SpecError(
        "--beside",
        ordered[short].name,
        "a job whose steps are not so much shorter than the other's",
        f"{steps[short]:,} steps of {alone[short]:.3g} s beside {steps[long]:,} of {alone[long]:.3g} s of {ordered[long].name} are "
        f"{instances:,} passes and calls: raise plan.global_batch of {ordered[short].name}, or lower that of {ordered[long].name}.",
    )


def _shared_links(ordered: Sequence[Resident], alone: Sequence[float], load: Floats) -> tuple[SharedLink, ...]:
    """Links between nodes that at least two traffics use, those that all of them together ask most of first."""
    on = ordered[0].on
    graph = on.placed.graph  # rates as the traffic table has them
    rates = graph.link_rate
    asked = np.array([one.part.bytes_on_links(one.on, one.live.launches()) / s for one, s in zip(ordered, alone, strict=True)])
    share = asked / rates
    outside = (graph.node_site[graph.link_from] != graph.node_site[graph.link_to]) | (graph.node_site[graph.link_from] < 0)
    both = np.flatnonzero(outside & ((share > LEAST_SHARE).sum(axis=0) >= 2))
    both = both[np.lexsort((both, -share[:, both].sum(axis=0)))][:MOST_LINKS]
    return tuple(
        SharedLink(
            link_name(graph, int(i)),
            float(rates[i]),
            float(load[i]),
            {one.name: float(share[k, i]) for k, one in enumerate(ordered) if share[k, i] > LEAST_SHARE},
        )
        for i in both.tolist()
    )


def named_apart(names: Sequence[str]) -> list[str]:
    """The names, those that occur again with a number behind them."""
    out: list[str] = []
    for name in names:
        again = 2
        own = name
        while own in out:
            own, again = f"{name} ({again})", again + 1
        out.append(own)
    return out
