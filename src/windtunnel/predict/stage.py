"""One stage's program while it is being written, and what its instances are called."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from windtunnel.engine import RankBuilder
from windtunnel.predict.category import Category
from windtunnel.predict.costs import Costs
from windtunnel.predict.templates import Templates
from windtunnel.workload import Axis, Comm, Stream, Workload


@dataclass(frozen=True)
class Label:
    """What an instance of the program is, for timelines: kind is forward, backward, send, gather, reduce, update, sync or host."""

    kind: str
    micro_batch: int = -1
    chunk: int = -1


class Stage:
    """Builds the program of one stage and keeps its labels."""

    def __init__(self, index: int, rank: RankBuilder, templates: Templates, workload: Workload, costs: Costs) -> None:
        self.index, self.rank, self.templates, self.workload, self.costs = index, rank, templates, workload, costs
        self.labels: list[Label] = []
        self.calls: Counter[tuple[Comm, Axis, float]] = Counter()

    def run(self, template: int, label: Label, waits: tuple[int, ...] = (), host_sync: bool = False) -> int:
        """Append rows of a template; returns the instance."""
        self.labels.append(label)
        return self.rank.add(template, waits=waits, host_sync=host_sync)

    def call(self, label: Label, stream: Stream, key: int, seconds: float, ranks: int, waits: tuple[int, ...] = (),
             waiting: Category = Category.OTHER_STAGES, moving: Category = Category.STEP_SYNC, host_sync: bool = False) -> int:
        """Append a transfer that `ranks` stages take part in; returns its instance."""
        host = self.workload.job.runtime.host
        self.labels.append(label)
        return self.rank.add_rendezvous(stream=int(stream), parts=((key, seconds, ranks),), waits=waits, host=host.launch + host.collective,
                                        cat_wait=int(waiting), cat_transfer=int(moving), host_sync=host_sync)

    def comm(self, label: Label, call: Comm, axis: Axis, size: float, stream: Stream, waits: tuple[int, ...], category: Category) -> int:
        """Append a collective among equal ranks (its duration is all there is to it); returns its instance."""
        self.calls[call, axis, size] += 1
        seconds = self.costs.network.price(call, axis, size).seconds
        template = self.templates.transfer(stream, seconds, category)
        return self.run(template, label, waits)
