"""Compaction of log segments to Parquet: rows, summaries by rank, step and section, and clock exchanges.

A segment is compacted completely or not at all: the files are written and synchronised first, then one transaction of the index
records them and the segment, then the segment is deleted.

Batches that were acknowledged but cannot be read. They are copied to `dead/` in the run's folder and never dropped.

Decodes the batches of a segment to columns: ranks, names and groups numbered per run, rows and summaries.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import FileError
from windtunnel.fleet.batch import OPEN_ROWS, ROWS, SUMMARIES, BatchTable, RankBeat, decode_meta, decode_tables, group_rows
from windtunnel.fleet.collect.index import CompactedSegment, RunFile, RunIndex
from windtunnel.fleet.collect.log import FRAME, DamagedSpan, Frame, frames, map_file, segment_path
from windtunnel.fleet.collect.registry import Rings, RunNumbers
from windtunnel.fleet.disk import sync

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


ROW_COLUMNS = {
    "rank": "int32", "ring": "int32", "number": "int64", "step": "int64", "section": "uint8", "name": "int32", "begin": "int64",
    "nanos": "int64", "late": "int64", "comm": "uint8", "bytes": "int64", "group": "int32", "call": "int64", "peer": "int32",
    "sends": "bool", "micro_batch": "int32", "state": "uint8",
}  # fmt: skip
"""Columns of a file of sections. Times in ns of the host's own clock."""
SUMMARY_COLUMNS = {
    "rank": "int32", "ring": "int32", "step": "int64", "section": "uint8", "count": "int64", "sum": "int64", "least": "int64",
    "most": "int64",
}  # fmt: skip
EXCHANGE_COLUMNS = {"node": "string", "sent": "int64", "received": "int64", "answered": "int64", "back": "int64"}


class Compactor:
    """Compacts segments of a run's folder, one at a time. `seen` is called with each chunk's rows, including a column `rank` (used
    to export spans).
    """

    def __init__(
        self, folder: Path, index: RunIndex, rings: Rings, seen: Callable[[dict[str, Int64s]], None] | None = None
    ) -> None:
        self.folder, self.index, self.rings, self.seen = folder, index, rings, seen
        self.rows = 0  # in total

    def compact(self, segment: int) -> CompactedSegment:
        """Compacts a segment and deletes it. Repeating it after a kill at any point produces the same files."""
        raw = map_file(segment_path(self.folder / "log", segment))
        words = read_segment_meta(raw, self.rings, take=False)
        ranks = np.array([ring.identity.rank for ring in self.rings.by_number], np.int64)
        done = CompactedSegment(segment, boots=words.boots, beats=words.beats)
        sections = _Writer(self.folder, "sections", segment, ROW_COLUMNS)
        summaries = _Writer(self.folder, "summaries", segment, SUMMARY_COLUMNS)
        damaged = list(words.damaged)
        for chunk in chunks(raw, words, self.rings):
            self._chunk(chunk, ranks, sections, summaries)
            done.open_rows.update(chunk.open_rows)
            damaged += chunk.damaged
        done.files += [*sections.close(), *summaries.close(), *_exchanges(self.folder, segment, words.exchanges)]
        sync(self.folder / "data")
        keep_dead(self.folder, segment, raw, damaged)
        self.index.add(done, self.rings)
        segment_path(self.folder / "log", segment).unlink()
        self.rows += sections.count
        return done

    def _chunk(self, chunk: SegmentPart, ranks: Int64s, sections: _Writer, summaries: _Writer) -> None:
        for rows, writer in ((chunk.rows, sections), (summarise_rows(chunk.rows), summaries), (chunk.summaries, summaries)):
            if len(rows["ring"]):
                rows["rank"] = ranks[rows["ring"]]
                writer.write(rows)
        if self.seen is not None and len(chunk.rows["ring"]):
            self.seen(chunk.rows)


