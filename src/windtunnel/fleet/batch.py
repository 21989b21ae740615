"""The message from a shipper to the collector: rows, open rows, summaries, heartbeats and text of a node's ranks, in one compressed
body.

Encoding of integer tables: columns one after the other, each in the fewest bytes per value, prepared for a general compressor.

A table has one run of rows for each ring of the batch. A column is stored as values or as differences inside each run, minus its
least value, in 0, 1, 2, 4 or 8 bytes per row, with all lowest bytes first, then all second bytes, and so on: zlib then finds the
high bytes empty. Records of a training step take 5.5 bytes each with zlib at level 1; zstd is not smaller
(docs/fleet-collector.md).

Rows of rings as tables of a batch, and their summaries by step and section.

A batch as bytes: a header of 64 bytes, its metadata (JSON), its tables (zlib). The same bytes are sent over HTTP and stored in the
collector's log. Metadata of a batch: sender, rings, their heartbeats and their new lines of text. JSON, validated by msgspec.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.fleet.ring import RingMeta

ROWS = (
    "number",
    "begin",
    "nanos",
    "late",
    "bytes",
    "call",
    "step",
    "peer",
    "name",
    "group",
    "micro_batch",
    "section",
    "comm",
    "state",
    "sends",
)
"""Columns of a row of a ring. `late` is host_nanos - nanos; the others are those of `ring.ROW`."""
OPEN_ROWS = ROWS
SUMMARIES = ("step", "section", "count", "sum", "least", "most")
"""Columns of a summary: the rows of a ring in one step and section. Nanoseconds; rows without a duration are not counted."""

_DIFFERENCES = frozenset({"number", "begin", "step", "call"})
MOST_ROWS = 1 << 20
"""Largest number of rows of a table; a longer one is refused before anything is allocated."""

_TABLE = struct.Struct("<IHH")  # rows, runs, columns
_COLUMN = struct.Struct("<BBxxxxxxq")  # whether differences, bytes per row, least value
_WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True)
class BatchTable:
    """Columns [N] of whole numbers; the first `runs[0]` rows belong to the batch's ring 0, the next `runs[1]` to ring 1, …"""

    runs: Int64s
    columns: Mapping[str, Int64s]

    def __len__(self) -> int:
        return int(self.runs.sum())

    @classmethod
    def empty(cls, names: tuple[str, ...], rings: int) -> BatchTable:
        return cls(np.zeros(rings, np.int64), {name: np.zeros(0, np.int64) for name in names})


def pack(table: BatchTable, names: tuple[str, ...]) -> bytes:
    """Encodes a table with columns `names`. FileError for more than MOST_ROWS rows."""
    if len(table) > MOST_ROWS:
        raise FileError("a batch", f"{len(table)} rows", f"up to {MOST_ROWS} rows")
    parts = [_TABLE.pack(len(table), len(table.runs), len(names)), table.runs.astype("<u4").tobytes()]
    if len(table):
        starts = _starts(table.runs)
        parts += [_pack_column(table.columns[name], starts, name in _DIFFERENCES) for name in names]
    return b"".join(parts)


def unpack(raw: bytes, at: int, names: tuple[str, ...]) -> tuple[BatchTable, int]:
    """Decodes the table that begins at byte `at`; returns it and the position after it. FileError if it is truncated or
    inconsistent.
    """
    rows, runs, columns = _TABLE.unpack_from(raw, _check_room(raw, at, _TABLE.size))
    at += _TABLE.size
    if rows > MOST_ROWS or columns != len(names):
        raise FileError(
            "a batch", f"a table of {rows} rows and {columns} columns", f"up to {MOST_ROWS} rows of {len(names)} columns"
        )
    counts = np.frombuffer(raw, "<u4", runs, _check_room(raw, at, 4 * runs)).astype(np.int64)
    at += 4 * runs
    if int(counts.sum()) != rows:
        raise FileError("a batch", "runs that do not add up to the rows", "a batch that `windtunnel fleet ship` made")
    if not rows:
        return BatchTable(counts, BatchTable.empty(names, 0).columns), at
    starts = _starts(counts)
    values = {}
    for name in names:
        values[name], at = _unpack_column(raw, at, rows, starts)
    return BatchTable(counts, values), at


def _starts(runs: Int64s) -> tuple[Int64s, Int64s]:
    """First rows of the non-empty runs, and their lengths."""
    some = runs[runs > 0]
    return np.cumsum(some) - some, some


