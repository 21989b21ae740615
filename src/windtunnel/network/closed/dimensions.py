"""Collectives on machines of several network dimensions, each a ring, fully connected or a switch: closed forms.

A collective passes the dimensions one after the other: a reduce-scatter leaves 1/n of the bytes, all-gathers run in reverse order.
The buffer is split into chunks, and each dimension serves one chunk at a time, so that dimensions work in parallel. `plain` sends
all chunks through the dimensions in the same order (Won et al., "ASTRA-sim2.0", ISPASS 2023); `themis` gives each chunk the order
in which the least loaded dimension moves most (Rashidi et al., "Themis", ISCA 2022).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.workload.ops import Comm

Kind = Literal["ring", "both_ways", "line", "fully_connected", "switch"]
Schedule = Literal["plain", "themis"]
CHUNKS = 64
"""Chunks of a collective, as in ASTRA-sim's case studies; more chunks cost more latency."""


@dataclass(frozen=True)
class Dimension:
    """One dimension: `size` accelerators along it; `bandwidth`: B/s of one accelerator each way over all its links of the
    dimension (of a line: over one, as its ends have no other); `latency`: seconds of a hop. Ring algorithms run on rings, direct
    ones on fully connected dimensions, halving on switches. A ring sends one way; `both_ways` sends halves either way round, each
    half way; a line passes what comes from one side on to the other."""

    kind: Kind
    size: int
    bandwidth: float
    latency: float = 5e-7

    def __post_init__(self) -> None:
        if self.kind not in STEPS:
            raise SpecError("dimension.kind", self.kind, ", ".join(STEPS))
        if self.size < 1 or self.bandwidth <= 0.0 or self.latency < 0.0:
            raise SpecError(
                "dimension", (self.size, self.bandwidth, self.latency), "a size from 1, a bandwidth above 0, a latency from 0"
            )

    def scatter(self, size: float) -> float:
        """Seconds of a reduce-scatter of `size` bytes on each, or an all-gather to as many: all algorithms send (n-1)/n of them."""
        if self.size == 1:
            return 0.0
        if self.kind == "both_ways":
            return self._halves(size)
        return STEPS[self.kind](self.size) * self.latency + size * (self.size - 1) / self.size / self.bandwidth

    def exchange(self, size: float) -> float:
        """Seconds of an all-to-all of `size` bytes on each. On a ring bytes pass others' links, n/4 of them on average."""
        if self.size == 1:
            return 0.0
        n = self.size
        if self.kind == "line":
            return (n - 1) * self.latency + size / n * (n * n // 4) / self.bandwidth
        if self.kind not in ("ring", "both_ways"):
            return self.latency + size * (n - 1) / n / self.bandwidth
        return n // 2 * self.latency + size / n * (n * n // 4) / self.bandwidth

    def _halves(self, size: float) -> float:
        """Halves of shares in pairs: the first ones of a pair leave as soon as those of the pair before have come."""
        each = size / self.size / self.bandwidth
        pairs, one = divmod(self.size - 1, 2)
        period = max(2 * each, each + self.latency)
        return (pairs + one - 1) * period + (each if one else 2 * each) + self.latency


STEPS: dict[str, Callable[[int], int]] = {
    "ring": lambda n: n - 1,
    "both_ways": lambda n: n // 2,
    "line": lambda n: n - 1,
    "fully_connected": lambda n: 1,
    "switch": lambda n: math.ceil(math.log2(n)),
}
"""Steps of a reduce-scatter over n accelerators, by kind."""


@dataclass(frozen=True)
class Walk:
    """Seconds of a collective, and of each dimension's work in it."""

    seconds: float
    busy: tuple[float, ...]

    @property
    def utilisation(self) -> tuple[float, ...]:
        """Share of the time in which each dimension works."""
        return tuple(busy / self.seconds if self.seconds else 0.0 for busy in self.busy)


def walk(dimensions: Sequence[Dimension], comm: Comm, size: float, schedule: Schedule = "plain", chunks: int = CHUNKS) -> Walk:
    """`comm` (all-reduce, all-gather, reduce-scatter, all-to-all) of `size` bytes, the whole buffer, over all accelerators.

    Raises SpecError for another call, an unknown schedule, or an invalid number of chunks.
    """
    if comm not in PHASES:
        raise SpecError("comm", comm.name.lower(), ", ".join(known.name.lower() for known in PHASES))
    if schedule not in ("plain", "themis"):
        raise SpecError("schedule", schedule, "plain, themis")
    if chunks < 1:
        raise SpecError("chunks", chunks, "a number from 1")
    if comm is Comm.ALL_TO_ALL and schedule == "themis":
        schedule = "plain"  # every dimension moves the same share whatever the order
    orders = [tuple(range(len(dimensions)))] * chunks
    if schedule == "themis":
        orders = themis(len(dimensions), chunks, lambda order: _shrinking(dimensions, order, size / chunks))
    return _serve(len(dimensions), [PHASES[comm](dimensions, order, size / chunks) for order in orders])


def _shrinking(dimensions: Sequence[Dimension], order: Sequence[int], size: float) -> list[tuple[int, float]]:
    """(dimension, seconds) of a reduce-scatter that passes the dimensions in `order`."""
    phases = []
    for d in order:
        phases.append((d, dimensions[d].scatter(size)))
        size /= dimensions[d].size
    return phases


def _exchange(dimensions: Sequence[Dimension], order: Sequence[int], size: float) -> list[tuple[int, float]]:
    return [(d, dimensions[d].exchange(size)) for d in order]


PHASES: dict[Comm, Callable[[Sequence[Dimension], Sequence[int], float], list[tuple[int, float]]]] = {
    Comm.REDUCE_SCATTER: _shrinking,
    Comm.ALL_GATHER: lambda dimensions, order, size: _shrinking(dimensions, order, size)[::-1],
    Comm.ALL_REDUCE: lambda dimensions, order, size: [*(there := _shrinking(dimensions, order, size)), *there[::-1]],
    Comm.ALL_TO_ALL: _exchange,
}


def themis(dimensions: int, chunks: int, work: Callable[[Sequence[int]], Iterable[tuple[int, float]]]) -> list[tuple[int, ...]]:
    """Themis: the order in which each chunk visits the dimensions, from the least to the most loaded so far; the first moves most.

    `work(order)` gives (dimension, load) of each dimension that a chunk puts on it in that order. Equal loads go by dimension,
    whatever rounding makes of them.
    """
    load = [0.0] * dimensions
    orders = []
    for _ in range(chunks):
        most = max(load)
        order = tuple(sorted(range(dimensions), key=lambda d: (without_rounding(load[d], most), d)))
        for d, more in work(order):
            load[d] += more
        orders.append(order)
    return orders


def _serve(count: int, jobs: Sequence[Sequence[tuple[int, float]]]) -> Walk:
    """Chunks through dimensions: when the last one is through, and how long each dimension is busy."""
    busy, end = [0.0] * count, 0.0
    for chunk, phase, done in serve_first_come(jobs):
        dimension, seconds = jobs[chunk][phase]
        busy[dimension] += seconds
        end = max(end, done)
    return Walk(end, tuple(busy))


def serve_first_come(jobs: Sequence[Sequence[tuple[int, float]]]) -> Iterator[tuple[int, int, float]]:
    """(chunk, phase, end) of each chunk's phases, which are (dimension, seconds), in the order in which dimensions take them: each
    serves one at a time, the one that came first; ties go by chunk."""
    free: dict[int, float] = {}
    whole = sum(seconds for job in jobs for _, seconds in job)
    ready = [(0.0, chunk, 0, 0.0) for chunk in range(len(jobs))]
    while ready:
        _, chunk, phase, came = heapq.heappop(ready)
        dimension, seconds = jobs[chunk][phase]
        done = free[dimension] = max(came, free.get(dimension, 0.0)) + seconds
        yield chunk, phase, done
        if phase + 1 < len(jobs[chunk]):
            heapq.heappush(ready, (without_rounding(done, whole), chunk, phase + 1, done))


def without_rounding(value: float, scale: float) -> float:
    """A key that is equal for values that only rounding tells apart, beside `scale`: who comes first must not hang on it."""
    return round(value / scale, 10) if scale else 0.0


def split(dimensions: Sequence[Dimension], ranks: int) -> tuple[tuple[Dimension, ...], tuple[Dimension, ...]]:
    """The innermost dimensions of groups of `ranks` accelerators, and the remaining dimensions for groups across them. A dimension
    is split in two if necessary; a part of a ring keeps its rate. Raises SpecError if sizes do not divide."""
    most = math.prod(d.size for d in dimensions)
    if ranks > most:
        raise SpecError("ranks", ranks, f"at most {most} accelerators")
    inner: list[Dimension] = []
    for place, dimension in enumerate(dimensions):
        if ranks % dimension.size and dimension.size % ranks:
            raise SpecError("ranks", ranks, f"a divisor or multiple of a dimension of {dimension.size}")
        if ranks <= dimension.size:
            rest = replace(dimension, size=dimension.size // ranks)
            inner.append(replace(dimension, size=ranks))
            return tuple(d for d in inner if d.size > 1), tuple(d for d in (rest, *dimensions[place + 1 :]) if d.size > 1)
        inner.append(dimension)
        ranks //= dimension.size
    return tuple(inner), ()
