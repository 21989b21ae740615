"""Timelines for a trace viewer: Perfetto's TrackEvent protobuf, or Chrome's JSON where the file name ends in `.json`.

Field numbers are those of `protos/perfetto/trace/` in Perfetto's sources (trace_packet, track_event, track_descriptor,
debug_annotation, interned_data). The few messages that a timeline needs are written here by hand: generated classes would cost
several times more per slice, and a protoc at build time.

Spans as tracks of a timeline: integer nanoseconds, a lane for spans that do not overlap, arrows along the pipeline.

Python's search for reference cycles, which looks at every object again and again while many are made.
"""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.predict.category import Task
from windtunnel.predict.prediction import Prediction, Span
from windtunnel.spec import Job


@contextmanager
def keep_cycles() -> Iterator[None]:
    """Inside, no cycles are looked for: for work that makes many objects and no cycles among them."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


_SEQUENCE = b"\x50\x01"  # TracePacket.trusted_packet_sequence_id = 1
_CLEARED = b"\x68\x01"  # sequence_flags: incremental state starts here
_NEEDS = b"\x68\x02"  # sequence_flags: refers to interned data
_BEGIN, _END = b"\x48\x01", b"\x48\x02"  # TrackEvent.type


def write_trace(prediction: Prediction, path: str | Path, kernels: Iterable[Span] = ()) -> int:
    """Write the timeline of `prediction` to `path` and return how many slices it holds; FileError if the path cannot be written.

    `kernels` are spans below the blocks of the prediction's own timeline (same stages and clock); they get tracks of their own.
    """
    target = Path(path)
    with keep_cycles():  # hundreds of thousands of spans and pieces of text
        tracks = tracks_of(prediction.timeline, kernels, prediction.job)
        names = stage_names(prediction)
        data = chrome(tracks, names) if target.suffix == ".json" else perfetto(tracks, names)
    try:
        target.write_bytes(data)
    except OSError as error:
        raise FileError("--trace", str(path), "a file that can be written", f"{error.strerror}.") from error
    return sum(len(t.spans) for t in tracks)


def stage_names(prediction: Prediction) -> dict[int, str]:
    """Process names: the stage, its share of the pipeline and its layers."""
    layers = prediction.job.layers_per_stage
    return {s: f"stage {s} of {len(layers)}, {sum(parts)} layers" for s, parts in enumerate(layers)}


def perfetto(tracks: list[Track], stage_name: dict[int, str] | None = None) -> bytes:
    """Bytes of a trace: a process for each stage, a thread for each track, slices with interned names and categories.

    Micro batch and chunk are debug annotations; arrows are flow ids. Packets are in time order over all tracks.
    """
    spans = [s for t in tracks for s in t.spans]
    names = _intern(s.name for s in spans)
    categories = _intern(s.category for s in spans)
    chunked = any(s.chunk > 0 for s in spans)  # one chunk only: saying so on each slice would be noise
    interned = (
        b"".join(_field(1, _entry(i, c)) for c, i in categories.items())
        + b"".join(_field(2, _entry(i, n)) for n, i in names.items())
        + _field(3, _entry(1, "micro batch"))
        + _field(3, _entry(2, "chunk"))
    )
    head = [_field(1, _SEQUENCE + _CLEARED + _field(12, interned))]
    head += [_field(1, _SEQUENCE + _field(60, d)) for d in _descriptors(tracks, stage_name or {})]

    times: list[int] = []
    bodies: list[bytes] = []
    events: dict[tuple[str, str, int, int], bytes] = {}  # of all tracks
    for number, track in enumerate(tracks):
        uuid = b"\x58" + _varint(number + 1)
        begin, finish, end = uuid + _BEGIN, uuid + _END, _SEQUENCE + _field(11, uuid + _END)
        cache: dict[tuple[str, str, int, int], bytes] = {}
        for position, s in enumerate(track.spans):
            key = (s.name, s.category, s.micro_batch, s.chunk)
            joined = track.arrows.get(position)
            body = cache.get(key) if joined is None else None
            if body is None:
                event = events.get(key)
                if event is None:
                    event = _event_bytes(names[s.name], categories[s.category], s.micro_batch, s.chunk if chunked else -1)
                    events[key] = event
                if joined is None:
                    body = cache[key] = _SEQUENCE + _NEEDS + _field(11, begin + event)
                else:
                    arrows = _arrow_fields((joined[0], () if track.lands_at_end else joined[1]))
                    body = _SEQUENCE + _NEEDS + _field(11, begin + event + arrows)
            ids = joined[1] if joined is not None and track.lands_at_end else ()
            bodies += (body, _SEQUENCE + _field(11, finish + _arrow_fields(((), ids))) if ids else end)
        both = np.array([track.start, track.end], np.int64).T
        times += both.ravel().tolist()
    order = np.argsort(np.array(times, np.int64), kind="stable").tolist()  # stable: on a track an end stays before the next begin
    stamps = _varints(times)
    # every packet is field 1 of the file and starts with TracePacket.timestamp, field 8
    lead = [b"\x0a" + _varint(size) + b"\x40" for size in range(12 + max(map(len, bodies), default=0))]
    head += [lead[1 + len(stamps[i]) + len(bodies[i])] + stamps[i] + bodies[i] for i in order]
    return b"".join(head)


def _descriptors(tracks: list[Track], stage_name: dict[int, str]) -> list[bytes]:
    """TrackDescriptor of each process and thread; thread uuids are small numbers since every event repeats them."""
    descriptors = []
    for stage in sorted({t.stage for t in tracks}):
        name = stage_name.get(stage, f"stage {stage}").encode()
        process = b"\x08" + _varint(stage + 1) + _field(6, name)
        descriptors.append(b"\x08" + _varint(len(tracks) + 1 + stage) + _field(3, process))
    for number, track in enumerate(tracks):
        tid = 1_000_000 + number  # unlike any pid, else the viewer takes it for the process's main thread
        thread = b"\x08" + _varint(track.stage + 1) + b"\x10" + _varint(tid) + _field(5, track.name.encode())
        descriptors.append(b"\x08" + _varint(number + 1) + b"\x28" + _varint(len(tracks) + 1 + track.stage) + _field(4, thread))
    return descriptors


def _event_bytes(name: int, category: int, micro_batch: int, chunk: int) -> bytes:
    notes = b"".join(_field(4, b"\x08" + _varint(i) + b"\x20" + _varint(v)) for i, v in ((1, micro_batch), (2, chunk)) if v >= 0)
    return b"\x18" + _varint(category) + notes + b"\x50" + _varint(name)


def _arrow_fields(arrows: Arrows) -> bytes:
    """flow_ids (47) and terminating_flow_ids (48), fixed64; an arrow's direction follows from time."""
    leaves, lands = arrows
    return b"".join([_LEAVES + i.to_bytes(8, "little") for i in leaves] + [_LANDS + i.to_bytes(8, "little") for i in lands])