def _pack_column(column: Int64s, starts: tuple[Int64s, Int64s], differences: bool) -> bytes:
    firsts = b""
    if differences:
        firsts = column[starts[0]].astype("<i8").tobytes()
        column = np.diff(column, prepend=column[:1])
        inside = np.ones(len(column), bool)
        inside[starts[0]] = False
        column[starts[0]] = column[inside].min() if inside.any() else 0
    least, most = int(column.min()), int(column.max())
    width = 0 if least == most else next(width for width in _WIDTHS if most - least < 1 << 8 * width)
    head = _COLUMN.pack(differences, width, least)
    if not width:
        return head + firsts
    # Differences modulo 2**64 are correct even if the range of the column is wider than an int64.
    narrow = (column.view(np.uint64) - np.uint64(least & (1 << 64) - 1)).astype(f"<u{width}")
    planes = narrow.tobytes() if width == 1 else narrow.view(np.uint8).reshape(-1, width).T.tobytes()
    return head + firsts + planes


def _unpack_column(raw: bytes, at: int, rows: int, starts: tuple[Int64s, Int64s]) -> tuple[Int64s, int]:
    differences, width, least = _COLUMN.unpack_from(raw, _check_room(raw, at, _COLUMN.size))
    at += _COLUMN.size
    if differences > 1 or width not in (0, *_WIDTHS):
        raise FileError("a batch", "a column of an unknown kind", "a batch that `windtunnel fleet ship` made")
    firsts: Any = None
    if differences:
        firsts = np.frombuffer(raw, "<i8", len(starts[0]), _check_room(raw, at, 8 * len(starts[0])))
        at += 8 * len(starts[0])
    if not width:
        column = np.full(rows, least, np.int64)
    else:
        planes = np.frombuffer(raw, np.uint8, width * rows, _check_room(raw, at, width * rows))
        at += width * rows
        column = _join_planes(planes.reshape(width, rows))
        column += least  # modulo 2**64, as in the subtraction
    if differences:
        np.cumsum(column, out=column)
        column += np.repeat(firsts - column[starts[0]], starts[1])
    return column, at


def _join_planes(planes: Any) -> Int64s:
    """Integers from byte planes, lowest first."""
    if len(planes) == 1:
        single: Int64s = planes[0].astype(np.int64)
        return single
    column = np.zeros(planes.shape[1], "<i8")
    places = column.view(np.uint8).reshape(-1, 8)
    for number, plane in enumerate(planes):
        places[:, number] = plane
    return column


def _check_room(raw: bytes, at: int, size: int) -> int:
    """Returns `at` if `size` bytes follow it. FileError otherwise."""
    if at + size > len(raw):
        raise FileError("a batch", "a table that is cut off", "a whole batch")
    return at


def table_of_rows(numbers: Sequence[Int64s], rows: Sequence[Any]) -> BatchTable:
    """Rows of several rings (`ring.ROW`, with their numbers) as one table with a run for each ring."""
    runs = np.array([len(part) for part in rows], np.int64)
    if not runs.sum():
        return BatchTable.empty(ROWS, len(runs))
    joint = np.concatenate(rows)
    columns = {name: joint[name].astype(np.int64) for name in ROWS if name not in ("number", "late")}
    columns["number"] = np.concatenate(numbers).astype(np.int64)
    columns["late"] = joint["host_nanos"] - joint["nanos"]
    return BatchTable(runs, columns)


def summarise(rows: BatchTable) -> BatchTable:
    """Count, sum, minimum and maximum in nanoseconds for each ring, step and section. Rows without a duration are left out."""
    known = rows.columns["nanos"] >= 0
    ring = np.repeat(np.arange(len(rows.runs)), rows.runs)[known]
    step, section, nanos = (rows.columns[name][known] for name in ("step", "section", "nanos"))
    if not len(ring):
        return BatchTable.empty(SUMMARIES, len(rows.runs))
    order, starts = group_rows(ring, step, section)
    first, time = order[starts], nanos[order]
    columns = {
        "step": step[first], "section": section[first], "count": np.diff(starts, append=len(order)),
        "sum": np.add.reduceat(time, starts), "least": np.minimum.reduceat(time, starts), "most": np.maximum.reduceat(time, starts),
    }  # fmt: skip
    return BatchTable(np.bincount(ring[first], minlength=len(rows.runs)).astype(np.int64), columns)


