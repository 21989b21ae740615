"""Spans as tracks of a timeline: integer nanoseconds, a lane for spans that do not overlap, arrows along the pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from windtunnel.predict.category import Task
from windtunnel.predict.prediction import Span
from windtunnel.spec import Job

Arrows = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids of the arrows that leave or pass a slice, and of those that end on it."""


@dataclass(frozen=True)
class Track:
    """Spans of one stage and stream in time order, none overlapping another; `start` and `end` in ns, `arrows` by position.

    `lands_at_end`: an arrow that ends on a slice ends on its end rather than on its begin: the slice may have waited for it.
    """

    stage: int
    name: str
    spans: list[Span]
    start: list[int]
    end: list[int]
    arrows: dict[int, Arrows] = field(default_factory=dict)
    lands_at_end: bool = False


def tracks_of(blocks: Iterable[Span], kernels: Iterable[Span] = (), job: Job | None = None) -> list[Track]:
    """Tracks by stage: the streams of `blocks`, then those of `kernels` (named `… kernels`).

    Two spans of one stream that overlap in time (concurrent collectives, say) go to numbered lanes, so no track ever overlaps.
    Spans that end before they start are taken as empty at their start.
    """
    blocks = list(blocks)
    arrows = {id(blocks[i]): stage_arrows for i, stage_arrows in _arrows(blocks, job).items()}
    streams: dict[tuple[int, int, str], list[Span]] = {}
    for level, spans in enumerate((blocks, kernels)):
        for span in spans:
            streams.setdefault((span.stage, level, span.stream), []).append(span)
    tracks: list[Track] = []
    for key in sorted(streams, key=lambda k: (k[0], k[1])):  # streams of a stage stay in the order of their first span
        stage, level, stream = key
        title = f"{stream} kernels" if level else stream
        for lane, track in enumerate(_lanes(streams[key])):
            spans, start, end = track
            marked = {i: arrows[id(s)] for i, s in enumerate(spans) if id(s) in arrows} if level == 0 else {}
            tracks.append(Track(stage, title if lane == 0 else f"{title} ({lane + 1})", spans, start, end, marked))
    return tracks


def _lanes(spans: list[Span]) -> list[tuple[list[Span], list[int], list[int]]]:
    """Spans in time order on as few lanes as keep every lane free of overlap; times in ns."""
    start = np.rint(np.array([s.start for s in spans]) * 1e9).astype(np.int64)
    end = np.maximum(start, np.rint(np.array([s.end for s in spans]) * 1e9).astype(np.int64))
    order = np.lexsort((end, start))
    start, end = start[order], end[order]
    ordered = [spans[i] for i in order.tolist()]
    if np.all(start[1:] >= end[:-1]):
        return [(ordered, start.tolist(), end.tolist())]
    lanes: list[tuple[list[Span], list[int], list[int]]] = []
    for span, begin, stop in zip(ordered, start.tolist(), end.tolist(), strict=True):
        lane = next((lane for lane in lanes if lane[2][-1] <= begin), None)
        if lane is None:
            lane = ([], [], [])
            lanes.append(lane)
        lane[0].append(span)
        lane[1].append(begin)
        lane[2].append(stop)
    return lanes


BACKWARD = (Task.BACKWARD.key, Task.BACKWARD_INPUT.key, Task.BACKWARD_WEIGHT.key)
"""Categories of backward passes, also of split ones (input and weight gradients)."""


def direction(span: Span) -> str:
    """`forward`, `backward` or an empty string, by a span's category."""
    if span.category in BACKWARD:
        return "backward"
    return "forward" if span.category == Task.FORWARD.key else ""


def is_send(span: Span) -> bool:
    """Whether the span is a pipeline send or receive."""
    return span.category in (Task.SEND.key, Task.RECEIVE.key)


def is_receive(span: Span) -> bool:
    """Whether the span is the receiving side of a pipeline transfer."""
    return span.category == Task.RECEIVE.key


def _arrows(blocks: list[Span], job: Job | None) -> dict[int, Arrows]:
    """Arrows between a pass of a micro batch and the pass of the part of the model that consumes it, through the send if there is
    one.

    Where parts sit is the job's plan; without a job, virtual stage v of a stage is part v * stages + stage, as Megatron numbers
    them. Backward runs the other way; no pass consumes weight gradients.
    """
    passes: dict[tuple[str, int, int], int] = {}
    sends: dict[tuple[int, int, int], list[int]] = {}
    stages = 1 + max((s.stage for s in blocks), default=0)
    for index, span in enumerate(blocks):
        if span.micro_batch < 0:
            continue
        chunk = max(span.chunk, 0)
        if is_send(span):  # a receive lies on the target's stage under its own chunk: the arrow passes through the send only
            if not is_receive(span):
                sends.setdefault((span.stage, span.micro_batch, chunk), []).append(index)
        elif (way := direction(span)) and span.category != Task.BACKWARD_WEIGHT.key:
            part = job.places[span.stage][chunk] if job else chunk * stages + span.stage
            key = (way, span.micro_batch, part)
            if key not in passes or span.end > blocks[passes[key]].end:
                passes[key] = index
    flows: dict[int, list[int]] = {}
    lands: dict[int, list[int]] = {}
    arrow = 0
    for (way, micro, part), source in passes.items():
        target = passes.get((way, micro, part + (1 if way == "forward" else -1)))
        if target is None or blocks[target].stage == blocks[source].stage:
            continue
        arrow += 1
        span, after = blocks[source], blocks[target]
        between = [
            i
            for i in sends.get((span.stage, micro, max(span.chunk, 0)), ())
            if span.end - 1e-9 <= blocks[i].start and blocks[i].end <= after.start + 1e-9
        ]
        for index in (source, *between[:1], target):
            flows.setdefault(index, []).append(arrow)
        lands.setdefault(target, []).append(arrow)
    return {i: (tuple(a for a in flows[i] if a not in lands.get(i, ())), tuple(lands.get(i, ()))) for i in flows}