def _intern(texts: Iterable[str]) -> dict[str, int]:
    """Ids from 1, most frequent first, so that common names take one byte."""
    return {text: i for i, (text, _) in enumerate(Counter(texts).most_common(), start=1)}


def _entry(iid: int, text: str) -> bytes:
    return b"\x08" + _varint(iid) + _field(2, text.encode())


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _field(number: int, body: bytes) -> bytes:
    """A length-delimited field."""
    return _SMALL[number << 3 | 2] + _varint(len(body)) + body


_SMALL = [bytes([i]) if i < 128 else bytes([i & 127 | 128, i >> 7]) for i in range(1 << 14)]


def _varint(number: int) -> bytes:
    if number < 1 << 14:
        return _SMALL[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


_LEAVES, _LANDS = _tag(47, 1), _tag(48, 1)


def _varints(numbers: list[int]) -> list[bytes]:
    """Base-128 varints of many numbers >= 0 at once."""
    if not numbers:
        return []
    values = np.array(numbers, np.uint64)
    groups = np.arange(0, 63, 7, dtype=np.uint64)
    raw = (values[:, None] >> groups) & np.uint64(127)
    sizes = np.maximum(1, (raw != 0).cumsum(axis=1).argmax(axis=1) + 1)
    more = np.arange(9) < (sizes - 1)[:, None]
    flat = (raw.astype(np.uint8) | (more.astype(np.uint8) << 7)).tobytes()
    return [flat[9 * i : 9 * i + size] for i, size in enumerate(sizes.tolist())]


def chrome(tracks: list[Track], stage_name: dict[int, str] | None = None) -> bytes:
    """Chrome trace-event JSON of the same tracks: complete events in microseconds, pid the stage, tid the track."""
    events: list[dict[str, Any]] = []
    for stage in sorted({t.stage for t in tracks}):
        events.append(
            {"ph": "M", "name": "process_name", "pid": stage, "args": {"name": (stage_name or {}).get(stage, f"stage {stage}")}}
        )
    for tid, track in enumerate(tracks):
        place: dict[str, Any] = {"pid": track.stage, "tid": tid}
        events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": track.name}})
        for position, (s, start, end) in enumerate(zip(track.spans, track.start, track.end, strict=True)):
            notes = {k: v for k, v in (("micro_batch", s.micro_batch), ("chunk", s.chunk)) if v >= 0}
            at = start / 1e3
            events.append(
                {"ph": "X", "name": s.name, "cat": s.category, "ts": at, "dur": (end - start) / 1e3, **place, "args": notes}
            )
            leaves, lands = track.arrows.get(position, ((), ()))
            flow = {"name": "send", "cat": "pipeline", "ts": at, **place}
            events += [{"ph": "t" if is_send(s) else "s", "id": i, **flow} for i in leaves]
            if track.lands_at_end:
                flow["ts"] = max(start, end - 1) / 1e3
            events += [{"ph": "f", "bp": "e", "id": i, **flow} for i in lands]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, sort_keys=True, separators=(",", ":")).encode()


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
