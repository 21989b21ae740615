"""The traces of a run's ranks as one `records.Run`.

Events that the core reads out of the text into columns: nearly all of an ordinary trace.

The core takes only a piece of text that it is sure of, and what single events need that are no complete ones, or whose arguments
matter one by one, is decoded here. So a trace reads the same with and without it.

What was counted in a trace, by keys that an independent script finds too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from windtunnel.base.arrays import Floats, Int32s
from windtunnel.base.errors import FileError
from windtunnel.base.units import show_counted
from windtunnel.engine.scan import EventScanner, ScannedEvents
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.kineto.batches import WORDS, Around, batches, scan_nothing
from windtunnel.formats.traces.kineto.columns import EventColumns, key_of
from windtunnel.formats.traces.kineto.fields import Args, TraceEvent
from windtunnel.formats.traces.kineto.schedule import is_schedule, stages
from windtunnel.formats.traces.kineto.sources import Source, sources
from windtunnel.formats.traces.kineto.trace import ReadTrace, build
from windtunnel.records.comm_kernels import library_of
from windtunnel.records.intervals import overlap, union
from windtunnel.records.run import EventKind, Run, Steps

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


_COPIED = ("begin", "duration", "correlation", "external", "stream", "device", "bytes")
_LEFT = ("B", "E", "i", "I", "M")
"""Phases of events that are decoded here."""


class TraceScan:
    """Adds the complete events of a trace to its columns, piece by piece."""

    def __init__(self, columns: EventColumns) -> None:
        self.columns, self.scanner = columns, EventScanner()
        self.texts: list[str] = []  # [N] names by the core's number
        self.names = np.empty(0, np.int32)  # [N] their index among the columns' names
        self.places = np.empty(0, np.int32)  # [P] the same of places
        self.arguments: msgspec.json.Decoder[Args] = msgspec.json.Decoder(Args)
        self.others: msgspec.json.Decoder[list[TraceEvent]] = msgspec.json.Decoder(list[TraceEvent])

    def take(self, text: bytes, end: int) -> tuple[list[TraceEvent], int] | None:
        """The events in the first `end` bytes of the text: those that are left, and how many were added to the columns.

        None where the core does not take the piece.
        """
        found = self.scanner.scan(text, end)
        if found is None:
            return None
        columns = self.columns
        left = self._decode_left(text, found)
        for phase, count in zip(found.phases, found.counts.tolist(), strict=True):
            word = phase.decode()
            columns.phases[word] += 0 if word in _LEFT else count  # the others are counted where they are added
        if not len(found.name):
            return left, found.events - len(left)
        self._number_texts(found)
        part: dict[str, np.ndarray[Any, Any]] = {name: getattr(found, name) for name in _COPIED}
        part |= {"name": self.names[found.name], "place": self.places[found.place]}
        columns.append_columns(part, self._decode_noted(text, found))
        return left, found.events - len(left)

    def _number_texts(self, found: ScannedEvents) -> None:
        names, places = self.columns.names, self.columns.places
        texts = [_name(raw) for raw in found.new_names]
        self.texts += texts
        self.names = _extend(self.names, [names.setdefault(text, len(names)) for text in texts])
        self.places = _extend(self.places, [places.setdefault(key_of(_place(raw)), len(places)) for raw in found.new_places])

    def _decode_noted(self, text: bytes, found: ScannedEvents) -> Iterator[tuple[int, Args, str]]:
        """Row, arguments and name of the events whose arguments may matter."""
        numbers = found.name[found.noted].tolist()
        spans = zip(found.arguments_begin.tolist(), found.arguments_end.tolist(), strict=True)
        for row, number, (begin, end) in zip(found.noted.tolist(), numbers, spans, strict=True):
            yield row, self._decode_args(text[begin:end]), self.texts[number]

    def _decode_left(self, text: bytes, found: ScannedEvents) -> list[TraceEvent]:
        parts = [text[b:e] for b, e in zip(found.others_begin.tolist(), found.others_end.tolist(), strict=True)]
        if not parts:
            return []
        joined = b"[" + b",".join(parts) + b"]"
        try:
            return self.others.decode(joined)
        except msgspec.DecodeError:
            return self.others.decode(WORDS.sub(rb"\1null", joined))

    def _decode_args(self, text: bytes) -> Args:
        try:
            return self.arguments.decode(text)
        except msgspec.DecodeError:
            return self.arguments.decode(WORDS.sub(rb"\1null", text))


def _extend(numbers: Int32s, more: list[int]) -> Int32s:
    return np.concatenate((numbers, np.array(more, np.int32))) if more else numbers


def _name(raw: bytes) -> str:
    name = msgspec.json.decode(raw)
    return name if isinstance(name, str) else str(name)


def _place(raw: bytes) -> TraceEvent:
    """An event of a place as the core writes it."""
    values: list[Any] = []
    while raw:
        if raw[:1] == b"-":
            values.append(None)
            raw = raw[1:]
            continue
        length, _, rest = raw.partition(b":")
        values.append(msgspec.json.decode(rest[: int(length)]))
        raw = rest[int(length) :]
    category, process, thread = values
    return TraceEvent(cat=category, pid=process, tid=thread)


def counts_of(one: ReadTrace) -> dict[str, Any]:
    """Counts of one trace. Times in microseconds, as the file has them; `gpu` covers kernels, calls and copies."""
    events, table = one.trace.events, one.table
    facts: dict[str, Any] = {
        "rank": one.trace.rank,
        "events": one.around.events,
        "phases": dict(one.columns.phases),
        "categories": _categories(one),
    }
    ends = table.begin + np.maximum(table.duration, 0.0)
    timed = np.isfinite(ends)
    if timed.any():
        facts["span_us"] = _us(float(ends[timed].max() - table.begin[timed].min()))
    if (events.kind <= EventKind.COPY).any():
        facts["gpu"], facts["comm_kernels"] = _gpu(one), _calls(one)
    steps = {f"ProfilerStep#{number}": _us(seconds * 1e6) for number, _, seconds in one.steps}
    if one.rank_from == "the trace":  # a pipeline's timeline
        facts["iterations"] = sorted({number for number, _, _ in one.steps})
        facts["ranges"] = {
            name: int(n) for name, n in zip(events.names, np.bincount(events.name, minlength=len(events.names)), strict=True) if n
        }
    else:
        facts["profiler_steps"], facts["step_dur_us"] = list(steps), steps
    if one.columns.peak:
        facts["peak_allocated_bytes"] = one.columns.peak
    return facts


def total_facts(traces: Sequence[ReadTrace], counts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The facts of an import: the counts of a single trace as they are, sums and a list by rank of several."""
    first = traces[0]
    about: dict[str, Any] = {"ranks": len(traces)}
    if (world := max(one.trace.world for one in traces)) > 0:
        about["world_size"] = world
    if first.trace.device:
        about["device"] = first.trace.device
    if len(counts) == 1:
        return about | counts[0]
    about["events"] = sum(one["events"] for one in {id(t.around): c for t, c in zip(traces, counts, strict=True)}.values())
    about["kernels"] = sum(one.get("gpu", {}).get("kernels", 0) for one in counts)
    about["steps"] = len({number for one in traces for number, _, _ in one.steps})
    return about | {"by_rank": list(counts)}


