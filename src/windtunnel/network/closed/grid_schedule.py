"""In which order the parts of a collective pass the dimensions of a machine, and when each is there.

A part is reduce-scattered in one dimension after the other and gathered on the way back (`dimensions.py`); a dimension serves one
part at a time. Who comes first is decided once, with links alone and no latencies, and holds for every size. So a call never gets
slower because links get faster, and lanes wait for each other in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from windtunnel.network.closed.dimensions import PHASES, Dimension, serve_first_come, themis
from windtunnel.workload.ops import Comm

INNERMOST_CHUNKS = 8
"""Parts of a call whose parts all pass the dimensions in one order: more hide more, and cost more latency."""


class GridStage(NamedTuple):
    """A part's pass through a span: `place` among its stages, `reduces` or gathers (or exchanges), `size` bytes on each
    accelerator for each byte of the call."""

    chunk: int
    place: int
    span: int
    reduces: bool
    share: float


class Schedule(NamedTuple):
    """Stages in the order in which they are served; `resource` [spans]: the dimension that serves a span."""

    stages: tuple[GridStage, ...]
    resource: tuple[int, ...]

    def before(self) -> list[tuple[int | None, int | None]]:
        """For each stage the one before it of its part, and the one before it in its dimension, by their places."""
        of_chunk: dict[int, int] = {}
        of_resource: dict[int, int] = {}
        found = []
        for at, stage in enumerate(self.stages):
            served = self.resource[stage.span]
            found.append((of_chunk.get(stage.chunk), of_resource.get(served)))
            of_chunk[stage.chunk] = of_resource[served] = at
        return found


@lru_cache(maxsize=1024)
def schedule(comm: Comm, spans: tuple[Dimension, ...], resource: tuple[int, ...], order: str, chunks: int | None) -> Schedule:
    """The stages of a collective over spans, the innermost first. `order`: rotated, innermost or themis."""
    alone = tuple(replace(span, latency=0.0) for span in spans)
    count = len(spans)
    parts = chunks or (count if order == "rotated" or count == 1 else INNERMOST_CHUNKS)
    parts = 1 if count == 1 and chunks is None else parts
    if order == "themis" and comm is not Comm.ALL_TO_ALL:
        load = lambda one: PHASES[Comm.REDUCE_SCATTER](alone, one, 1.0 / parts)  # noqa: E731
        orders = themis(count, parts, load)
    elif order == "rotated":
        orders = [tuple((first + step) % count for step in range(count)) for first in (part % count for part in range(parts))]
    else:
        orders = [tuple(range(count))] * parts
    paths = [_path(comm, spans, one, chunk, 1.0 / parts) for chunk, one in enumerate(orders)]
    return Schedule(tuple(_serve(paths, alone, resource, comm)), resource)


def _path(comm: Comm, spans: Sequence[Dimension], order: Sequence[int], chunk: int, share: float) -> list[GridStage]:
    """The stages of one part."""
    if comm is Comm.ALL_TO_ALL:
        return [GridStage(chunk, place, span, False, share) for place, span in enumerate(order)]
    shares = []
    for span in order:
        shares.append((span, share))
        share /= spans[span].size
    there = [(span, True, each) for span, each in shares] if comm is not Comm.ALL_GATHER else []
    back = [(span, False, each) for span, each in shares[::-1]] if comm is not Comm.REDUCE_SCATTER else []
    return [GridStage(chunk, place, *one) for place, one in enumerate([*there, *back])]


def _serve(
    paths: Sequence[Sequence[GridStage]], spans: Sequence[Dimension], resource: Sequence[int], comm: Comm
) -> list[GridStage]:
    """All stages as dimensions that serve who comes first take them."""
    jobs = [[(resource[stage.span], seconds_of(comm, spans, stage, 1.0)) for stage in path] for path in paths]
    return [paths[chunk][place] for chunk, place, _ in serve_first_come(jobs)]


def seconds_of(comm: Comm, spans: Sequence[Dimension], stage: GridStage, size: float) -> float:
    """Seconds of a stage of a call of `size` bytes."""
    along = spans[stage.span]
    return along.exchange(stage.share * size) if comm is Comm.ALL_TO_ALL else along.scatter(stage.share * size)


def makespan(comm: Comm, spans: Sequence[Dimension], plan: Schedule, size: float) -> tuple[float, float]:
    """(seconds of a call of `size` bytes, those in which the busiest dimension moves bytes)."""
    chunk: dict[int, float] = {}
    free = dict.fromkeys(plan.resource, 0.0)
    busy = dict.fromkeys(plan.resource, 0.0)
    for stage in plan.stages:
        served = plan.resource[stage.span]
        seconds = seconds_of(comm, spans, stage, size)
        done = max(chunk.get(stage.chunk, 0.0), free[served]) + seconds
        chunk[stage.chunk] = free[served] = done
        busy[served] += seconds_of(comm, [replace(span, latency=0.0) for span in spans], stage, size)
    return max(free.values()), max(busy.values())
