"""Decodes the batches of a segment to columns: ranks, names and groups numbered per run, rows and summaries."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import FileError
from windtunnel.fleet.batch import OPEN_ROWS, ROWS, SUMMARIES, BatchTable, RankBeat
from windtunnel.fleet.batch.columns import group_rows
from windtunnel.fleet.batch.message import decode_meta, decode_tables
from windtunnel.fleet.collect.log import FRAME, DamagedSpan, Frame, frames
from windtunnel.fleet.collect.registry import Rings, RunNumbers

CHUNK_ROWS = 1 << 19
"""Rows that are decoded at once: about 150 MB."""


@dataclass
class SegmentMeta:
    """Everything in the batches of a segment except their tables."""

    frames: list[tuple[Frame, list[str], int]] = field(default_factory=list)
    """Frames with their rings and the rank of the first."""
    last_steps: list[int] = field(default_factory=list)
    """Of each frame, the last step that any of its ranks was in."""
    beats: dict[str, tuple[RankBeat, int]] = field(default_factory=dict)
    """Ring → its last heartbeat and when it arrived."""
    boots: dict[bytes, int] = field(default_factory=dict)
    exchanges: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    damaged: list[DamagedSpan] = field(default_factory=list)


def read_segment_meta(raw: bytes | mmap.mmap, rings: Rings, *, take: bool) -> SegmentMeta:
    """Reads the metadata of a segment. With `take`, `rings` is updated from it (a running collector has done that already)."""
    found = SegmentMeta()
    for frame in frames(raw, found.damaged):
        body = raw[frame.offset : frame.offset + frame.head.size]
        try:
            meta = decode_meta(body, frame.head)
        except FileError as error:
            found.damaged.append(_damaged_span(frame, str(error)))
            continue
        if take:
            keep = {beat.ring: (beat.identity, beat.lines) for beat in meta.beats}
            rings.take(meta, frame.received_ns)
            for beat in meta.beats:
                beat.identity, beat.lines = keep[beat.ring]
        found.boots[frame.head.boot] = max(frame.head.sequence, found.boots.get(frame.head.boot, 0))
        keys = [beat.ring for beat in meta.beats]
        ring = rings.by_key.get(keys[0]) if keys else None
        found.frames.append((frame, keys, ring.identity.rank if ring else -1))
        found.last_steps.append(max((beat.step for beat in meta.beats), default=-1))
        for beat in meta.beats:
            beat.identity, beat.lines = None, []
            if beat.ring in rings.by_key:
                found.beats[beat.ring] = (beat, frame.received_ns)
        found.exchanges += [(meta.node, *stamps) for stamps in meta.exchanges]
    return found


def frames_from(words: SegmentMeta, step: int) -> SegmentMeta:
    """The frames that can hold rows of `step` or later: a rank writes no row of a step that it has not reached."""
    chosen = [frame for frame, last in zip(words.frames, words.last_steps, strict=True) if last + 1 >= step]
    return SegmentMeta(chosen)


def newest_frames(words: SegmentMeta) -> SegmentMeta:
    """Of each ring, the frame that came last: it has the rows that the rank is in."""
    seen: set[str] = set()
    chosen = []
    for frame in reversed(words.frames):
        if not seen.issuperset(frame[1]):
            chosen.append(frame)
            seen.update(frame[1])
    return SegmentMeta(chosen[::-1])


def _damaged_span(frame: Frame, why: str) -> DamagedSpan:
    return DamagedSpan(frame.offset - FRAME.size, frame.offset + frame.head.size, why)


@dataclass
class SegmentPart:
    """Rows and summaries of some batches in columns, each with its ring's number, and the open rows of each ring."""

    rows: dict[str, Int64s]
    summaries: dict[str, Int64s]
    open_rows: dict[str, bytes]
    damaged: list[DamagedSpan]


