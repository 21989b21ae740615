"""The traces of a run's ranks as one `records.Run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.base.units import show_counted
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.kineto.batches import Around, batches, scan_nothing
from windtunnel.formats.traces.kineto.columns import EventColumns
from windtunnel.formats.traces.kineto.counts import counts_of, total_facts
from windtunnel.formats.traces.kineto.scan import TraceScan
from windtunnel.formats.traces.kineto.schedule import is_schedule, stages
from windtunnel.formats.traces.kineto.sources import Source, sources
from windtunnel.formats.traces.kineto.trace import ReadTrace, build
from windtunnel.records.run import Run, Steps

IGNORED = (
    "occupancy, grid and block sizes, registers of kernels",
    "ranges repeated on the device's rows, overhead of the profiler, flow arrows",
)


def read_traces(files: Sequence[Path], context: Context) -> Reading:
    """A run from the traces of its ranks. FileError for a file without events, or two traces that say they are one rank."""
    traces, notes = ranked_traces(files, context)
    run = run_of(traces, files)
    counts = [counts_of(one) for one in traces]
    events = sum(len(one.trace.events) for one in traces)
    ranks, steps = show_counted(len(traces), "rank"), show_counted(len(run.steps), "step")
    built = (f"a run of {ranks}, {steps}, {show_counted(events, 'event')}",)
    return Reading(
        "kineto", Content.RUN, run, total_facts(traces, counts), built, IGNORED,
        tuple(dict.fromkeys([*notes, *(note for one in traces for note in one.assumed)])),
        tuple(f"{one.trace.source}: {what}" for one in traces for what in broken_of(one)),
    )  # fmt: skip


def ranked_traces(
    files: Sequence[Path], context: Context, columns: Callable[[], EventColumns] = EventColumns
) -> tuple[list[ReadTrace], list[str]]:
    """The traces in the files by rank, and notes where a rank is a guess; `columns` makes what gathers a trace's events."""
    traces: list[ReadTrace] = []
    for source in sources(files, context.progress):
        traces.extend(read_source(source, len(traces), columns()))
    if not traces:
        raise FileError(str(files[0]), "an archive without a trace", "a profiler trace, or an archive of them")
    return _sort_by_rank(traces)


def run_of(traces: Sequence[ReadTrace], files: Sequence[Path]) -> Run:
    """The run that the traces of its ranks are."""
    rank, step, begin, seconds = [], [], [], []
    for one in traces:
        for number, start, length in one.steps:
            rank.append(one.trace.rank)
            step.append(number)
            begin.append(start)
            seconds.append(length)
    return Run(
        Steps.of(rank, step, begin=begin, seconds=seconds),
        tuple(one.trace for one in traces),
        {name: value for name, value in _facts(traces).items()},
        ", ".join(str(path) for path in files[:3]),
    )


def read_source(source: Source, order: int, columns: EventColumns) -> list[ReadTrace]:
    """The traces in one source, streamed into `columns`: one, or one for each stage of a pipeline's schedule."""
    around = Around()
    scan = TraceScan(columns).take if type(columns) is EventColumns else scan_nothing
    for batch in batches(source.name, source.chunks, around, columns.layout, scan):
        columns.add(batch)
    around.broken.extend(source.broken)
    if not around.events:
        raise FileError(source.name, "a trace without events", "a trace with at least one event", "; ".join(around.broken))
    if is_schedule(columns):
        return stages(source.name, columns, around)
    return [build(source.name, columns, around, order)]


def _sort_by_rank(traces: list[ReadTrace]) -> tuple[list[ReadTrace], list[str]]:
    """The traces by rank, each rank once; notes where a rank is a guess."""
    notes = [
        f"{one.trace.source}: rank {one.trace.rank} from {one.rank_from}"
        for one in traces
        if one.rank_from not in ("distributedInfo", "the trace")
    ]
    taken: dict[int, str] = {}
    ranked: list[ReadTrace] = []
    for one in traces:
        rank = one.trace.rank
        if rank in taken:
            if one.rank_from == "distributedInfo" and len(traces) > 1 and one.trace.world != 1:
                raise FileError(one.trace.source, f"rank {rank}", "one trace for each rank", f"{taken[rank]} is rank {rank} too.")
            rank = next(free for free in range(len(traces)) if free not in taken)
            notes.append(f"{one.trace.source}: rank {rank}, since another trace says {one.trace.rank}")
            one = replace(one, trace=replace(one.trace, rank=rank))
        taken[rank] = one.trace.source
        ranked.append(one)
    return sorted(ranked, key=lambda one: one.trace.rank), notes


def _facts(traces: Sequence[ReadTrace]) -> dict[str, str | int | float]:
    first = traces[0]
    facts: dict[str, str | int | float] = {}
    if first.trace.device:
        facts["device"] = first.trace.device
    if (world := max(one.trace.world for one in traces)) > 0:
        facts["world_size"] = world
    info = first.around.fields.get("distributedInfo")
    for name in ("backend", "nccl_version"):
        if isinstance(info, dict) and isinstance(info.get(name), str):
            facts[name] = info[name]
    return facts


def broken_of(one: ReadTrace) -> list[str]:
    """What could not be read of a trace, with counts."""
    events = one.around.broken_events
    unpaired = one.columns.unpaired + sum(len(stack) for stack in one.columns.open.values())
    return [
        *([f"{events} events that are not valid JSON"] if events else []),
        *([f"{unpaired} beginnings or ends without the other"] if unpaired else []),
        *one.around.broken,
        *one.broken,
    ]
