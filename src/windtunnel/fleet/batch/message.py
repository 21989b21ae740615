"""A batch as bytes: a header of 64 bytes, its metadata (JSON), its tables (zlib). The same bytes are sent over HTTP and stored in
the collector's log.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from windtunnel.base.errors import FileError
from windtunnel.fleet.batch.columns import OPEN_ROWS, ROWS, SUMMARIES, BatchTable, pack, unpack
from windtunnel.fleet.batch.meta import BatchMeta, meta_bytes, meta_of

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
