"""The traces of a run's ranks as one `records.Run`.

Events that the core reads out of the text into columns: nearly all of an ordinary trace.

The core takes only a piece of text that it is sure of, and what single events need that are no complete ones, or whose arguments
matter one by one, is decoded here. So a trace reads the same with and without it.

What was counted in a trace, by keys that an independent script finds too.

Timelines of pipelines that are no profiler traces: a process for each stage or rank, ranges such as `forward`, `backward-send`.

MegatronApp writes pairs of B and E with the iteration in their arguments, ByteDance's straggler analysis complete events
with a step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s, Uint8s
from windtunnel.base.errors import FileError
from windtunnel.base.units import show_counted
from windtunnel.engine.scan import EventScanner, ScannedEvents
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.kineto.batches import WORDS, Around, batches, scan_nothing
from windtunnel.formats.traces.kineto.columns import EventColumns, Table, floats, give_back_freed, integers, key_of
from windtunnel.formats.traces.kineto.fields import CATEGORIES, LEFT_OUT, LEGACY_PROCESSES, Args, TraceEvent
from windtunnel.formats.traces.kineto.sources import Source, sources
from windtunnel.formats.traces.kineto.trace import ReadTrace, build, count_rows, round_us
from windtunnel.records.intervals import overlap, union
from windtunnel.records.kernel_classes import comm_of, library_of
from windtunnel.records.run import EventKind, Events, RankTrace, Run, Steps

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
    give_back_freed()
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


_COPIED = ("begin", "duration", "correlation", "external", "stream", "device", "sequence", "forward", "bytes")
_LEFT = ("B", "E", "i", "I", "M")
"""Phases of events that are decoded here."""


class TraceScan:
    """Adds the complete events of a trace to its columns, piece by piece."""

    def __init__(self, columns: EventColumns) -> None:
        self.columns, self.scanner = columns, EventScanner()
        self.texts: list[str] = []  # [N] names by the core's number
        self.names = np.empty(0, np.int32)  # [N] their index among the columns' names
        self.places = np.empty(0, np.int32)  # [P] the same of places
        self.inputs = np.empty(0, np.int32)  # [I] and of the texts of inputs
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
        part["inputs"] = np.append(self.inputs, np.int32(-1))[found.inputs]
        columns.append_columns(part, self._decode_noted(text, found))
        return left, found.events - len(left)

    def _number_texts(self, found: ScannedEvents) -> None:
        names, places, inputs = self.columns.names, self.columns.places, self.columns.inputs_texts
        texts = [_name(raw) for raw in found.new_names]
        self.texts += texts
        self.names = _extend(self.names, [names.setdefault(text, len(names)) for text in texts])
        self.places = _extend(self.places, [places.setdefault(key_of(_place(raw)), len(places)) for raw in found.new_places])
        self.inputs = _extend(self.inputs, [inputs.setdefault(raw, len(inputs)) for raw in found.new_inputs])

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
    events = one.trace.events
    facts: dict[str, Any] = {
        "rank": one.trace.rank,
        "events": one.around.events,
        "phases": dict(one.columns.phases),
        **one.counts,
    }
    if (events.kind <= EventKind.COPY).any():
        facts["gpu"], facts["comm_kernels"] = _gpu(one), _calls(one)
    steps = {f"ProfilerStep#{number}": round_us(seconds * 1e6) for number, _, seconds in one.steps}
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
        "kernel_sum_us": round_us(float(events.seconds[kernel].sum() * 1e6)),
        "gpu_span_us": round_us(float(end[on_gpu].max() - begin[on_gpu].min())),
        "gpu_busy_union_us": _length(begin[on_gpu], end[on_gpu]),
        "compute_union_us": _length(begin[compute], end[compute]),
        "comm_union_us": _length(begin[comm], end[comm]),
        "comm_and_compute_overlap_us": round_us(overlap(union(begin[compute], end[compute]), union(begin[comm], end[comm]))),
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
        entry["dur_us"] = round_us(entry["dur_us"] + float(events.seconds[at]) * 1e6)
        entry["bytes"] = entry["bytes"] + float(events.bytes[at])
    for entry in named.values():
        entry["bytes"] = int(entry["bytes"]) if entry["bytes"] == entry["bytes"] else None
    return named


def _length(begin: Floats, end: Floats) -> float:
    starts, ends = union(begin, end)
    return round_us(float(np.sum(ends - starts)))


def is_schedule(columns: EventColumns) -> bool:
    """Whether the events are named stages of a pipeline: no category of a profiler, and forward and backward passes."""
    profiler = any(
        (isinstance(category, str) and category.lower() in CATEGORIES | dict.fromkeys(LEFT_OUT))
        or (isinstance(process, str) and process in LEGACY_PROCESSES)
        for category, process, _ in columns.places
    )
    words = " ".join(columns.names).lower()
    return not profiler and "forward" in words and "backward" in words


def stages(name: str, columns: EventColumns, around: Around) -> list[ReadTrace]:
    """A trace for each process, in the order of their numbers; all on one clock."""
    table = columns.table()
    timed = np.isfinite(table.begin) & np.isfinite(table.duration)
    zero = math.floor(float(table.begin[timed].min())) if timed.any() else 0
    comm = np.array([int(comm_of(text)) for text in table.names] or [0], np.uint8)
    lost = int(np.sum(~timed))
    owners = [_owner(process, columns.threads.get((process, thread), "")) for _, process, thread in table.places]
    ranks = sorted(set(owners))
    own_numbers = not columns.threads and all(rank[-1].isdigit() for rank in ranks)
    traces = []
    for order, owner in enumerate(ranks):
        mine = np.array([one == owner for one in owners])[table.place] & timed
        rows = np.flatnonzero(mine)
        rows = rows[np.argsort(table.begin[rows], kind="stable")]
        peers = tuple(number for number, other in enumerate(ranks) if other[:2] == owner[:2]) if columns.threads else ()
        events = _events(table, rows, zero, comm, peers)
        trace = RankTrace(int(owner[-1]) if own_numbers else order, events, zero * 1e-6, "", len(ranks), name)
        process = next(key[1] for key, one in zip(table.places, owners, strict=True) if one == owner)
        steps = _iterations(columns, process, zero) or _steps(table, columns, mine, zero)
        broken = (f"{lost} events without a time or a duration",) if lost and not order else ()
        traces.append(ReadTrace(trace, steps, count_rows(table, mine), columns, around, "the trace", broken, (_ASSUMED,)))
    return traces


def _owner(process: object, thread: str) -> tuple[int, int, str]:
    """What sorts ranks: stage and rank in it where the thread's name says them (ByteDance), and the process."""
    match = _STAGE.search(thread)
    return (int(match[1]), int(match[2] or 0), str(process)[:9].zfill(9)) if match else (0, 0, str(process)[:9].zfill(9))