def _categories(one: ReadTrace) -> dict[str, dict[str, float]]:
    """Complete events and their time by category, in the file's own spelling."""
    table = one.table
    count = np.bincount(table.place, minlength=len(table.places))
    time = np.bincount(table.place, np.nan_to_num(table.duration), minlength=len(table.places))
    summed: dict[str, dict[str, float]] = {}
    for number, (category, _, _) in enumerate(table.places):
        entry = summed.setdefault(str(category), {"n": 0, "dur_us": 0.0})
        entry["n"] += int(count[number])
        entry["dur_us"] = _us(entry["dur_us"] + float(time[number]))
    return dict(sorted(summed.items()))


def _gpu(one: ReadTrace) -> dict[str, Any]:
    events = one.trace.events
    begin, end = events.begin * 1e6, (events.begin + events.seconds) * 1e6
    call = events.kind == EventKind.CALL
    kernel = call | (events.kind == EventKind.KERNEL)
    on_gpu = kernel | (events.kind == EventKind.COPY)
    compute, comm = kernel & ~call, call
    return {
        "kernels": int(kernel.sum()),
        "comm_kernels": int(call.sum()),
        "kernel_sum_us": _us(float(events.seconds[kernel].sum() * 1e6)),
        "gpu_span_us": _us(float(end[on_gpu].max() - begin[on_gpu].min())),
        "gpu_busy_union_us": _length(begin[on_gpu], end[on_gpu]),
        "compute_union_us": _length(begin[compute], end[compute]),
        "comm_union_us": _length(begin[comm], end[comm]),
        "comm_and_compute_overlap_us": _us(overlap(union(begin[compute], end[compute]), union(begin[comm], end[comm]))),
        "streams": sorted({str(int(lane)) for lane in np.unique(events.lane[on_gpu])}),
    }


def _calls(one: ReadTrace) -> dict[str, dict[str, Any]]:
    """Communication kernels by name without arguments, with the library that launched them."""
    events = one.trace.events
    named: dict[str, dict[str, Any]] = {}
    for at in np.flatnonzero(events.kind == EventKind.CALL):
        name = events.names[events.name[at]]
        entry = named.setdefault(name.split("(")[0], {"n": 0, "library": library_of(name), "dur_us": 0.0, "bytes": 0.0})
        entry["n"] += 1
        entry["dur_us"] = _us(entry["dur_us"] + float(events.seconds[at]) * 1e6)
        entry["bytes"] = entry["bytes"] + float(events.bytes[at])
    for entry in named.values():
        entry["bytes"] = int(entry["bytes"]) if entry["bytes"] == entry["bytes"] else None
    return named


def _length(begin: Floats, end: Floats) -> float:
    starts, ends = union(begin, end)
    return _us(float(np.sum(ends - starts)))


def _us(microseconds: float) -> float:
    return round(microseconds, 3)