def chunks(raw: bytes | mmap.mmap, words: SegmentMeta, rings: Rings) -> Iterator[SegmentPart]:
    """The tables of a segment, ordered by rank. Batches of one node stay in the order in which they came."""
    order = sorted(words.frames, key=lambda item: (item[2], item[0].offset))
    numbers = RunNumbers(rings.by_number)
    building = _PartBuilder()
    for frame, keys, _ in order:
        building.add(raw[frame.offset : frame.offset + frame.head.size], frame, keys, rings)
        if building.count >= CHUNK_ROWS:
            yield building.chunk(numbers)
            building = _PartBuilder()
    yield building.chunk(numbers)


class _PartBuilder:
    def __init__(self) -> None:
        self.rows: list[BatchTable] = []
        self.row_rings: list[Int64s] = []
        self.summaries: list[BatchTable] = []
        self.summary_rings: list[Int64s] = []
        self.open_rows: dict[str, bytes] = {}
        self.damaged: list[DamagedSpan] = []
        self.count = 0

    def add(self, body: bytes, frame: Frame, keys: Sequence[str], rings: Rings) -> None:
        try:
            rows, open_rows, summaries = decode_tables(body, frame.head)
        except FileError as error:
            self.damaged.append(_damaged_span(frame, str(error)))
            return
        known = [rings.by_key.get(key) for key in keys]
        own = np.array([-1 if ring is None else ring.number for ring in known], np.int64)
        if (own < 0).any() or not len(rows.runs) == len(open_rows.runs) == len(summaries.runs) == len(keys):
            self.damaged.append(_damaged_span(frame, "rings that nobody introduced, or tables of another number of rings"))
            return
        if len(rows):
            self.rows.append(rows)
            self.row_rings.append(np.repeat(own, rows.runs))
        if len(summaries):
            self.summaries.append(summaries)
            self.summary_rings.append(np.repeat(own, summaries.runs))
        self.open_rows.update(open_by_ring(keys, open_rows))
        self.count += len(rows)

    def chunk(self, numbers: RunNumbers) -> SegmentPart:
        rows = _columns(self.rows, self.row_rings, ROWS)
        if len(rows["ring"]):
            rows["name"] = numbers.names(rows["ring"], rows["name"]).astype(np.int64)
            rows["group"] = numbers.groups(rows["ring"], rows["group"]).astype(np.int64)
        return SegmentPart(rows, _columns(self.summaries, self.summary_rings, SUMMARIES), self.open_rows, self.damaged)


def open_by_ring(keys: Sequence[str], table: BatchTable) -> dict[str, bytes]:
    """Open rows of each ring as int64 [columns, n]; b"" if it has none."""
    if not len(table):
        return dict.fromkeys(keys, b"")
    joint = np.stack([table.columns[name] for name in OPEN_ROWS])
    ends = np.cumsum(table.runs)
    return {key: joint[:, end - count : end].tobytes() for key, count, end in zip(keys, table.runs, ends, strict=True)}


def open_columns(raw: bytes) -> dict[str, Int64s]:
    """The columns of a ring's open rows."""
    joint: Any = np.frombuffer(raw, np.int64).reshape(len(OPEN_ROWS), -1)
    return dict(zip(OPEN_ROWS, joint, strict=True))


def summarise_rows(rows: dict[str, Int64s]) -> dict[str, Int64s]:
    """Summaries of rows by ring, step and section. Rows without a duration are left out."""
    known = rows["nanos"] >= 0
    if not known.any():
        return {name: np.zeros(0, np.int64) for name in ("ring", *SUMMARIES)}
    ring, step, section, nanos = (rows[name] if known.all() else rows[name][known] for name in ("ring", "step", "section", "nanos"))
    order, starts = group_rows(ring, step, section)
    first, time = order[starts], nanos[order]
    return {
        "ring": ring[first], "step": step[first], "section": section[first], "count": np.diff(starts, append=len(order)),
        "sum": np.add.reduceat(time, starts), "least": np.minimum.reduceat(time, starts), "most": np.maximum.reduceat(time, starts),
    }  # fmt: skip


def _columns(tables: Sequence[BatchTable], rings: Sequence[Int64s], names: Sequence[str]) -> dict[str, Int64s]:
    if not tables:
        return {name: np.zeros(0, np.int64) for name in ("ring", *names)}
    found = {name: np.concatenate([table.columns[name] for table in tables]) for name in names}
    found["ring"] = np.concatenate(rings)
    return found