_ASSUMED = "ranges that are no call are computation; each process, or each stage that its threads name, is a rank"
_STAGE = re.compile(r"PP rank (\d{1,9})(?:, TP rank (\d{1,9}))?")


def _events(table: Table, rows: Int64s, zero: int, comm: Uint8s, stage: tuple[int, ...]) -> Events:
    """`stage`: the ranks of the stage, where threads name it: the group of gradients and parameters."""
    name, count = table.name[rows].astype(np.int32), len(rows)
    threads = np.array([t if isinstance(t, int) and -1 <= t < 2**31 else -1 for _, _, t in table.places] or [0], np.int64)
    lane = threads[table.place[rows]].astype(np.int32)
    calls = comm[name]
    kind = np.where(calls > 0, EventKind.CALL, EventKind.KERNEL).astype(np.uint8)
    none, unknown = np.full(count, -1, np.int64), np.full(count, np.nan)
    begin, seconds = table.seconds(rows, zero)
    narrow = none.astype(np.int32)
    over_stage = np.array([text.startswith(("grads-", "params-")) for text in table.names] or [False])[name]
    group = np.where(over_stage & (calls > 0) & (len(stage) > 1), 0, -1).astype(np.int32)
    groups = (stage,) if len(stage) > 1 else ()
    return Events(
        kind,
        name,
        lane,
        begin,
        seconds,
        none,
        none,
        calls,
        unknown,
        group,
        none,
        narrow,
        table.names,
        groups,
        ("data parallel",) * len(groups),
    )


def _iterations(columns: EventColumns, process: object, zero: int) -> tuple[tuple[int, float, float], ...]:
    """Steps between the marks `iteration begin` and `iteration end`."""
    begins: dict[int, list[float]] = {}
    steps = []
    for name, owner, _, at, args in sorted(columns.marks, key=lambda mark: mark[3] if mark[3] == mark[3] else 0.0):
        if owner != process or at != at:
            continue
        number = int(integers([args.iteration])[0])
        if name == "iteration begin":
            begins.setdefault(number, []).append(at)
        elif name == "iteration end" and begins.get(number):
            start = begins[number].pop(0)
            steps.append((number, (start - zero) * 1e-6, (at - start) * 1e-6))
    return tuple(steps)


def _steps(table: Table, columns: EventColumns, mine: Bools, zero: int) -> tuple[tuple[int, float, float], ...]:
    """Steps from the first begin to the last end of the ranges that name them."""
    spans: dict[int, tuple[float, float]] = {}
    for row, args in columns.noted:
        if mine[row] and args.step is not None:
            step = floats([args.step])[0]
            number = int(step) if step == step else -1
            begin = float(table.begin[row])
            end = begin + float(table.duration[row])
            first, last = spans.get(number, (begin, end))
            spans[number] = (min(first, begin), max(last, end))
    return tuple((number, (first - zero) * 1e-6, (last - first) * 1e-6) for number, (first, last) in sorted(spans.items()))