def group_rows(major: Int64s, step: Int64s, section: Int64s) -> tuple[Int64s, Int64s]:
    """An order of rows by (major, step, section), and the begin of each group of equal keys in it. Needs at least one row."""
    low = int(step.min())
    span = int(step.max()) - low + 1
    if span < 1 << 30 and int(major.max()) < 1 << 24:
        key = (major * span + (step - low)) * 256 + section
        order = np.argsort(key, kind="stable")
        key = key[order]
        new = np.flatnonzero(key[1:] != key[:-1]) + 1
    else:
        order = np.lexsort((section, step, major))
        new = np.flatnonzero((np.diff(major[order]) != 0) | (np.diff(step[order]) != 0) | (np.diff(section[order]) != 0)) + 1
    return order, np.concatenate([[0], new])


MOST_RINGS = 4096
"""Largest number of rings in one batch; a node has one per rank."""


class Stamps(NamedTuple):
    """Timestamps of one exchange with the collector, unix ns: sent by the node, received and answered by the collector, back at the
    node.
    """

    sent: int
    received: int
    answered: int
    back: int


class RingIdentity(msgspec.Struct, omit_defaults=True):
    """Identity of a ring: `ring.RingMeta` on the wire."""

    run: str
    rank: int
    world: int
    local_rank: int
    host: str
    pid: int
    device: str
    offset_ns: int
    capacity: int
    facts: dict[str, Any] = {}

    def key(self) -> str:
        """16 hexadecimal digits that identify the ring; another process, or another start of the job, has a different key."""
        text = f"{self.run}\0{self.host}\0{self.rank}\0{self.pid}\0{self.offset_ns}"
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def identity_of(meta: RingMeta) -> RingIdentity:
    """The identity of a ring from its header."""
    return RingIdentity(**{name: getattr(meta, name) for name in RingIdentity.__struct_fields__})


class RankBeat(msgspec.Struct, omit_defaults=True):
    """State of a ring's rank. Counts are totals since the ring was created."""

    ring: str
    head: int
    """Rows that the rank has written."""
    step: int
    beat_ns: int
    """Unix ns of the rank's last heartbeat on its host's clock."""
    process: str
    """running, sleeping, stopped, zombie or gone."""
    ended: int | None = None
    """Exit code that the process reported."""
    next: int = 0
    """Rows below it were sent or lost, except those in `waiting`."""
    waiting: list[int] = []
    """Rows below `next` that were still open."""
    lost: int = 0
    """Rows that the ring overwrote before they were read."""
    reduced: int = 0
    """Rows that were sent only as a part of a summary."""
    identity: RingIdentity | None = None
    """Included if the collector may not know the ring."""
    lines_from: int = 0
    """Number of lines of text that the collector has."""
    lines: list[int] = []
    """Indices into BatchMeta.lines: the ring's next lines."""


class BatchMeta(msgspec.Struct, omit_defaults=True):
    """Everything in a batch except its tables."""

    node: str
    sent_ns: int
    beats: list[RankBeat] = []
    lines: list[tuple[str, Any]] = []
    """(kind, value); each distinct line of the node once."""
    exchanges: list[tuple[int, int, int, int]] = []
    """Stamps of earlier batches."""


_ENCODER, _DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(BatchMeta)


def meta_bytes(meta: BatchMeta) -> bytes:
    return _ENCODER.encode(meta)


def meta_of(raw: bytes) -> BatchMeta:
    """Parses metadata. FileError unless it is a BatchMeta with at most MOST_RINGS rings whose lines exist."""
    try:
        meta = _DECODER.decode(raw)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise FileError("a batch", str(error)[:80], "a batch that `windtunnel fleet ship` made") from error
    if len(meta.beats) > MOST_RINGS or any(not 0 <= line < len(meta.lines) for beat in meta.beats for line in beat.lines):
        raise FileError("a batch", "too many rings, or lines that it does not have", "a batch that `windtunnel fleet ship` made")
    return meta


MAGIC, VERSION = b"WTBATCH1", 1
LEVEL = 1
"""Compression level of zlib: level 6 saves 3 % and takes twice as long (docs/fleet-collector.md)."""
MOST_BYTES = 32 << 20
"""Largest size of a batch; its uncompressed tables may have twice that."""

# magic, version, crc32 of all bytes after it, boot, sequence, sizes of metadata, tables and unpacked tables
_HEAD = struct.Struct("<8sII16sQIII12x")
HEAD_BYTES = _HEAD.size
_CRC_AT, _CRC_FROM = 12, 16


@dataclass(frozen=True)
class BatchHead:
    """Header of a batch. `boot` identifies a start of the shipper; `sequence` counts its batches from 1."""

    boot: bytes
    sequence: int
    meta_bytes: int
    table_bytes: int
    raw_bytes: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return HEAD_BYTES + self.meta_bytes + self.table_bytes


