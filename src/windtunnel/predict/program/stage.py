"""One stage's program while it is being built, and the labels of its instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.engine import GrowingTable, RankBuilder
from windtunnel.predict.category import Category, Task
from windtunnel.predict.price.calls import CallKey
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.price.host import check_seconds
from windtunnel.predict.program import keys
from windtunnel.predict.program.calls import NetworkCall, NetworkCalls
from windtunnel.predict.program.demands import Demand, StepDemands
from windtunnel.predict.program.templates import Templates
from windtunnel.workload import Axis, Workload

if TYPE_CHECKING:
    from windtunnel.predict.program.rendezvous import UnequalStage


PASSES = np.array([Task.FORWARD, Task.BACKWARD, Task.BACKWARD_INPUT, Task.BACKWARD_WEIGHT], np.int64)
"""Task of each `schedules.Pass`."""

Label = tuple[int, int, int]
"""Task, micro batch and virtual stage of an instance; -1 for none."""

REDUCE: Label = (int(Task.REDUCE), -1, -1)
UPDATE: Label = (int(Task.UPDATE), -1, -1)
HOST: Label = (int(Task.HOST), -1, -1)


class Stage:
    """Builds the program of one stage and keeps its labels."""

    def __init__(
        self,
        index: int,
        rank: RankBuilder,
        templates: Templates,
        workload: Workload,
        costs: Costs,
        live: NetworkCalls | None = None,
        apart: UnequalStage | None = None,
    ) -> None:
        self.live, self.apart = live, apart
        self.group = 0 if apart is None else apart.number  # number of the group of equal replicas; each group has its own keys
        self.index, self.rank, self.templates, self.workload, self.costs = index, rank, templates, workload, costs
        self.labels = GrowingTable(3)  # of each instance
        self.calls: Counter[CallKey] = Counter()
        self.collectives: list[tuple[int, CallKey]] = []  # collectives between passes: (instance, call)
        self.sent = self.received = 0  # pipeline transfers
        self.moves: tuple[CallKey | None, CallKey | None] = None, None  # the call of each sent one, and of each received one
        host = workload.job.runtime.host
        self.call_host = (host.launch + host.collective) / workload.job.cluster.node.host_speed

    @property
    def demands(self) -> StepDemands:
        """The calls of the job."""
        return self.templates.demands

    @property
    def only(self) -> tuple[int, ...] | None:
        """The replicas that this stage represents, if not all."""
        return None if self.apart is None else self.apart.replicas

    def run(self, template: int, label: Label, waits: tuple[int, ...] = ()) -> int:
        """Append rows of a template; returns the instance."""
        self.labels.append(label)
        return self.rank.add(template, waits)

    def paused_in(self, turns: Floats) -> Bools:
        """[n] whether the host pauses in each turn, given by its begin in the order of passes, from 0 to 1."""
        places = [place for place, _ in self.apart.pauses] if self.apart is not None else []
        mask = np.zeros(len(turns), np.bool_)
        mask[np.searchsorted(turns, places, side="right") - 1] = True
        return mask

    def pause(self, begin: float, end: float) -> None:
        """Append the host's pauses between these places in the order of passes, from 0 to 1."""
        for place, seconds in self.apart.pauses if self.apart is not None else ():
            if begin <= place < end:
                self.run(self.templates.nothing(seconds), HOST)

    def meet(
        self,
        label: Label,
        stream: int,
        key: int,
        seconds: float,
        ranks: int,
        waits: tuple[int, ...],
        waiting: int,
        moving: int,
        host_sync: bool,
        axis: Axis = Axis.NONE,
    ) -> int:
        """Append a transfer among `ranks` stages, or a collective of `axis`; returns its instance. Its time is booked as `waiting`,
        then `moving`."""
        self.labels.append(label)
        host = self.call_host if axis is Axis.NONE else self.call_host + self._check(axis)
        return self.rank.add_rendezvous(stream, ((key, seconds, ranks),), waits, host, waiting, moving, host_sync)

    def _check(self, axis: Axis) -> float:
        """Host seconds that the ranks of a collective take to compare it; none for a transfer."""
        job = self.workload.job
        if axis is Axis.NONE or not job.runtime.collective_checks:
            return 0.0
        return check_seconds(job.runtime, self.costs.calls.group(axis)) / job.cluster.node.host_speed

    def comm(self, label: Label, demand: Demand, size: float, waits: tuple[int, ...], category: Category) -> int:
        """Append a collective of `size` bytes; returns its instance.

        Among equal ranks it only has a duration. Unequal replicas of a group of its axis meet.
        """
        if self.apart is None and self.live is None:
            priced, template = self._price_call(demand, size, category)
            self.calls[priced] += 1
            self.collectives.append((len(self.rank), priced))
            return self.run(template, label, waits)
        call, axis, stream = demand.comm, demand.axis, demand.stream
        seconds = self._count(demand, size)
        runs = self.live is not None and self.live.runs(axis)
        if self.apart is not None and len(others := self.apart.partners(axis)) > 1:
            key, fresh = self.apart.key(axis)
            if self.live is not None and runs and fresh:
                self.live.bind(np.array([key]), NetworkCall(call, axis, size, self.index))
            wait = int(Category.SLOWER_RANKS)
            return self.meet(label, stream, key, seconds, len(others), waits, wait, int(category), False, axis)
        if self.live is not None and runs:
            key = self.live.key(NetworkCall(call, axis, size, self.index, only=self.only))
            return self.meet(label, stream, key, seconds, 1, waits, int(category), int(category), False, axis)
        return self.run(self.templates.transfer(stream, seconds, category, self.call_host + self._check(axis)), label, waits)

    def comms(self, label: Label, calls: Sequence[tuple[Demand, float]], category: Category) -> Sequence[int]:
        """Append collectives of so many bytes that wait for nothing; returns their instances."""
        if self.apart is not None or self.live is not None:
            return [self.comm(label, demand, size, (), category) for demand, size in calls]
        first = len(self.rank)
        priced = [self._price_call(demand, size, category) for demand, size in calls]
        self.calls.update(key for key, _ in priced)
        self.collectives += enumerate((key for key, _ in priced), first)
        self.labels.append(label * len(calls))
        self.rank.add_all([template for _, template in priced])
        return range(first, first + len(calls))

    def _price_call(self, demand: Demand, size: float, category: Category) -> tuple[CallKey, int]:
        """A collective among equal ranks, and its template. Asked for often: found by the row itself, whose hash costs more."""
        known, place = self.templates.calls, (id(demand), size, int(category))
        if place not in known:
            key = CallKey(demand.comm, demand.axis, size)
            host = self.call_host + self._check(demand.axis)
            template = self.templates.transfer(demand.stream, self.costs.calls.price_of(key).seconds, category, host)
            known[place] = demand, key, template
        return known[place][1:]

    def _count(self, demand: Demand, size: float) -> float:
        """Books a call as the next instance; returns its seconds."""
        key = CallKey(demand.comm, demand.axis, size)
        self.calls[key] += 1
        if self.live is not None:
            self.live.keep_formula(key)
        self.collectives.append((len(self.rank), key))
        return self.costs.calls.price_of(key).seconds

    def twin(self, demand: Demand, size: float, waits: tuple[int, ...]) -> int:
        """Append the all-reduce of gradients with the stage that holds the other copy of this one's parameters; returns its
        instance."""
        other = self.workload.job.plan.pp - 1 - self.index
        seconds = self._count(demand, size)
        key = keys.twins(self.index, other, self.group)
        if self.live is not None and self.index < other and self.live.runs(demand.axis):
            self.live.bind(np.array([key]), NetworkCall(demand.comm, demand.axis, size, self.index, only=self.only, other=other))
        return self.meet(REDUCE, demand.stream, key, seconds, 2, waits, Category.GRADIENT_REDUCE, Category.GRADIENT_REDUCE, False)

    def sync(
        self,
        kind: Task,
        demand: Demand,
        size: float,
        stages: int,
        waits: tuple[int, ...],
        category: Category,
        host_sync: bool = False,
    ) -> int:
        """Append a collective between `stages` stages, or on this one alone if `stages` is 1; returns its instance."""
        label, axis = (int(kind), -1, -1), demand.axis
        if stages == 1:
            return self.comm(label, demand, size, waits, category)
        seconds = self._count(demand, size)
        key = keys.stages(kind, self.group)
        if axis is Axis.WORLD and self.apart is not None:
            key, stages = keys.everyone(kind), stages * len(self.apart.partners(axis))
        if self.live is not None and self.live.runs(axis) and self.index == 0:
            self.live.bind(np.array([key]), NetworkCall(demand.comm, axis, size, 0, only=self.only))
        return self.meet(label, demand.stream, key, seconds, stages, waits, Category.OTHER_STAGES, category, host_sync, axis)
