"""Batches: what is encoded is decoded; whatever else comes in is one readable error, and nothing large is made of it."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import FileError
from windtunnel.fleet.batch import (
    MOST_ROWS,
    OPEN_ROWS,
    ROWS,
    SUMMARIES,
    Batch,
    BatchHead,
    BatchMeta,
    BatchTable,
    RankBeat,
    add_checksum,
    decode,
    encode,
    head_of,
    pack,
    summarise,
    unpack,
)

WHOLE = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-300, 300), st.just(7))


def table(runs: list[int], names: tuple[str, ...], seed: int = 0) -> BatchTable:
    values = np.random.default_rng(seed)
    return BatchTable(np.array(runs, np.int64), {name: np.sort(values.integers(0, 1 << 40, sum(runs))) for name in names})


def batch(seed: int = 0) -> Batch:
    beats = [RankBeat(f"{ring:016x}", 10, 2, 3, "running", waiting=[4, 5]) for ring in range(3)]
    meta = BatchMeta("node0", 5, beats, [("name", "all_reduce")], [(1, 2, 3, 4)])
    return Batch(bytes(range(16)), 7, meta, table([5, 0, 9], ROWS, seed), table([0, 2, 0], OPEN_ROWS), table([1, 0, 1], SUMMARIES))


def equal(a: BatchTable, b: BatchTable) -> bool:
    return a.runs.tolist() == b.runs.tolist() and all(np.array_equal(a.columns[name], b.columns[name]) for name in a.columns)


@examples(65)
@given(st.lists(st.lists(WHOLE, max_size=9), min_size=1, max_size=5))
def test_any_numbers_come_back(runs: list[list[int]]) -> None:
    column = np.array([value for run in runs for value in run], np.int64)
    there = BatchTable(np.array([len(run) for run in runs], np.int64), dict.fromkeys(SUMMARIES, column))
    raw = pack(there, SUMMARIES)
    back, at = unpack(raw, 0, SUMMARIES)
    assert equal(there, back) and at == len(raw)


def test_a_batch_comes_back() -> None:
    there = batch()
    back = decode(encode(there))
    assert (back.boot, back.sequence, back.meta) == (there.boot, there.sequence, there.meta)
    assert all(equal(a, b) for a, b in ((there.rows, back.rows), (there.open, back.open), (there.summaries, back.summaries)))


def test_steady_records_are_small() -> None:
    """Durations and begins are noise; the other 13 columns of a steady step cost next to nothing."""
    values = np.random.default_rng(1)
    count = 1600
    columns = {name: np.tile(values.integers(0, 4, 50), count // 50) for name in ROWS}
    columns |= {"number": np.arange(count), "step": np.repeat(np.arange(count // 50), 50), "late": np.zeros(count, np.int64)}
    columns |= {"begin": 10**18 + np.cumsum(values.integers(0, 1 << 22, count)), "nanos": values.integers(0, 1 << 22, count)}
    rows = BatchTable(np.full(8, count // 8), columns)
    empty = [BatchTable.empty(names, 8) for names in (OPEN_ROWS, SUMMARIES)]
    raw = encode(Batch(bytes(16), 1, BatchMeta("n", 1, [RankBeat("r", 1, 1, 1, "running")] * 8), rows, *empty))
    assert len(raw) / count < 8


def test_changed_bytes_are_refused() -> None:
    raw = encode(batch())
    for at in range(0, len(raw), 3):
        broken = bytearray(raw)
        broken[at] ^= 0x10
        with pytest.raises(FileError):
            decode(bytes(broken))
    for size in range(0, len(raw), 7):
        with pytest.raises(FileError):
            decode(raw[:size])
    with pytest.raises(FileError):
        decode(raw + b"x")


def changed(rng: random.Random, raw: bytes) -> bytes:
    body = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(body))
        body[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
    return bytes(body)


@pytest.mark.parametrize("part", ["words", "tables", "compressed", "head"])
def test_malformed_batches_with_a_right_checksum_are_refused(part: str) -> None:
    """Whoever has the token can send anything: it is a batch, or one FileError."""
    raw = encode(batch())
    head = head_of(raw)
    words, tables = raw[64 : 64 + head.meta_bytes], raw[64 + head.meta_bytes :]
    rng = random.Random(part)
    refused = 0
    tracemalloc.start()
    for _ in range(400):
        one = {"words": words, "tables": zlib.decompress(tables), "compressed": tables}
        sizes = [head.meta_bytes, head.table_bytes, head.raw_bytes]
        if part == "head":
            sizes[rng.randrange(3)] = rng.choice([0, 1, (1 << 32) - 1, rng.randrange(1 << 20)])
        else:
            one[part] = changed(rng, one[part])
            packed = one["compressed"] if part == "compressed" else zlib.compress(one["tables"])
            sizes = [len(one["words"]), len(packed), len(one["tables"])]
            one["compressed"] = packed
        message = add_checksum(BatchHead(head.boot, head.sequence, *sizes), one["words"] + one["compressed"])
        try:
            decode(message)
        except FileError:
            refused += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > 20
    assert peak < 4 << 20


def test_a_small_batch_that_unpacks_to_much_is_refused() -> None:
    bomb = zlib.compress(bytes(64 << 20), 9)
    for claimed in (100, 40 << 20, (64 << 20) + 1):
        with pytest.raises(FileError):
            decode(add_checksum(BatchHead(bytes(16), 1, 2, len(bomb), claimed), b"{}" + bomb))


def test_a_table_that_claims_many_rows_is_refused_before_they_are_made() -> None:
    head: Any = (MOST_ROWS + 1).to_bytes(4, "little") + (1).to_bytes(2, "little") + len(ROWS).to_bytes(2, "little")
    with pytest.raises(FileError):
        unpack(head + (MOST_ROWS + 1).to_bytes(4, "little"), 0, ROWS)


def test_summaries_count_and_add() -> None:
    columns = {name: np.zeros(5, np.int64) for name in ROWS}
    columns |= {"step": np.array([1, 1, 2, 1, 1]), "section": np.array([4, 4, 4, 1, 1]), "nanos": np.array([10, 30, 5, -1, 2])}
    found = summarise(BatchTable(np.array([3, 2]), columns))
    assert found.runs.tolist() == [2, 1]
    assert {name: found.columns[name].tolist() for name in SUMMARIES} == {
        "step": [1, 2, 1], "section": [4, 4, 1], "count": [2, 1, 1], "sum": [40, 5, 2], "least": [10, 5, 2], "most": [30, 5, 2],
    }  # fmt: skip