@dataclass(frozen=True)
class Batch:
    """What a node sends. Each table has one run for each of `meta.beats`."""

    boot: bytes
    """[16]"""
    sequence: int
    meta: BatchMeta
    rows: BatchTable
    """Completed rows; sent once."""
    open: BatchTable
    """Rows that a rank was in when the batch was created; they replace those of the last batch."""
    summaries: BatchTable


def encode(batch: Batch) -> bytes:
    """A batch as bytes. FileError if it is larger than MOST_BYTES."""
    raw = pack(batch.rows, ROWS) + pack(batch.open, OPEN_ROWS) + pack(batch.summaries, SUMMARIES)
    words, tables = meta_bytes(batch.meta), zlib.compress(raw, LEVEL)
    if HEAD_BYTES + len(words) + len(tables) > MOST_BYTES or len(raw) > 2 * MOST_BYTES:
        raise FileError("a batch", f"{len(words) + len(tables)} bytes", f"up to {MOST_BYTES} bytes")
    return add_checksum(BatchHead(batch.boot, batch.sequence, len(words), len(tables), len(raw)), words + tables)


def add_checksum(head: BatchHead, body: bytes) -> bytes:
    """Header and body with their checksum."""
    raw = bytearray(_HEAD.pack(MAGIC, VERSION, 0, head.boot, head.sequence, head.meta_bytes, head.table_bytes, head.raw_bytes))
    crc = zlib.crc32(body, zlib.crc32(raw[_CRC_FROM:]))
    struct.pack_into("<I", raw, _CRC_AT, crc)
    return bytes(raw) + body


def head_of(raw: bytes, *, whole: bool = True, check: bool = True) -> BatchHead:
    """The header at the beginning of `raw`, whose checksum is verified. With `whole`, nothing may follow the batch. FileError
    otherwise.
    """
    if len(raw) < HEAD_BYTES:
        raise FileError("a batch", f"{len(raw)} bytes", f"at least {HEAD_BYTES} bytes")
    magic, version, crc, boot, sequence, words, tables, unpacked = _HEAD.unpack_from(raw)
    if magic != MAGIC or version != VERSION:
        raise FileError("a batch", f"{magic!r} of version {version}", f"a batch of `windtunnel fleet ship`, version {VERSION}")
    head = BatchHead(boot, sequence, words, tables, unpacked)
    if head.size > MOST_BYTES or unpacked > 2 * MOST_BYTES or sequence >= 1 << 63:
        raise FileError("a batch", f"{head.size} bytes", f"up to {MOST_BYTES} bytes")
    if len(raw) < head.size or (whole and len(raw) != head.size):
        raise FileError("a batch", f"{len(raw)} bytes of {head.size}", "a whole batch and nothing after it")
    if check and zlib.crc32(memoryview(raw)[_CRC_FROM : head.size]) != crc:
        raise FileError("a batch", "a checksum that does not fit", "a batch that was not changed on its way")
    return head


def decode_meta(raw: bytes, head: BatchHead) -> BatchMeta:
    """The metadata of a batch. FileError if it is malformed."""
    return meta_of(raw[HEAD_BYTES : HEAD_BYTES + head.meta_bytes])


def decode_tables(raw: bytes, head: BatchHead) -> tuple[BatchTable, BatchTable, BatchTable]:
    """Rows, open rows and summaries of a batch. FileError if they are malformed."""
    unzip = zlib.decompressobj()
    try:
        body = unzip.decompress(raw[HEAD_BYTES + head.meta_bytes : head.size], head.raw_bytes + 1)
    except zlib.error as error:
        raise FileError("a batch", str(error), "tables that zlib can unpack") from error
    if len(body) != head.raw_bytes or not unzip.eof:
        raise FileError(
            "a batch", f"tables of another size than {head.raw_bytes} bytes", "a batch that `windtunnel fleet ship` made"
        )
    rows, at = unpack(body, 0, ROWS)
    open_rows, at = unpack(body, at, OPEN_ROWS)
    summaries, at = unpack(body, at, SUMMARIES)
    if at != len(body):
        raise FileError("a batch", "bytes after its tables", "a batch that `windtunnel fleet ship` made")
    return rows, open_rows, summaries


def decode(raw: bytes) -> Batch:
    """Decodes a batch. FileError for anything else; sizes are checked before large allocations."""
    head = head_of(raw)
    meta = decode_meta(raw, head)
    tables = decode_tables(raw, head)
    if any(len(table.runs) != len(meta.beats) for table in tables):
        raise FileError(
            "a batch", "tables of another number of rings than its heartbeats", "a batch that `windtunnel fleet ship` made"
        )
    return Batch(head.boot, head.sequence, meta, *tables)
