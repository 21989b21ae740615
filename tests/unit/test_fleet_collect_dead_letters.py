"""Batches that were acknowledged and cannot be read any more: kept aside, counted, told; all others are there."""

from __future__ import annotations

import re
import signal
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from fleet_collectors import Server, batch_of, collecting

from windtunnel.fleet.batch import HEAD_BYTES, encode, head_of
from windtunnel.fleet.collect import open_run
from windtunnel.fleet.collect.compact import dead_letters
from windtunnel.fleet.collect.log import FRAME, DamagedSpan, frames

BATCHES = [encode(batch_of(node, 1, range(3), introduce=True)) for node in range(3)]


def framed(*batches: bytes) -> bytes:
    return b"".join(FRAME.pack(len(one), len(one) ^ 0xFFFFFFFF, 7) + one for one in batches)


def collected(folder: Path) -> Path:
    """A folder whose collector took the batches of three nodes and was killed; the path of its segment."""
    server = Server(folder)
    for batch in BATCHES:
        assert server.ask("POST", "/v1/batches", batch)[0] == 200
    server.kill(signal.SIGKILL)
    (segment,) = (folder / "log").glob("*.wtlog")
    return segment


def compacted(server: Server, folder: Path) -> str:
    """The collector's metrics once its log is compacted."""
    end = time.monotonic() + 120
    while list((folder / "log").glob("segment-00000001*")):
        assert time.monotonic() < end
        time.sleep(0.05)
    page: str = server.ask("GET", "/metrics")[1].decode()
    return page


def ranks(folder: Path) -> list[int]:
    store = open_run(folder)
    found = sorted({int(rank) for rank in store.sections().rank})
    store.close()
    return found


@pytest.mark.parametrize("where", ["size", "head", "words", "tables"])
def test_a_damaged_batch_is_kept_and_the_others_are_stored(tmp_path: Path, where: str) -> None:
    segment = collected(tmp_path / "run")
    raw = bytearray(segment.read_bytes())
    begin = len(framed(BATCHES[0]))
    offset = {"size": 1, "head": FRAME.size + 20, "words": FRAME.size + HEAD_BYTES + 9, "tables": FRAME.size + len(BATCHES[1]) - 3}
    raw[begin + offset[where]] ^= 4
    segment.write_bytes(raw)
    assert ranks(tmp_path / "run") == [0, 1, 4, 5]  # without a collector, too
    with collecting(tmp_path / "run") as server:
        page = compacted(server, tmp_path / "run")
        assert "windtunnel_collector_dead_letters 1.0" in page
        assert server.ask("POST", "/v1/batches", encode(batch_of(0, 2, range(3, 4))))[0] == 200  # it goes on
    assert ranks(tmp_path / "run") == [0, 1, 4, 5]
    (kept,) = (tmp_path / "run" / "dead").iterdir()
    assert kept.read_bytes() == raw[begin : begin + len(framed(BATCHES[1]))]
    with collecting(tmp_path / "run") as server:  # a counter that outlives its collector
        assert "windtunnel_collector_dead_letters 1.0" in server.ask("GET", "/metrics")[1].decode()


def test_tables_that_cannot_be_unpacked_are_kept_though_their_checksum_is_right(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    head = head_of(BATCHES[1])
    bad = bytearray(BATCHES[1])
    bad[HEAD_BYTES + head.meta_bytes :] = bytes(head.table_bytes)
    struct.pack_into("<I", bad, 12, zlib.crc32(memoryview(bad)[16:]))
    with collecting(tmp_path / "run", alone=True, policy={"segment_bytes": 1}) as server:
        for batch in (BATCHES[0], bytes(bad), BATCHES[2]):
            assert server.ask("POST", "/v1/batches", batch)[0] == 200
        end = time.monotonic() + 120
        while list((tmp_path / "run" / "log").glob("*.wtlog")):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert "windtunnel_collector_dead_letters 1.0" in server.ask("GET", "/metrics")[1].decode()
    assert ranks(tmp_path / "run") == [0, 1, 4, 5] and dead_letters(tmp_path / "run") == 1
    (kept,) = (tmp_path / "run" / "dead").iterdir()
    assert kept.read_bytes()[FRAME.size :] == bad
    assert re.search(r"segment 2: \d+ bytes at 0 cannot be read .*kept in .*dead", capfd.readouterr().err)


def test_any_flipped_byte_costs_one_batch_at_most() -> None:
    """Each byte of a log in turn, by hand: the batch that it lies in is told, the other two are read."""
    raw = framed(*BATCHES)
    begins = np.cumsum([0, *(len(framed(one)) for one in BATCHES)]).tolist()
    for at in range(0, len(raw), 7):
        changed = bytearray(raw)
        changed[at] ^= 0x40
        hit = int(np.searchsorted(begins, at, side="right")) - 1
        damaged: list[DamagedSpan] = []
        found = [one.head.boot for one in frames(bytes(changed), damaged)]
        harmless = begins[hit] + 8 <= at < begins[hit] + 16  # of the time that it came
        assert found == [node.to_bytes(16, "big") for node in range(3) if node != hit or harmless], at
        assert [(one.begin, one.end) for one in damaged] == ([] if harmless else [(begins[hit], begins[hit + 1])]), at


def test_a_torn_end_is_no_damage() -> None:
    raw = framed(*BATCHES)
    last = len(framed(*BATCHES[:2]))
    for end in range(last, len(raw), 11):
        damaged: list[DamagedSpan] = []
        assert len(list(frames(raw[:end], damaged))) == 2 and damaged == []
    damaged = []
    assert len(list(frames(raw + bytes(5000), damaged))) == 3 and damaged == []  # room that was made and never filled