class _Writer:
    """Writes one Parquet file in row groups, under a temporary name until it is complete."""

    def __init__(self, folder: Path, kind: str, segment: int, columns: dict[str, str]) -> None:
        self.columns, self.count = columns, 0
        self.kind, self.segment = kind, segment
        self.folder, self.path = folder, f"data/{kind}-{segment:08d}.parquet"
        self._writer: Any = None
        self._spans: dict[str, tuple[int, int]] = {}

    def write(self, rows: dict[str, Any]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {name: getattr(pa, "bool_" if kind == "bool" else kind)() for name, kind in self.columns.items()}
        if self._writer is None:
            unfinished = self.folder / (self.path + ".tmp")
            unfinished.unlink(missing_ok=True)
            unfinished.touch(mode=0o600)  # before it is written: for its owner, whatever the umask
            self._writer = pq.ParquetWriter(
                unfinished, pa.schema(list(types.items())), compression="zstd", compression_level=1,
                use_dictionary=[name for name in ("rank", "ring", "section", "name", "comm", "group", "node") if name in types],
                column_encoding={
                    name: "DELTA_BINARY_PACKED"
                    for name in ("number", "begin", "step", "call", "sent", "nanos", "late")
                    if name in types
                },
                write_statistics=[name for name in ("rank", "step", "begin") if name in types],
            )  # fmt: skip
        arrays = [pa.array(_cast(rows[name], kind)) for name, kind in self.columns.items()]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._writer.schema), row_group_size=1 << 20)
        self.count += len(arrays[0])
        for name in ("step", "rank", "begin"):
            if name in rows and name in self.columns:
                low, high = self._spans.get(name, (1 << 62, -(1 << 62)))
                self._spans[name] = (min(low, int(rows[name].min())), max(high, int(rows[name].max())))

    def close(self) -> list[RunFile]:
        """Completes the file and makes it durable; empty if nothing was written."""
        if self._writer is None:
            return []
        self._writer.close()
        whole, unfinished = self.folder / self.path, self.folder / (self.path + ".tmp")
        sync(unfinished)
        unfinished.rename(whole)
        file = RunFile(self.path, self.kind, self.segment, self.count, whole.stat().st_size)
        spans = {name: self._spans.get(name, (-1, -1)) for name in ("step", "rank", "begin")}
        (steps, ranks, times) = spans.values()
        return [
            replace(
                file,
                first_step=steps[0],
                last_step=steps[1],
                first_rank=ranks[0],
                last_rank=ranks[1],
                first_ns=times[0],
                last_ns=times[1],
            )
        ]


def _exchanges(folder: Path, segment: int, exchanges: Iterable[tuple[str, int, int, int, int]]) -> list[RunFile]:
    """For each node and ten seconds, the exchange with the shortest round trip, which determines its clock best."""
    best: dict[tuple[str, int], tuple[str, int, int, int, int]] = {}
    for one in exchanges:
        node, sent, received, answered, back = one
        key = (node, sent // 10_000_000_000)
        way = (back - sent) - (answered - received)
        if key not in best or way < (best[key][4] - best[key][1]) - (best[key][3] - best[key][2]):
            best[key] = one
    writer = _Writer(folder, "exchanges", segment, EXCHANGE_COLUMNS)
    if best:
        writer.write(dict(zip(EXCHANGE_COLUMNS, zip(*best.values(), strict=True), strict=True)))
    return writer.close()


def _cast(values: Any, kind: str) -> Any:
    return list(values) if kind == "string" else np.asarray(values).astype(kind, copy=False)


LOG = logging.getLogger("windtunnel.fleet.collect")
FOLDER = "dead"


def keep_dead(folder: Path, segment: int, raw: bytes | mmap.mmap, damaged: Sequence[DamagedSpan]) -> None:
    """Writes each damaged span of a segment to a file of its own, durable on return, and logs it. Repeating it writes the same
    files. OSError from the disk.
    """
    if not damaged:
        return
    (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
    for span in damaged:
        path = dead_path(folder, segment, span.begin)
        path.touch(mode=0o600)
        path.write_bytes(raw[span.begin : span.end])
        sync(path)
        size = span.end - span.begin
        LOG.error("segment %d: %d bytes at %d cannot be read (%s): kept in %s", segment, size, span.begin, span.why, path)
    sync(folder / FOLDER)
    sync(folder)


def dead_path(folder: Path, segment: int, begin: int) -> Path:
    """Path of the copy of a damaged span."""
    return folder / FOLDER / f"segment-{segment:08d}-{begin:08d}.wtlog"


def dead_letters(folder: Path) -> int:
    """Number of copies in a run's folder."""
    return sum(1 for _ in (folder / FOLDER).glob("*.wtlog"))
