"""The timeline as spans and memory curves, made only when somebody looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from windtunnel.engine import Timeline, run
from windtunnel.memory import StageMemory, curve
from windtunnel.predict.category import Category
from windtunnel.predict.lazy import Lazy
from windtunnel.predict.lower import Lowered
from windtunnel.predict.prediction import Span
from windtunnel.predict.stage import Kind
from windtunnel.workload import Kind as OpKind
from windtunnel.workload import Stream, Workload

NAMES = tuple(kind.name.lower().replace("_", " ") for kind in Kind)

STREAMS = {
    "forward": "compute",
    "backward": "compute",
    "update": "compute",
    "host": "host",
    "send": "send",
    "receive": "receive",
    "gather": "parameter gather",
    "reduce": "gradient reduce",
    "tied embedding": "world",
    "gradient norm": "world",
}
"""Track of each label kind."""


def blocks(lowered: Lowered, timeline: Timeline) -> Lazy[Span]:
    """Every pass, transfer and collective of every stage."""

    def make() -> tuple[Span, ...]:
        return tuple(
            Span(stage, STREAMS[NAMES[kind]], _title(kind, micro_batch), NAMES[kind], start, end, micro_batch, chunk)
            for stage in range(len(lowered.labels))
            for (kind, micro_batch, chunk), start, end in _rows(lowered, timeline, stage)
            if kind != Kind.HOST
        )

    return Lazy(make)


def kernels(workload: Workload, lowered: Lowered) -> Lazy[Span]:
    """Every kernel and collective inside the passes of every stage: the program runs once more with its operators recorded."""

    def make() -> tuple[Span, ...]:
        recorded = run(lowered.program, record_ops="all", critical_path=False).recorded
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
            if rows is None or not (seconds[rows[op]] or ops.kind[rows[op]] == OpKind.COMM):
                continue
            row = rows[op]
            _, micro_batch, chunk = lowered.labels[rank][instance].tolist()
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


def _pass_ends(lowered: Lowered, timeline: Timeline, stage: int) -> Iterator[float]:
    """Ends of the passes in schedule order; a pass that runs in pieces ends with its last."""
    passes = [(label, end) for label, _, end in _rows(lowered, timeline, stage) if label[0] in (Kind.FORWARD, Kind.BACKWARD)]
    for (label, end), (following, _) in zip(passes, [*passes[1:], ((-1, -1, -1), 0.0)], strict=True):
        if label != following:
            yield end


def _rows(lowered: Lowered, timeline: Timeline, stage: int) -> Iterator[tuple[tuple[int, int, int], float, float]]:
    rows = timeline.of_rank(stage)
    labels = [tuple(label) for label in lowered.labels[stage].tolist()]
    return zip(labels, timeline.begin[rows].tolist(), timeline.end[rows].tolist(), strict=True)


def _title(kind: int, micro_batch: int) -> str:
    return f"{NAMES[kind]} {micro_batch}" if micro_batch >= 0 else NAMES[kind]
