"""Compaction of log segments to Parquet: rows, summaries by rank, step and section, and clock exchanges.

A segment is compacted completely or not at all: the files are written and synchronised first, then one transaction of the index
records them and the segment, then the segment is deleted.

Batches that were acknowledged but cannot be read. They are copied to `dead/` in the run's folder and never dropped.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.fleet.collect.decode import SegmentPart, chunks, read_segment_meta, summarise_rows
from windtunnel.fleet.collect.index import CompactedSegment, RunFile, RunIndex
from windtunnel.fleet.collect.log import DamagedSpan, map_file, segment_path
from windtunnel.fleet.collect.registry import Rings
from windtunnel.fleet.disk import sync

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
