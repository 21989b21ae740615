"""The timeline as spans and memory curves, made only when somebody looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.engine import Timeline, run
from windtunnel.memory import StageMemory, curve
from windtunnel.predict.category import Category, Task
from windtunnel.predict.lazy import Lazy
from windtunnel.predict.lower import Lowered
from windtunnel.predict.prediction import Span
from windtunnel.predict.stage import PASSES, Label
from windtunnel.workload import Kind, Phase, Stream, Workload
from windtunnel.workload.schedules import Action

if TYPE_CHECKING:
    from windtunnel.predict.fidelity import Run

Row = tuple[Label, float, float]
"""Label of an instance, begin and end in seconds."""

NAMES = tuple(task.key for task in Task)

OF_PASSES = frozenset(PASSES.tolist())

STREAMS = {
    "forward": "compute",
    "backward": "compute",
    "backward input": "compute",
    "backward weight": "compute",
    "update": "compute",
    "send": "send",
    "receive": "receive",
    "gather": "parameter gather",
    "reduce": "gradient reduce",
    "tied embedding": "world",
    "gradient norm": "world",
    "offload": "offload",
    "fetch": "fetch",
    "to storage": "to storage",
    "from storage": "from storage",
    "cpu update": "CPU",
    "data loading": "data",
}
"""Track of each label kind."""


def blocks(lowered: Lowered, timeline: Timeline) -> Lazy[Span]:
    """Every pass, transfer and collective of every stage, and when its host launched the passes."""

    def make() -> tuple[Span, ...]:
        out = []
        for stage in range(lowered.stages):
            for (kind, micro_batch, chunk), start, end in _rows(lowered, timeline, stage):
                if kind != Task.HOST:
                    name = NAMES[kind]
                    out.append(Span(stage, STREAMS[name], _title(kind, micro_batch), name, start, end, micro_batch, chunk))
            for (kind, micro_batch, chunk), start, end in launches(lowered, timeline, stage):
                out.append(Span(stage, "host launch", _title(kind, micro_batch), "host", start, end, micro_batch, chunk))
        return tuple(out)

    return Lazy(make)


def launches(lowered: Lowered, timeline: Timeline, stage: int) -> Iterator[Row]:
    """When the host of a stage enqueued each pass, from its first kernel to its last: waits for the device inside a pass count."""
    program, rows = lowered.program, timeline.of_rank(stage)
    starts = program.template_start[:-1]
    each = np.add.reduceat(np.append(program.op_host, 0.0), starts)
    waits = np.add.reduceat(np.append(program.op_sync, 0), starts) > 0
    template = program.template[rows]
    begin = timeline.host_begin[rows]
    following = np.append(begin[1:], timeline.host_end[stage])
    end = np.where(waits[template], following, np.minimum(begin + each[template] * program.times[rows], following))
    for label, meeting, since, until in zip(
        lowered.labels[stage].tolist(), (template < 0).tolist(), begin.tolist(), end.tolist(), strict=True
    ):
        if until > since and not meeting:
            yield (label[0], label[1], label[2]), since, until


def kernels(workload: Workload, lowered: Lowered, links: Run | None = None) -> Lazy[Span]:
    """Every kernel and collective inside the passes of every stage: the program runs once more with its operators recorded."""

    def make() -> tuple[Span, ...]:
        network = links.network() if links is not None else None
        recorded = run(lowered.program, record_ops=range(lowered.stages), critical_path=False, network=network).recorded
        ops, program = workload.ops, lowered.program
        seconds = ops.launches > 0
        categories = [Category(int(c)).name.lower().replace("_", " ") for c in lowered.categories]
        streams = [Stream(int(s)).name.lower() for s in ops.stream]
        out = []
        for rank, instance, op, start, end in zip(
            recorded.rank.tolist(),
            recorded.instance.tolist(),
            recorded.op.tolist(),
            recorded.start.tolist(),
            recorded.end.tolist(),
            strict=True,
        ):
            template = int(program.template[program.rank_start[rank] + instance])
            rows = lowered.rows[template] if template >= 0 else None
            if rows is None or rows[op] < 0 or not (seconds[rows[op]] or ops.kind[rows[op]] == Kind.COMM):
                continue
            row = rows[op]
            kind, micro_batch, chunk = lowered.labels[rank][instance].tolist()
            if kind == Task.FORWARD_AND_BACKWARD and ops.phase[row] != Phase.FORWARD:
                chunk, micro_batch = lowered.partners[rank][chunk, micro_batch]
            out.append(Span(rank, streams[row], ops.names[row], categories[row], start, end, micro_batch, chunk))
        return tuple(out)

    return Lazy(make)


def with_curves(
    workload: Workload, lowered: Lowered, timeline: Timeline, memory: tuple[StageMemory, ...]
) -> tuple[StageMemory, ...]:
    """The stages' memory with what is allocated after each pass."""

    def make(stage: StageMemory) -> Lazy[tuple[float, float]]:
        return Lazy(lambda: curve(workload, stage, list(_pass_ends(lowered, timeline, stage.stage))))

    return tuple(replace(stage, curve=make(stage)) for stage in memory)


def pass_times(timeline: Sequence[Span], order: Sequence[Action], stage: int) -> list[tuple[float, float]]:
    """Begin and end of a stage's passes in the `order` of its schedule, then of its update; two at once take a half each."""
    found: dict[tuple[str, int, int], tuple[float, float]] = {}
    for span in timeline:
        if span.stage == stage and span.stream == "compute":
            key = (span.category, span.micro_batch, span.chunk)
            begin, end = found.get(key, (span.start, span.end))
            found[key] = (min(begin, span.start), max(end, span.end))
    times = [found[NAMES[PASSES[a.direction]], a.micro_batch, a.chunk] for a in order]
    for at, action in enumerate(order[:-1]):
        if action.beside_next and times[at] == times[at + 1]:
            begin, end = times[at]
            times[at], times[at + 1] = (begin, (begin + end) / 2.0), ((begin + end) / 2.0, end)
    return [*times, found["update", -1, -1]]


def _pass_ends(lowered: Lowered, timeline: Timeline, stage: int) -> Iterator[float]:
    """Ends of the passes in schedule order; a pass that runs in pieces ends with its last."""
    passes = [(label, end) for label, _, end in _rows(lowered, timeline, stage) if label[0] in OF_PASSES]
    for (label, end), (following, _) in zip(passes, [*passes[1:], ((-1, -1, -1), 0.0)], strict=True):
        if label != following:
            yield end


def _rows(lowered: Lowered, timeline: Timeline, stage: int) -> Iterator[Row]:
    """Of every instance; two passes at once are two rows with the same times."""
    rows = timeline.of_rank(stage)
    times = zip(lowered.labels[stage].tolist(), timeline.begin[rows].tolist(), timeline.end[rows].tolist(), strict=True)
    for (kind, micro_batch, chunk), begin, end in times:
        if kind == Task.FORWARD_AND_BACKWARD:
            other, of = lowered.partners[stage][chunk, micro_batch]
            yield (int(Task.FORWARD), micro_batch, chunk), begin, end
            yield (int(Task.BACKWARD), of, other), begin, end
        else:
            yield (kind, micro_batch, chunk), begin, end


def _title(kind: int, micro_batch: int) -> str:
    return f"{NAMES[kind]} {micro_batch}" if micro_batch >= 0 else NAMES[kind]
